"""All that is needed to build an encoder again: what config.json beside its weights holds."""

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
"""More than anybody needs, and less than what would take all memory."""


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The settings of an encoder. `EncoderConfig.for_backbone` fills in the clips a backbone was made for."""

    backbone: str
    """A name of `BACKBONES`, a network from elsewhere (`SOURCES`), or `features`."""

    input: InputSpec
    """The clips it is trained on and wants to be given."""

    dim: int = DIM
    """D, the number of embedding coordinates."""

    parametrisation: str = PARAMETRISATION
    """The units of the embedding, a name of `PARAMETRISATIONS`."""

    hidden_dim: int | None = None
    """Width of a hidden layer in each head; without one they are single layers, as in the paper."""

    log_var_hidden_dim: int | None = None
    """Width of the hidden layer of the log-variance head alone; as `hidden_dim` if not given."""

    num_remembered: int | None = None
    """Videos in the memory that the variance rests on (`Evidence`); without one it is that of the head."""

    frozen: FrozenSpec | None = None
    """What must be known of a network from elsewhere, or of stored features; of the former an encoder finds
    it out when it is built, if not given."""

    network_hash: str | None = None
    """Tells frozen networks apart by weights and code. An encoder fills it in and refuses another network."""

    untrained_on: int | None = None
    """Videos whose principal axes the heads are, where nothing was trained: 0 if they pass features on as
    they are, None if they were trained."""

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
                f"motion is on, but {self.backbone} sees motion and scenery side by side. Leave it out."
            )
        if num_streams > 1 and self.input.num_frames < 2:
            raise ConfigError(
                f"num_frames is {self.input.num_frames}, but {self.backbone} sees differences of frames: "
                "give at least 2."
            )
        if self.dim % num_streams:
            raise ConfigError(
                f"dim is {self.dim}, but {self.backbone} shares it evenly among {num_streams} networks. "
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
        """The settings for a backbone, with the clips it was made for unless others are given."""
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
        """How to build the backbone, and what it gives."""
        return find_backbone(self.backbone, frozen=self.frozen, clips=self.input)

    @property
    def training(self) -> str | None:
        """That nothing was trained, in words; None if something was."""
        if self.untrained_on is None:
            return None
        if self.untrained_on == 0:
            return "not trained: features as they are, one variance for all"
        return f"not trained: principal axes of {self.untrained_on:,} videos"

    @property
    def scale(self) -> Parametrisation:
        """The parametrisation itself."""
        return PARAMETRISATIONS[self.parametrisation]

    @property
    def short_side(self) -> int:
        """The frame size that goes with the crop: 128 for 112 pixels, and the same ratio for others.

        Frozen image networks see the whole height of a frame, as they did when they were trained.
        """
        size = self.input.size
        if self.input.short_side is not None:
            return self.input.short_side
        return size if self.backbone_spec.is_frozen else size * SHORT_SIDE // CROP_SIZE

    def to_json(self) -> str:
        """As text that `from_json` reads."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> EncoderConfig:
        """The settings in such a text; what it does not know it refuses."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"The encoder's config is not JSON: {error}.") from error
        if not isinstance(values, dict):
            raise ConfigError(
                f"The encoder's config is a {type(values).__name__}, but settings by name are needed."
            )
        values = dict(values)
        if values.pop("num_landmarks", None) is not None:
            raise ConfigError(
                "The encoder's variance rests on landmarks, which provico 0.1.0 had. Run `provico pretrain` "
                "again."
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
