"""Backbone and heads: video clips in, distributions out.

    pixels -> backbone -> feature -> heads -> Gaussian of each clip -> mixture of each video
                                 ╰-> evidence: the variance, after the end of a run

A folder written by `save_pretrained` holds `model.safetensors` and `config.json`, which are all that is
needed to use an encoder elsewhere, and a model card. Nothing in it is a pickle.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import torch
from jaxtyping import Float, UInt8
from safetensors.torch import save_file
from torch import Tensor, nn

from provico.defaults import TEST_CLIPS
from provico.errors import ConfigError, OutputExistsError, WeightsError
from provico.models.backbones.changes import with_usual_change
from provico.models.backbones.frozen import FrozenBackbone
from provico.models.backbones.registry import is_import_path, is_outside
from provico.models.card import CARD_NAME, model_card
from provico.models.encoder_config import EncoderConfig
from provico.models.evidence import Evidence
from provico.models.heads import GaussianHead, MatchScale
from provico.models.pixels import PixelNormalisation, shared_frames
from provico.models.recordings import recording_names
from provico.models.weights import load_into, read_weights, weights_hash
from provico.probability.gaussian import Gaussian
from provico.probability.matching import MatchCurve
from provico.probability.mixture import Mixture

if TYPE_CHECKING:
    from provico.data.library import Library
    from provico.embedding.embeddings import VideoEmbedding

WEIGHTS_NAME = "model.safetensors"
CONFIG_NAME = "config.json"


class Encoder(nn.Module):
    """A network from videos, as clips of pixels, to the distribution of each clip and each video."""

    def __init__(self, config: EncoderConfig, *, backbone: nn.Module | None = None) -> None:
        """backbone: the config's backbone, if it is already built; a frozen one can be shared."""
        super().__init__()
        self.normalisation = PixelNormalisation(config.input)
        self.backbone = config.backbone_spec.build() if backbone is None else backbone
        if isinstance(self.backbone, FrozenBackbone):
            config = _with_network(config, self.backbone)
        self.config = config
        spec = config.backbone_spec
        assert spec.feature_dim is not None  # known once a network is built
        self.head = GaussianHead(
            spec.feature_dim,
            config.dim,
            parametrisation=config.scale,
            hidden_dim=config.hidden_dim,
            log_var_hidden_dim=config.log_var_hidden_dim,
            streams=spec.streams,
        )
        self.evidence = (
            None
            if config.num_remembered is None
            else Evidence(
                spec.views,
                config.dim,
                num_videos=config.num_remembered,
                parametrisation=config.scale,
                is_frozen=spec.is_frozen,
            )
        )
        self.match_scale = MatchScale(config.dim, parametrisation=config.scale)

    def forward(
        self,
        videos: UInt8[Tensor, "videos clips time height width 3"]
        | Float[Tensor, "videos clips time height width 3"],
    ) -> Mixture:
        """p(z|V) of each video, with p(z|c) of each of its clips inside.

        Pixels are uint8 as decoded; floats must be normalised already.
        """
        features = self.features(videos.flatten(0, 1))
        return self.from_features(features.view(*videos.shape[:2], -1))

    def features(
        self,
        clips: UInt8[Tensor, "clips time height width 3"] | Float[Tensor, "clips time height width 3"],
    ) -> Float[Tensor, "clips feature"]:
        """The backbone's features of each clip, before the heads.

        A frozen network of single frames processes each frame once, even if several clips share it.
        """
        backbone = self.backbone
        if isinstance(backbone, FrozenBackbone) and self._can_share(clips):
            frames, places = shared_frames(clips)
            return backbone.of_frames(self.normalisation(frames.unsqueeze(1)).squeeze(2), places)
        features: Tensor = backbone(self.normalisation(clips))
        return features

    @property
    def sees_pictures(self) -> bool:
        """Whether the network sees each frame by itself, so that a single picture can be compared."""
        is_able = isinstance(self.backbone, FrozenBackbone) and self.backbone.sees_pictures
        return is_able and not self.config.input.motion

    def of_picture(self, features: Float[Tensor, "*videos feature"]) -> Float[Tensor, "*videos feature"]:
        """Features of a single picture, as if what is usual moved in it."""
        usual = self.head.standardisation.shift.to(features.device)
        return with_usual_change(features, usual, self.config.backbone_spec.views)

    def _can_share(self, clips: Tensor) -> bool:
        """Whether the features of a frame do not depend on its clip, and frames can be compared."""
        if torch.compiler.is_compiling() or clips.dtype != torch.uint8 or not len(clips):
            return False
        return bool(self.backbone.looks_at_frames) and not self.config.input.motion

    def encode_clips(
        self,
        clips: UInt8[Tensor, "clips time height width 3"] | Float[Tensor, "clips time height width 3"],
    ) -> Gaussian:
        """p(z|c) of clips, each treated as a video."""
        alone = self.from_features(self.features(clips).unsqueeze(1)).clips
        return Gaussian(alone.mean.squeeze(1), alone.log_var.squeeze(1))

    def from_features(
        self,
        features: Float[Tensor, "videos clips feature"],
        recordings: Sequence[str | None] | None = None,
    ) -> Mixture:
        """The distributions of videos from stored features.

        recordings: names of the recordings that the videos were cut from. A video is not supported by its own
            recording; if that has no name, near-duplicates count as the same recording.
        """
        clips: Gaussian = self.head(features)
        if self.evidence is None:
            return Mixture(clips)
        names = None if recordings is None else recording_names(recordings).to(features.device)
        log_var = self.evidence(self.head.standardisation(features), clips, names)
        return Mixture(Gaussian(clips.mean, log_var))

    def match_curve(self) -> MatchCurve:
        """The learnt curve from distance to match probability."""
        curve: MatchCurve = self.match_scale()
        return curve

    @overload  # a str is also an iterable of strings, but means one file
    def embed(  # type: ignore[overload-overlap]
        self,
        videos: Path | str,
        *,
        num_clips: int = TEST_CLIPS,
        short_side: int | None = None,
        device: torch.device | str | None = None,
        library: Library | None = None,
    ) -> VideoEmbedding: ...

    @overload
    def embed(
        self,
        videos: Iterable[Path | str],
        *,
        num_clips: int = TEST_CLIPS,
        short_side: int | None = None,
        device: torch.device | str | None = None,
        library: Library | None = None,
    ) -> list[VideoEmbedding]: ...

    def embed(
        self,
        videos: Path | str | Iterable[Path | str],
        *,
        num_clips: int = TEST_CLIPS,
        short_side: int | None = None,
        device: torch.device | str | None = None,
        library: Library | None = None,
    ) -> VideoEmbedding | list[VideoEmbedding]:
        """The distribution of a video file, or a list with that of each of several files.

        A video is represented by the centre crops of evenly spaced clips; an unreadable one is an error. For
        many videos, `provico.embedding.driver.embed` is faster and skips broken ones.
        short_side: pixels of the shorter side of a frame before the crop; fits the encoder if not given.
        device: where the network runs; its current device if not given.
        library: the cache of facts about video files; the user's own if not given.
        """
        # The one import that points upwards: networks do not depend on files, but users expect this method
        # here.
        from provico.embedding.driver import embed_video

        if isinstance(videos, str | Path):
            return embed_video(
                self, videos, num_clips=num_clips, short_side=short_side, device=device, library=library
            )
        return [
            embed_video(
                self, path, num_clips=num_clips, short_side=short_side, device=device, library=library
            )
            for path in videos
        ]

    def save_pretrained(self, folder: Path, *, place: str | None = None) -> None:
        """Write weights, settings and a model card into a new or empty folder.

        A frozen backbone is not written, only its name, from which it is loaded again, and its hash, by which
        a different one is refused.

        place: its public name for the card, such as hf:OWNER/NAME.
        """
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise OutputExistsError(
                f"{folder} exists already and is not empty. Choose another folder, or remove it."
            )
        folder.mkdir(parents=True, exist_ok=True)
        weights = {key: value.contiguous() for key, value in self.own_state_dict().items()}
        own = encoder_hash(self)
        said = {
            "version": version("provico"),
            "backbone": self.config.backbone,
            "network_hash": self.config.network_hash,
            "encoder_hash": own,
        }
        # In one entry: several would be written in random order, and equal encoders must be equal files.
        save_file(weights, folder / WEIGHTS_NAME, metadata={"provico": json.dumps(said)})
        card = model_card(self.config, encoder_hash=own, place=place)
        (folder / CARD_NAME).write_text(card, encoding="utf-8")
        # Last, so that a folder with a config is complete.
        (folder / CONFIG_NAME).write_text(self.config.to_json(), encoding="utf-8")

    @classmethod
    def from_pretrained(cls, folder: Path, *, allow_import: bool = False) -> Encoder:
        """Load a saved encoder, in evaluation mode.

        `allow_import` lets the config name a network by import path. Its code is then run, so allow it only
        for folders that you trust.
        """
        config, weights = read_encoder(folder)
        return cls.restored(config, weights, source=folder, allow_import=allow_import)

    @classmethod
    def restored(
        cls, config: EncoderConfig, weights: dict[str, Tensor], *, source: Path, allow_import: bool = False
    ) -> Encoder:
        """The encoder with these settings and weights, in evaluation mode; errors name `source`."""
        if is_import_path(config.backbone) and not allow_import:
            raise ConfigError(
                f"The encoder in {source} wants to import and run {config.backbone!r} as its backbone. "
                "If you trust it, use allow_import=True or --allow-import."
            )
        _check_sizes(config, weights, source)
        encoder = cls(dataclasses.replace(config, network_hash=None))
        check_network(config, encoder.config, what=f"The encoder in {source}")
        encoder.load_own_state_dict(weights, source=source)
        return encoder.eval()

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.match_scale.b.device

    def own_state_dict(self) -> dict[str, Tensor]:
        """The encoder's own weights: all except those of a frozen backbone."""
        frozen = self.config.backbone_spec.is_frozen
        return {key: value for key, value in self.state_dict().items() if not (frozen and _is_backbone(key))}

    def load_own_state_dict(self, weights: dict[str, Tensor], *, source: Path | str = "the state") -> None:
        """Load such weights; `source` is named in the error if they do not fit."""
        if self.config.backbone_spec.is_frozen:
            weights = weights | {key: value for key, value in self.state_dict().items() if _is_backbone(key)}
        load_into(self, weights, source=source)


