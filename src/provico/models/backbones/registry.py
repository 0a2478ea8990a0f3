"""Every backbone by name. To add one: a function that builds it, and a line in `BACKBONES`.

A backbone takes normalised clips (batch, 3, time, height, width) and returns (batch, feature). Besides the
names below, `SOURCES` lists external networks, which are frozen, and `features` means no network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from torch import nn

from provico.errors import ConfigError, did_you_mean
from provico.models.backbones import efficientnet, folder, hub, onnx_file, resnet3d, timm_model
from provico.models.backbones.frozen import FrozenBackbone, FrozenSpec, NoBackbone, open_network
from provico.models.pixels import InputSpec

FEATURES = "features"
"""The name of the backbone of an encoder of stored features."""


@dataclass(frozen=True)
class NetworkSource:
    """A source of external networks."""

    open: Callable[[str, InputSpec, FrozenSpec | None], FrozenBackbone]
    """From name, clips and known facts to the network."""
    made_for: Callable[[str], InputSpec]
    """The clips that it expects."""


FOLDER, IMPORT_PATH = "FOLDER", "package.module:name"
SOURCES: dict[str, NetworkSource] = {
    hub.PREFIX: NetworkSource(folder.open_folder, folder.made_for),
    timm_model.PREFIX: NetworkSource(timm_model.open_named, timm_model.made_for),
    onnx_file.SUFFIX: NetworkSource(onnx_file.open_file, onnx_file.made_for),
    FOLDER: NetworkSource(folder.open_folder, folder.made_for),
    IMPORT_PATH: NetworkSource(open_network, lambda name: InputSpec()),
}
"""External networks, by the prefix or suffix of their names."""


def source_of(name: str) -> str | None:
    """The entry of `SOURCES` that a name means; None for built-in networks."""
    if name in BACKBONES or name == FEATURES:
        return None
    for prefix in (hub.PREFIX, timm_model.PREFIX):
        if name.startswith(prefix):
            return prefix
    if name.endswith(onnx_file.SUFFIX):
        return onnx_file.SUFFIX
    if ":" in name:
        return IMPORT_PATH
    return FOLDER if "/" in name or "\\" in name or Path(name).is_dir() else None


def is_outside(name: str) -> bool:
    """Whether a network is external."""
    return source_of(name) is not None


def is_import_path(name: str) -> bool:
    """Whether a backbone is named as `package.module:name`: building it runs third-party code."""
    return source_of(name) == IMPORT_PATH


@dataclass(frozen=True, kw_only=True)
class BackboneSpec:
    """How to build a backbone, its output, and the clips that it expects."""

    build: Callable[[], nn.Module]
    feature_dim: int | None
    """None for an external network that was not probed yet."""
    input: InputSpec = field(default_factory=InputSpec)
    is_frozen: bool = False
    feature_blocks: tuple[int, ...] | None = None
    """Sizes of consecutive groups of features, if a frozen network has several kinds."""
    streams: tuple[float, ...] = (1.0,)
    """Networks that are trained side by side, by their shares of a mean's squared length. Each has an equal
    part of the features and of the embedding, its own contrastive loss, and must agree to a mined pair."""

    @property
    def views(self) -> tuple[int, ...]:
        """Numbers of features per view: per block or network, or all in one."""
        assert self.feature_dim is not None  # known once a network is built
        if self.feature_blocks is not None:
            return self.feature_blocks
        return (self.feature_dim // self.num_streams,) * self.num_streams

    @property
    def num_streams(self) -> int:
        """The number of networks that are trained side by side."""
        return len(self.streams)


def _tiny_two_streams() -> nn.Module:
    return resnet3d.TwoStreams(resnet3d.tiny(), resnet3d.tiny(), scenery_step=4)


def _efficientnet_lite0() -> nn.Module:
    spec = FrozenSpec(feature_dim=efficientnet.FEATURE_DIM, takes="frames")
    return FrozenBackbone(efficientnet.efficientnet_lite0(), spec, use_engine=True)


def _efficientnet_motion() -> nn.Module:
    network = efficientnet.MiddleLayers(efficientnet.efficientnet_lite0())
    return FrozenBackbone(network, FrozenSpec(feature_dim=sum(network.BLOCKS)), use_engine=True)


BACKBONES: dict[str, BackboneSpec] = {
    "r3d18": BackboneSpec(build=resnet3d.r3d18, feature_dim=512),
    "r2plus1d18": BackboneSpec(build=resnet3d.r2plus1d18, feature_dim=512),
    "r3d50": BackboneSpec(build=resnet3d.r3d50, feature_dim=2048, input=InputSpec(size=224)),
    "tiny": BackboneSpec(
        build=resnet3d.tiny, feature_dim=128, input=InputSpec(size=64, num_frames=8, frame_step=2)
    ),
    "tiny_two_streams": BackboneSpec(
        build=_tiny_two_streams,
        feature_dim=256,
        input=InputSpec(size=64, num_frames=9, frame_step=2),
        # Motion says more about an action than scenery.
        streams=(0.75, 0.25),
    ),
    "efficientnet_lite0": BackboneSpec(
        build=_efficientnet_lite0,
        feature_dim=efficientnet.FEATURE_DIM,
        # An image network sees no motion: few frames, far apart.
        input=InputSpec(
            size=128,
            num_frames=4,
            frame_step=8,
            pixel_mean=efficientnet.PIXEL_MEAN,
            pixel_std=efficientnet.PIXEL_STD,
        ),
        is_frozen=True,
    ),
    "efficientnet_motion": BackboneSpec(
        build=_efficientnet_motion,
        feature_dim=sum(efficientnet.MiddleLayers.BLOCKS),
        feature_blocks=efficientnet.MiddleLayers.BLOCKS,
        # Motion needs at least two frames an eighth of a second apart; four are better.
        input=InputSpec(
            size=128,
            num_frames=4,
            frame_step=3,
            pixel_mean=efficientnet.PIXEL_MEAN,
            pixel_std=efficientnet.PIXEL_STD,
        ),
        is_frozen=True,
    ),
}
"""Every backbone by name."""


def find_backbone(
    name: str, *, frozen: FrozenSpec | None = None, clips: InputSpec | None = None
) -> BackboneSpec:
    """The backbone of that name.

    frozen: describes stored features, or an external network; for a network it is found out by a probe, if
        not given.
    clips: the clips of that probe.
    """
    dim = None if frozen is None else frozen.feature_dim
    if (source := source_of(name)) is not None:
        build = partial(SOURCES[source].open, name, clips or InputSpec(), frozen)
        blocks = None if frozen is None else frozen.blocks
        return BackboneSpec(build=build, feature_dim=dim, is_frozen=True, feature_blocks=blocks)
    if name == FEATURES:
        if frozen is None:
            raise ConfigError(
                "An encoder of stored features needs their number: give frozen=FrozenSpec(feature_dim=...)."
            )
        return BackboneSpec(build=NoBackbone, feature_dim=dim, is_frozen=True, feature_blocks=frozen.blocks)
    if name not in BACKBONES:
        raise ConfigError(
            f"There is no backbone {name!r}. {did_you_mean(name, BACKBONES)} External networks are "
            "named as hf:OWNER/NAME, timm:NAME, ./FOLDER, FILE.onnx or package.module:name."
        )
    if frozen is not None:
        raise ConfigError(f"The backbone {name!r} is built in and needs no FrozenSpec. Leave `frozen` out.")
    return BACKBONES[name]


def made_for(name: str, *, frozen: FrozenSpec | None = None) -> InputSpec:
    """The clips that a backbone expects; for an external network its own files say so."""
    source = source_of(name)
    return find_backbone(name, frozen=frozen).input if source is None else SOURCES[source].made_for(name)


def is_local(name: str) -> bool:
    """Whether a network is a local folder or file."""
    return source_of(name) in (FOLDER, onnx_file.SUFFIX)


def full_name(name: str) -> str:
    """The name, with the whole path of a folder or file, so that it is valid from any folder."""
    if is_local(name):
        return str(Path(name).expanduser().resolve())
    return name


def name_for_features(name: str) -> str:
    """The name under which features of a backbone are cached, beside its hash.

    External networks are identified by their weights only: they may move between folders and the Hub.
    """
    return name if source_of(name) in (None, IMPORT_PATH) else "published"
