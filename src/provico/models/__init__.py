"""Networks: pixels to Gaussians.

Read in this order, which is also that of the data:

    pixels          what a network wants to be fed, and uint8 pixels turned into it
    convolution     a 3-D convolution that is fast on a CPU
    resnet3d        the shape that all video ResNets share
    r3d, r2plus1d   the networks of the paper and their relatives
    two_streams     one for what moves beside one for what is there
    weights         reading weights safely, also torchvision's
    efficientnet    a pretrained image network, for frozen features
    frozen          networks and features that are used as they are
    backbones       all of them by name
    landmarks       how far a feature vector is from what was seen in training
    heads           a feature vector to a Gaussian
    encoder_config  the settings of an encoder
    inference       running a network without learning
    video_embedding what an encoder says of one video file
    encoder         backbone and heads; saving and loading
    timeline        what it says of any clips of a file, such as one every second
    onnx, export    for use elsewhere
    allocator       keeping freed memory, for long runs on a CPU
"""

from provico.models.allocator import keep_freed_memory
from provico.models.backbones.frozen import FeatureFile, FrozenBackbone, FrozenSpec, import_network
from provico.models.backbones.registry import BACKBONES, FEATURES, BackboneSpec, find_backbone
from provico.models.encoder import Encoder, encoder_hash, weights_hash
from provico.models.encoder_config import EncoderConfig
from provico.models.export import export_encoder
from provico.models.heads import GaussianHead, LogVarHead, LowDimProjection, MatchScale, MeanHead
from provico.models.inference import evaluating
from provico.models.onnx import OnnxParity, export_onnx
from provico.models.pixels import InputSpec, PixelNormalisation
from provico.models.weights import load_torchvision_weights, read_weights

__all__ = [
    "BACKBONES",
    "FEATURES",
    "BackboneSpec",
    "Encoder",
    "EncoderConfig",
    "FeatureFile",
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
    "keep_freed_memory",
    "load_torchvision_weights",
    "read_weights",
    "weights_hash",
]