def _check_sizes(config: EncoderConfig, weights: dict[str, Tensor], source: Path) -> None:
    """Refuse settings that do not match the weights, before allocating a network of that size."""
    sizes = {size for value in weights.values() for size in value.shape}
    dim = config.dim // config.backbone_spec.num_streams
    wanted = {"dim": dim} | {
        name: getattr(config, name) for name in ("hidden_dim", "log_var_hidden_dim", "num_remembered")
    }
    for name, size in wanted.items():
        if size is not None and size not in sizes:
            raise WeightsError(
                f"The settings of {source} say that {name} is {getattr(config, name)}, but its weights have "
                "another size, so one of the two was changed. Copy the encoder again."
            )


def read_encoder(folder: Path) -> tuple[EncoderConfig, dict[str, Tensor]]:
    """The settings and the own weights of a saved encoder."""
    path = folder / CONFIG_NAME
    if not path.is_file():
        raise WeightsError(f"{folder} has no {CONFIG_NAME}, so it is not a completely saved encoder.")
    text = path.read_text(encoding="utf-8", errors="replace")
    return EncoderConfig.from_json(text), read_weights(folder / WEIGHTS_NAME)


def encoder_hash(encoder: Encoder) -> str:
    """A hash of sixteen hex digits, equal for equal settings and weights.

    Reports, files of embeddings and indexes store it. A frozen backbone enters by its own hash.
    """
    settings = json.dumps(_said(encoder.config), sort_keys=True)
    return hashlib.sha256(f"{settings} {weights_hash(encoder.own_state_dict())}".encode()).hexdigest()[:16]


