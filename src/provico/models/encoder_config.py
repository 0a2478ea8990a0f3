"""The settings from which an encoder is rebuilt, stored as config.json beside its weights."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, get_type_hints

from provico.defaults import CROP_SIZE, DIM, PARAMETRISATION, SHORT_SIDE
from provico.errors import ConfigError, did_you_mean
from provico.models.backbones.frozen import FrozenSpec
from provico.models.backbones.registry import BackboneSpec, find_backbone, full_name, made_for
from provico.models.pixels import InputSpec
from provico.probability.scale import PARAMETRISATIONS, Parametrisation
from provico.typed_json import typed

_MOST = {"dim": 2**16, "hidden_dim": 2**16, "log_var_hidden_dim": 2**16, "num_remembered": 2**24}
"""Upper limits that exceed any use but do not exhaust the memory."""


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The settings of an encoder. `EncoderConfig.for_backbone` fills in the clips that a backbone expects."""

    backbone: str
    """A name of `BACKBONES`, an external network (`SOURCES`), or `features`."""

    input: InputSpec
    """The clips that it is trained on and expects."""

    dim: int = DIM
    """D, the dimension of the embedding."""

    parametrisation: str = PARAMETRISATION
    """The units of the embedding, a name of `PARAMETRISATIONS`."""

    hidden_dim: int | None = None
    """Width of a hidden layer in each head; by default a head is a single layer, as in the paper."""

    log_var_hidden_dim: int | None = None
    """Width of the hidden layer of the log-variance head only; as `hidden_dim` if not given."""

    num_remembered: int | None = None
    """Videos in the memory from which the variance is computed (`Evidence`); else the head predicts it."""

    frozen: FrozenSpec | None = None
    """Facts about an external network, or about stored features. For a network, an encoder finds them out
    when it is built, if not given."""

    network_hash: str | None = None
    """Hash of a frozen network's weights and code. An encoder fills it in and refuses other networks."""

    untrained_on: int | None = None
    """Without training: the number of videos whose principal axes are the heads, or 0 if the features are
    used as they are. None if the heads were trained."""

    def __post_init__(self) -> None:
        find_backbone(self.backbone, frozen=self.frozen)
        _check_known(self.parametrisation, PARAMETRISATIONS, "parametrisation")
        for name, most in _MOST.items():
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}, but it must be at least 1.")
            if value is not None and value > most:
                raise ConfigError(f"{name} is {value}, but it must be at most {most}.")
        num_streams = self.backbone_spec.num_streams
        if num_streams > 1 and self.input.motion:
            raise ConfigError(
                f"motion is on, but {self.backbone} has separate networks for motion and scenery. Leave it "
                "out."
            )
        if num_streams > 1 and self.input.num_frames < 2:
            raise ConfigError(
                f"num_frames is {self.input.num_frames}, but {self.backbone} takes differences of frames and "
                "needs at least 2."
            )
        if self.dim % num_streams:
            raise ConfigError(
                f"dim is {self.dim}, but {self.backbone} divides it evenly among {num_streams} networks. "
                f"Give a multiple of {num_streams}."
            )

    @classmethod
    def for_backbone(
        cls,
        backbone: str,
        *,
        dim: int = DIM,
        parametrisation: str = PARAMETRISATION,
        hidden_dim: int | None = None,
        log_var_hidden_dim: int | None = None,
        input: InputSpec | None = None,
        frozen: FrozenSpec | None = None,
    ) -> EncoderConfig:
        """The settings for a backbone, with the clips that it expects unless others are given."""
        return cls(
            backbone=full_name(backbone),
            input=input or made_for(backbone, frozen=frozen),
            dim=dim,
            parametrisation=parametrisation,
            hidden_dim=hidden_dim,
            log_var_hidden_dim=log_var_hidden_dim,
            frozen=frozen,
        )

    @property
    def backbone_spec(self) -> BackboneSpec:
        """How to build the backbone, and its output."""
        return find_backbone(self.backbone, frozen=self.frozen, clips=self.input)

    @property
    def training(self) -> str | None:
        """A sentence that says that nothing was trained; None if the encoder was trained."""
        if self.untrained_on is None:
            return None
        if self.untrained_on == 0:
            return "not trained: features as they are, one variance for all"
        return f"not trained: principal axes of {self.untrained_on:,} videos"

    @property
    def scale(self) -> Parametrisation:
        """The parametrisation."""
        return PARAMETRISATIONS[self.parametrisation]

    @property
    def short_side(self) -> int:
        """The short side of frames before the crop: 128 for a crop of 112 pixels, otherwise in proportion.

        Frozen image networks use the whole height of a frame, as in their training.
        """
        size = self.input.size
        if self.input.short_side is not None:
            return self.input.short_side
        return size if self.backbone_spec.is_frozen else size * SHORT_SIDE // CROP_SIZE

    def to_json(self) -> str:
        """JSON text for `from_json`."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> EncoderConfig:
        """The settings in such a text; unknown names are refused."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"The encoder's config is not JSON: {error}.") from error
        if not isinstance(values, dict):
            raise ConfigError(
                f"The encoder's config is a {type(values).__name__}, but a mapping of names to values is "
                "needed."
            )
        values = dict(values)
        if values.pop("num_landmarks", None) is not None:
            raise ConfigError(
                "The encoder's variance is computed from landmarks, as in provico 0.1.0, which is no longer "
                "supported. Run `provico pretrain` again."
            )
        for name, kind in (("input", InputSpec), ("frozen", FrozenSpec)):
            if isinstance(values.get(name), dict):
                values[name] = _build(kind, values[name], where=f"{name}.")
        config: EncoderConfig = _build(cls, values, where="")
        return config


def _build(kind: type[Any], values: dict[str, Any], *, where: str) -> Any:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name in values:
        _check_known(name, fields, "setting", where=where)
    missing = [
        name for name, field in fields.items() if name not in values and field.default is dataclasses.MISSING
    ]
    if missing:
        raise ConfigError(f"The encoder's config lacks the setting {where}{missing[0]}.")
    hints = get_type_hints(kind)
    try:
        return kind(**{name: typed(hints[name], value, f"{where}{name}") for name, value in values.items()})
    except (TypeError, ValueError) as error:
        raise ConfigError(f"The encoder's config cannot be used: {error}.") from error


def _check_known(name: str, known: dict[str, Any], what: str, *, where: str = "") -> None:
    if name in known:
        return
    raise ConfigError(f"There is no {what} {where}{name}. {did_you_mean(name, known, prefix=where)}")
