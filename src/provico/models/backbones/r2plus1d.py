"""ResNets whose 3-D kernels are split in two: one in space, then one in time.

A 3x3x3 convolution from m to n channels becomes (1,3,3) m -> n, batch norm, ReLU, (3,1,1) n -> n. Published
networks differ in the number of channels between the two kernels. With n of them, as in AVID, the trunk has
15,374,528 weights, the paper's "15.4M".
"""

from __future__ import annotations

from torch import nn

from provico.models.backbones.convolution import Triple
from provico.models.backbones.resnet3d import (
    FULL,
    HALVE_ALL,
    HALVE_SPACE,
    WIDTHS,
    VideoResNet,
    conv3d,
    named,
    norm,
    relu,
    stages_of_two,
)


def r2plus1d18() -> VideoResNet:
    """R(2+1)D-18 with as many channels between the two kernels as after them."""
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
