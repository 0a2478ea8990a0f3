"""ResNets whose 3-D kernels are split in two: one in space, then one in time.

A 3x3x3 convolution from m to n channels becomes (1,3,3) m -> mid, batch norm, ReLU, (3,1,1) mid -> n. What
sets the published networks apart is the choice of `mid`. The paper's "15.4M" is the plainest, mid = n; the
others choose mid so that the pair has as many weights as the 3x3x3 kernel it replaces.

    r2plus1d18        15,374,528    mid = n, as in AVID
    r2plus1d18_full   31,300,125    one mid for each block, as in torchvision
    r2plus1d10        14,365,303    one mid for each convolution, the shortcut split too, as in VCOP
"""

from __future__ import annotations

from torch import nn

from provico.models.backbones.convolution import Triple
from provico.models.backbones.resnet3d import (
    FULL,
    HALVE_ALL,
    HALVE_SPACE,
    ONE,
    WIDTHS,
    VideoResNet,
    basic_block,
    conv3d,
    named,
    norm,
    relu,
)

STEM: Triple = (3, 7, 7)


def r2plus1d18() -> VideoResNet:
    """R(2+1)D-18 with as many channels between the two kernels as after them."""

    def conv(in_channels: int, out_channels: int, kernel: Triple, stride: Triple) -> nn.Module:
        return split_conv(in_channels, out_channels, out_channels, kernel, stride)

    stages, channels = [], WIDTHS[0]
    for width in WIDTHS:
        stages.append(
            [
                basic_block(conv, channels, width, kernels=(FULL, FULL), stride=_first_stride(width)),
                basic_block(conv, width, width, kernels=(FULL, FULL), stride=ONE),
            ]
        )
        channels = width
    return VideoResNet(_stem(64), stages)


def r2plus1d18_full() -> VideoResNet:
    """torchvision's `r2plus1d_18`: the first convolution of a block decides `mid` for both."""
    stages, channels = [], WIDTHS[0]
    for width in WIDTHS:
        blocks = []
        for stride in (_first_stride(width), ONE):
            mid = matched_mid(channels, width, FULL)

            def conv(
                in_channels: int, out_channels: int, kernel: Triple, stride: Triple, mid: int = mid
            ) -> nn.Module:
                return split_conv(in_channels, mid, out_channels, kernel, stride)

            blocks.append(basic_block(conv, channels, width, kernels=(FULL, FULL), stride=stride))
            channels = width
        stages.append(blocks)
    return VideoResNet(_stem(45), stages)


def r2plus1d10() -> VideoResNet:
    """The R(2+1)D of VCOP, PRP and pace prediction: one block a stage."""

    def conv(in_channels: int, out_channels: int, kernel: Triple, stride: Triple) -> nn.Module:
        mid = matched_mid(in_channels, out_channels, kernel)
        return split_conv(in_channels, mid, out_channels, kernel, stride)

    stages, channels = [], WIDTHS[0]
    for width in WIDTHS:
        stride = _first_stride(width)
        block = basic_block(conv, channels, width, kernels=(FULL, FULL), stride=stride, shortcut_conv=conv)
        stages.append([block])
        channels = width
    return VideoResNet(_stem(matched_mid(3, 64, STEM)), stages)


def matched_mid(in_channels: int, out_channels: int, kernel: Triple) -> int:
    """The number of channels between the kernels that gives the pair the weights of the whole kernel."""
    time, height, width = kernel
    area = height * width
    return time * area * in_channels * out_channels // (area * in_channels + time * out_channels)


def split_conv(
    in_channels: int, mid: int, out_channels: int, kernel: Triple, stride: Triple
) -> nn.Sequential:
    """A kernel in space with the spatial stride, then one in time with the temporal stride."""
    time, height, width = kernel
    return named(
        {
            "spatial": conv3d(in_channels, mid, (1, height, width), (1, stride[1], stride[2])),
            "norm": norm(mid),
            "relu": relu(),
            "temporal": conv3d(mid, out_channels, (time, 1, 1), (stride[0], 1, 1)),
        }
    )


def _stem(mid: int) -> nn.Sequential:
    return named({"conv": split_conv(3, mid, 64, STEM, HALVE_SPACE), "norm": norm(64), "relu": relu()})


def _first_stride(width: int) -> Triple:
    return ONE if width == WIDTHS[0] else HALVE_ALL
