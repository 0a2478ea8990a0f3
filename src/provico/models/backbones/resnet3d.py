"""Video ResNets, the networks of the paper: a stem, four stages of residual blocks, an average over the map.

R3D and R(2+1)D differ only in their convolutions. Several networks have the name R3D-18.
The paper's "20.2M" is matched by the one of SlowFast's slow path (`r3d18`: kernels in time only in the last
two stages, 20.0M, and 20.2M with a 400-way classifier), not by the one of torchvision (33.2M). Counts are of
the trunk, without classifier or heads:

    r3d18   20,023,872    r3d50   31,672,128    r2plus1d18   15,374,528    tiny   898,128
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from provico.models.backbones.convolution import Conv3d, Triple

ONE: Triple = (1, 1, 1)
SPATIAL: Triple = (1, 3, 3)
FULL: Triple = (3, 3, 3)
HALVE_SPACE: Triple = (1, 2, 2)
HALVE_ALL: Triple = (2, 2, 2)

WIDTHS = (64, 128, 256, 512)
"""Channels of the four stages."""

ConvBuilder = Callable[[int, int, Triple, Triple], nn.Module]
"""(in_channels, out_channels, kernel_size, stride) -> a convolution padded to keep the size at stride one."""


def conv3d(in_channels: int, out_channels: int, kernel_size: Triple, stride: Triple) -> nn.Module:
    """The plain convolution, as a `ConvBuilder`."""
    padding = (kernel_size[0] // 2, kernel_size[1] // 2, kernel_size[2] // 2)
    return Conv3d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)


def norm(channels: int) -> nn.Module:
    """Batch normalisation over clips, time and space."""
    return nn.BatchNorm3d(channels)


def relu() -> nn.Module:
    """In-place ReLU: batch normalisation keeps its input, not its output, so the gradient stays correct."""
    return nn.ReLU(inplace=True)


def named(layers: Mapping[str, nn.Module]) -> nn.Sequential:
    """Layers in order, with readable names for checkpoints."""
    return nn.Sequential(OrderedDict(layers))


class ResidualBlock(nn.Module):
    """relu(branch(x) + shortcut(x))."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module | None) -> None:
        super().__init__()
        self.branch = branch
        self.shortcut = shortcut
        self.relu = relu()

    def forward(
        self, video: Float[Tensor, "batch channels time height width"]
    ) -> Float[Tensor, "batch out_channels out_time out_height out_width"]:
        """One block."""
        output = self.branch(video)
        output += video if self.shortcut is None else self.shortcut(video)
        activated: Tensor = self.relu(output)
        return activated


def basic_block(
    conv: ConvBuilder,
    in_channels: int,
    out_channels: int,
    *,
    kernels: tuple[Triple, Triple],
    stride: Triple,
) -> ResidualBlock:
    """Two convolutions; the first carries the stride."""
    branch = named(
        {
            "conv1": conv(in_channels, out_channels, kernels[0], stride),
            "norm1": norm(out_channels),
            "relu": relu(),
            "conv2": conv(out_channels, out_channels, kernels[1], ONE),
            "norm2": norm(out_channels),
        }
    )
    return ResidualBlock(branch, shortcut(in_channels, out_channels, stride=stride))


def stages_of_two(
    conv: ConvBuilder, kernels: Sequence[tuple[Triple, Triple]], *, halve: Triple
) -> list[list[ResidualBlock]]:
    """The four stages of an 18-layer network: two basic blocks each, with a stride from the second stage on.

    kernels: the kernels of both blocks, for each stage.
    """
    stages, channels = [], WIDTHS[0]
    for width, pair in zip(WIDTHS, kernels, strict=True):
        stride = ONE if width == WIDTHS[0] else halve
        stages.append(
            [
                basic_block(conv, channels, width, kernels=pair, stride=stride),
                basic_block(conv, width, width, kernels=pair, stride=ONE),
            ]
        )
        channels = width
    return stages


def shortcut(in_channels: int, out_channels: int, *, stride: Triple) -> nn.Module | None:
    """A 1x1x1 convolution if the shape changes, otherwise None."""
    if in_channels == out_channels and stride == ONE:
        return None
    return named({"conv": conv3d(in_channels, out_channels, ONE, stride), "norm": norm(out_channels)})


class VideoResNet(nn.Module):
    """A network from clips to one feature vector each.

    The input is (batch, channels, time, height, width). It is fastest in `channels_last_3d` memory, which is
    that of the permuted view of (batch, time, height, width, channels).
    """

    def __init__(self, stem: nn.Module, stages: Iterable[Iterable[ResidualBlock]]) -> None:
        super().__init__()
        self.stem = stem
        self.stages = nn.Sequential(*(nn.Sequential(*blocks) for blocks in stages))
        for module in self.modules():
            if isinstance(module, nn.Conv3d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def feature_map(
        self, clips: Float[Tensor, "batch channels time height width"]
    ) -> Float[Tensor, "batch feature map_time map_height map_width"]:
        """The map before the average."""
        features: Tensor = self.stages(self.stem(clips))
        return features

    def forward(
        self, clips: Float[Tensor, "batch channels time height width"]
    ) -> Float[Tensor, "batch feature"]:
        """The average of the map over time and space."""
        return self.feature_map(clips).mean(dim=(2, 3, 4))


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
    """A network for CPUs: one block per stage, every kernel 3x3x3, a flat stem.

    It is made for clips of 8 to 16 frames of 48 to 112 pixels. The narrowest layer has 16 channels, two
    vectors of eight, which fills the lanes of AVX2.
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


def r2plus1d18() -> VideoResNet:
    """R(2+1)D-18: each 3-D kernel is split in two, one in space, then one in time.

    Published networks differ in the number of channels between the two. With as many as after them, as in
    AVID, the trunk has the paper's "15.4M" weights.
    """
    stages = stages_of_two(split_conv, [(FULL, FULL)] * len(WIDTHS), halve=HALVE_ALL)
    stem = named({"conv": split_conv(3, 64, (3, 7, 7), HALVE_SPACE), "norm": norm(64), "relu": relu()})
    return VideoResNet(stem, stages)


def split_conv(in_channels: int, out_channels: int, kernel: Triple, stride: Triple) -> nn.Module:
    """A kernel in space with the spatial stride, then one in time with the temporal stride."""
    time, height, width = kernel
    return named(
        {
            "spatial": conv3d(in_channels, out_channels, (1, height, width), (1, stride[1], stride[2])),
            "norm": norm(out_channels),
            "relu": relu(),
            "temporal": conv3d(out_channels, out_channels, (time, 1, 1), (stride[0], 1, 1)),
        }
    )


class TwoStreams(nn.Module):
    """Two parallel networks: features of motion, then of scenery.

    A network of frames can distinguish videos by their scenery and need not learn motion. Two separate
    networks learn both and make different mistakes: two videos that are similar in both views are usually of
    one class.
    """

    def __init__(self, motion: nn.Module, scenery: nn.Module, *, scenery_step: int) -> None:
        super().__init__()
        self.motion = motion
        self.scenery = scenery
        self.scenery_step = scenery_step

    def forward(
        self, clips: Float[Tensor, "batch channels time height width"]
    ) -> Float[Tensor, "batch feature"]:
        """The concatenated features. Scenery hardly changes, so one frame in several is enough."""
        moving = clips[:, :, 1:] - clips[:, :, :-1]
        still = clips[:, :, :: self.scenery_step].contiguous(memory_format=torch.channels_last_3d)
        return torch.cat([self.motion(moving), self.scenery(still)], dim=1)
