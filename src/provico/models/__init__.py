"""Networks: pixels to Gaussians.

Read in this order, which is also that of the data:

    pixels          the input that a network expects, and uint8 pixels turned into it
    weights         reading weights safely, and telling them apart
    backbones/      networks from clips to features, all of them by name in `registry`
    heads           a feature vector to a Gaussian
    recordings      which videos are of one recording
    remembered      remembered videos: their views, their kinds, what is usual
    evidence        the variance of a finished encoder: support by other recordings, and damage
    encoder_config  the settings of an encoder
    card            what an encoder is, for people
    inference       running a network without learning
    encoder         backbone and heads; saving and loading
    saved           checkpoints of runs; the encoder of a run, a folder or a checkpoint
    export          for use elsewhere
"""

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