def check_network(made_with: EncoderConfig, found: EncoderConfig, *, what: str) -> None:
    """Refuse heads that were trained on another frozen network; `what` is named in the error."""
    if made_with.network_hash == found.network_hash:
        return
    if made_with.network_hash is not None:
        raise WeightsError(
            f"{what} was made with the network {made_with.backbone} of hash {made_with.network_hash}, but "
            f"{found.backbone} now has the hash {found.network_hash}: its weights or its code have changed. "
            "Restore the former weights (if they are random, load fixed ones), or run `provico pretrain` "
            "with the present ones, and then `provico embed` or `provico index` again."
        )
    # Our own frozen networks come with their weights, in a package of one version.
    if is_outside(made_with.backbone):
        raise WeightsError(
            f"{what} does not say which weights of {made_with.backbone} it was made with: provico 0.1.0 did "
            f"not store that. Pretrain again: provico pretrain VIDEOS --backbone {made_with.backbone}"
        )


def _with_network(config: EncoderConfig, backbone: FrozenBackbone) -> EncoderConfig:
    """The settings, completed by what the built frozen network revealed."""
    frozen = backbone.spec if is_outside(config.backbone) else None
    found = dataclasses.replace(config, frozen=frozen, network_hash=backbone.hash)
    if config.network_hash is not None:
        check_network(config, found, what="The encoder")
    return found


def _said(settings: Any) -> dict[str, Any]:
    """The settings that differ from their defaults, so that a new setting changes no encoder's hash."""
    values = {
        field.name: (getattr(settings, field.name), field.default) for field in dataclasses.fields(settings)
    }
    return {
        name: _said(value) if dataclasses.is_dataclass(value) else value
        for name, (value, default) in values.items()
        if value != default
    }


def _is_backbone(key: str) -> bool:
    return key.startswith("backbone.")
