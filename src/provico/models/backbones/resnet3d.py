"""The shape that all video ResNets share: a stem, four stages of residual blocks, an average over the map.

R3D and R(2+1)D differ only in the convolutions put into it, so those are built in `r3d.py` and
`r2plus1d.py` and composed here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence

from jaxtyping import Float
from torch import Tensor, nn

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
    """In place: batch normalisation keeps its input, not its output, so nothing that is needed is lost."""
    return nn.ReLU(inplace=True)


def named(layers: Mapping[str, nn.Module]) -> nn.Sequential:
    """Layers in order, with names that read well in a checkpoint."""
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

    kernels: those of both blocks, for each stage.
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
    """A 1x1x1 convolution where the shape changes, nothing where it does not."""
    if in_channels == out_channels and stride == ONE:
        return None
    return named({"conv": conv3d(in_channels, out_channels, ONE, stride), "norm": norm(out_channels)})


class VideoResNet(nn.Module):
    """Clips to one feature vector each.

    The input is (batch, channels, time, height, width). In `channels_last_3d` memory, which is what the
    permuted view of (batch, time, height, width, channels) has, it is fastest.
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
