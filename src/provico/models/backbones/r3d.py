"""ResNets of 3-D convolutions.

Several networks go by the name R3D-18. The paper's "20.2M" is matched by the one of SlowFast's slow path
(`r3d18`: kernels in time only in the last two stages, 20.0M, and 20.2M with a 400-way classifier), not by
the one of torchvision (33.2M). Counts are of the trunk, without classifier or heads:

    r3d18   20,023,872    r3d50   31,672,128    tiny   898,128
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from provico.models.backbones.convolution import Triple
from provico.models.backbones.resnet3d import (
    FULL,
    HALVE_ALL,
    HALVE_SPACE,
    ONE,
    SPATIAL,
    WIDTHS,
    ResidualBlock,
    VideoResNet,
    basic_block,
    conv3d,
    named,
    norm,
    relu,
    shortcut,
    stages_of_two,
)


def r3d18() -> VideoResNet:
    """SlowFast's slow ResNet-18: full kernels open the blocks of the last two stages."""
    kernels = [(first, SPATIAL) for first in (SPATIAL, SPATIAL, FULL, FULL)]
    stages = stages_of_two(conv3d, kernels, halve=HALVE_SPACE)
    return VideoResNet(_stem((1, 7, 7), WIDTHS[0], pool=True), stages)


def r3d50() -> VideoResNet:
    """CVRL's ResNet-50: bottlenecks, with kernels in time in the last two stages."""
    stages, channels = [], 64
    for width, depth, time_taps in zip(WIDTHS, (3, 4, 6, 3), (1, 1, 3, 3), strict=True):
        blocks = []
        for index in range(depth):
            stride = HALVE_SPACE if index == 0 and width != WIDTHS[0] else ONE
            blocks.append(_bottleneck(channels, width, time_taps=time_taps, stride=stride))
            channels = 4 * width
        stages.append(blocks)
    return VideoResNet(_stem((5, 7, 7), 64, pool=True), stages)


def tiny() -> VideoResNet:
    """For a CPU: one block a stage, every kernel 3x3x3, a flat stem; 8 to 16 frames of 48 to 112 pixels.

    The narrowest layer has 16 channels, two vectors of eight, so no lane of an AVX2 machine is idle.
    """
    widths = (16, 32, 64, 128)
    stages, channels = [], widths[0]
    for width in widths:
        stride = ONE if width == widths[0] else HALVE_ALL
        stages.append([basic_block(conv3d, channels, width, kernels=(FULL, FULL), stride=stride)])
        channels = width
    return VideoResNet(_stem((1, 5, 5), widths[0], pool=False), stages)


def _stem(kernel: Triple, width: int, *, pool: bool) -> nn.Sequential:
    layers = {"conv": conv3d(3, width, kernel, HALVE_SPACE), "norm": norm(width), "relu": relu()}
    return named({**layers, "pool": SpatialMaxPool()} if pool else layers)


def _bottleneck(in_channels: int, width: int, *, time_taps: int, stride: Triple) -> ResidualBlock:
    branch = named(
        {
            "conv1": conv3d(in_channels, width, (time_taps, 1, 1), ONE),
            "norm1": norm(width),
            "relu1": relu(),
            "conv2": conv3d(width, width, SPATIAL, stride),
            "norm2": norm(width),
            "relu2": relu(),
            "conv3": conv3d(width, 4 * width, ONE, ONE),
            "norm3": norm(4 * width),
        }
    )
    return ResidualBlock(branch, shortcut(in_channels, 4 * width, stride=stride))


class SpatialMaxPool(nn.Module):
    """Max-pooling (1,3,3) with stride (1,2,2), frame by frame: in 2-D, which is faster than in 3-D."""

    def forward(
        self, video: Float[Tensor, "batch channels time height width"]
    ) -> Float[Tensor, "batch channels time out_height out_width"]:
        """Halve height and width."""
        frames = video.transpose(1, 2).flatten(0, 1)
        pooled = F.max_pool2d(frames, kernel_size=3, stride=2, padding=1)
        return pooled.view(video.shape[0], video.shape[2], *pooled.shape[1:]).transpose(1, 2)
