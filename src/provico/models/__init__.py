"""Networks: pixels to Gaussians."""

from provico.models.backbones.frozen import FrozenBackbone, FrozenSpec, import_network
from provico.models.backbones.registry import BACKBONES, FEATURES, BackboneSpec, find_backbone
from provico.models.encoder import Encoder, encoder_hash
from provico.models.encoder_config import EncoderConfig
from provico.models.export import OnnxParity, export_encoder, export_onnx
from provico.models.heads import GaussianHead, LogVarHead, LowDimProjection, MatchScale, MeanHead
from provico.models.inference import evaluating
from provico.models.pixels import InputSpec, PixelNormalisation
from provico.models.weights import read_weights, weights_hash

__all__ = [
    "BACKBONES",
    "FEATURES",
    "BackboneSpec",
    "Encoder",
    "EncoderConfig",
    "FrozenBackbone",
    "FrozenSpec",
    "GaussianHead",
    "InputSpec",
    "LogVarHead",
    "LowDimProjection",
    "MatchScale",
    "MeanHead",
    "OnnxParity",
    "PixelNormalisation",
    "encoder_hash",
    "evaluating",
    "export_encoder",
    "export_onnx",
    "find_backbone",
    "import_network",
    "read_weights",
    "weights_hash",
]
