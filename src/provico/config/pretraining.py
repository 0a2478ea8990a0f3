"""Every setting of a pretraining run on one page."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from provico.defaults import DIM, MAX_BROKEN_SHARE, NUM_SAMPLES, PARAMETRISATION
from provico.errors import ConfigError, did_you_mean


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The encoder."""

    backbone: str = "r3d18"
    """r3d18, r2plus1d18, r3d50, tiny, efficientnet_motion, another of BACKBONES; or a network from elsewhere:
    hf:OWNER/NAME, timm:NAME, a folder of either, FILE.onnx or package.module:name."""
    dim: int = DIM
    """D, the coordinates of an embedding."""
    hidden_dim: int | None = None
    """Width of a hidden layer in each head; without one they are single layers, as in the paper."""
    log_var_hidden_dim: int | None = None
    """Width of a hidden layer in the head of the variance alone."""
    parametrisation: str = PARAMETRISATION
    """The units of the embedding: sqrt_dim, long or wide."""
    num_frames: int | None = None
    """Frames of a clip; as the backbone was made for if not given."""
    frame_step: int | None = None
    """Frame stride; as the backbone was made for if not given."""
    size: int | None = None
    """Pixels of the square the network sees; as the backbone was made for if not given."""
    motion: bool | None = None
    """Whether the network sees differences of frames instead of frames; as its backbone if not given."""


@dataclass(frozen=True, kw_only=True)
class ViewSettings:
    """The clips of a video that one step sees."""

    num_clips: int = 2
    """N, the clips of a video in a step."""
    augmentation: str = "crop"
    """none; crop, the paper's; shift, which crops each clip by itself; shift_colour, which also changes
    colours and blurs; contrastive, which changes the size too; or another of AUGMENTATIONS."""
    num_stored: int | None = None
    """With a frozen network: clips of each video whose features are stored; a step draws from them."""
    store: str = "none"
    """Prepare all frames before training, as `provico prepare` does: jpeg, raw, mp4 or another of STORES;
    none reads the videos."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveSettings:
    """What is learnt."""

    method: str = "provico"
    """provico (as in the paper), provico-frozen, provico-scratch, provico-streams, the deterministic baseline
    infonce, or another of OBJECTIVES."""
    num_samples: int = NUM_SAMPLES
    """K, the samples drawn of each video."""
    kl_weight: float = 1e-4
    """beta, the weight of KL(p(z|V) || N(0, I))."""
    mean_contrast: float = 0.0
    """Weight of the contrast of clip means (InfoNCE), with the same positives, beside the loss."""
    temperature: float = 0.1
    """Temperature of InfoNCE."""


@dataclass(frozen=True, kw_only=True)
class MiningSettings:
    """Which pairs of different videos count as positive, and from when on."""

    mine_from: int | None = 30
    """The first epoch of the second stage; None never mines."""
    distance: str = "bhattacharyya_expected"
    """A name of DISTANCES."""
    threshold: float | Literal["adaptive"] | None = 0.15
    """tau; adaptive takes the mean self-distance, None leaves the choice to the guard below."""
    mutual_top: int | None = 3
    """Guard: each video of a pair must be among this many nearest of the other; None turns it off."""
    among: Literal["batch", "all", "views"] = "batch"
    """Where these nearest are counted: in the batch, or among all videos as they were last seen. views: among
    all videos, once, in two views of a frozen network, which must agree."""


@dataclass(frozen=True, kw_only=True)
class OptimiserSettings:
    """Adam, warm-up, half a period of cosine."""

    epochs: int = 200
    max_steps: int | None = None
    """The schedule ends after this many steps if that is sooner."""
    batch_size: int = 96
    """Videos in a step, over all processes; all there are if they are fewer."""
    learning_rate: float = 1e-3
    """The peak, reached at the end of the warm-up. The paper gives only where the warm-up starts."""
    warmup_epochs: float = 20
    warmup_from: float = 1e-4
    """The learning rate at the very start."""
    weight_decay: float = 0.0
    """Decoupled (AdamW); biases, norms and the match curve are spared."""
    num_parts: int = 1
    """Encode the batch in this many parts to save memory. The pairs remain those of the whole batch."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """How the run is run. Nothing here but the seed and the precision changes what is learnt."""

    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Of the backbone; heads and loss are always computed in float32."""
    num_workers: int | None = None
    """Processes that read clips; what suits the machine if not given."""
    log_every: int = 10
    """Steps between two lines of metrics.jsonl."""
    checkpoint_every: int = 200
    """Steps between two checkpoints; the end of the run and a signal write one too."""
    on_unhealthy: Literal["stop", "rewind"] = "stop"
    """When a run collapses: stop, or go back to the last checkpoint at half the learning rate."""
    max_broken_share: float = MAX_BROKEN_SHARE
    """More unreadable videos than this share end the run."""


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """All that decides a pretraining run, besides the videos. `provico.recipes` has named ones."""

    model: ModelSettings = ModelSettings()
    views: ViewSettings = ViewSettings()
    objective: ObjectiveSettings = ObjectiveSettings()
    mining: MiningSettings = MiningSettings()
    optimiser: OptimiserSettings = OptimiserSettings()
    run: RunSettings = RunSettings()

    def __post_init__(self) -> None:
        _check_values(self)
        _check_pretraining(self)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """As plain values, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PretrainConfig:
        """The settings in such a dict; what it does not know it refuses, with the nearest name."""
        _check_known(values, _GROUPS, where="")
        built: dict[str, Any] = {}
        for name, kind in _GROUPS.items():
            given = values.get(name, {})
            _check_known(given, [field.name for field in dataclasses.fields(kind)], where=f"{name}.")
            built[name] = kind(**given)
        return cls(**built)

    def differences(self, other: PretrainConfig) -> dict[str, tuple[Any, Any]]:
        """The settings, as `group.name`, in which two configurations differ, with both values."""
        theirs = dict(_flat(other))
        return {name: (mine, theirs[name]) for name, mine in _flat(self) if mine != theirs[name]}


_GROUPS: dict[str, type[Any]] = {
    "model": ModelSettings,
    "views": ViewSettings,
    "objective": ObjectiveSettings,
    "mining": MiningSettings,
    "optimiser": OptimiserSettings,
    "run": RunSettings,
}


def read_config(path: Path) -> PretrainConfig:
    """The settings that a run wrote down."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as the settings of a run: {error}.") from error
    return PretrainConfig.from_dict(values)


def _flat(config: PretrainConfig) -> Iterator[tuple[str, Any]]:
    for group, values in config.to_dict().items():
        for name, value in values.items():
            yield f"{group}.{name}", value


def _check_known(given: Any, known: Any, *, where: str) -> None:
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"The settings {where or 'of a run'} are {given!r}, but names and values are needed."
        )
    for name in given:
        if name not in known:
            hint = did_you_mean(str(name), known, prefix=where)
            raise ConfigError(f"There is no setting {where}{name}. {hint}")


def flag(name: str) -> str:
    """A setting as the command line takes it."""
    return "--" + name.rpartition(".")[2].replace("_", "-")


def _check_values(config: PretrainConfig) -> None:
    """Refuse a value that is not of its field's type, or not one of the words that it knows."""
    for group, kind in _GROUPS.items():
        hints = get_type_hints(kind)
        for name, value in vars(getattr(config, group)).items():
            if not _fits(value, hints[name]):
                raise ConfigError(f"{flag(name)} is {value!r}, but it must be {_in_words(hints[name])}.")


def _in_words(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(get_args(hint))
    if get_args(hint):
        return " or ".join(_in_words(part) for part in get_args(hint))
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a name"}
    return words.get(hint, "none")


def _fits(value: object, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_args(hint):
        return any(_fits(value, part) for part in get_args(hint))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))


def _check_pretraining(config: PretrainConfig) -> None:
    """Refuse what cannot work, before any video is read."""
    views, objective, mining = config.views, config.objective, config.mining
    at_least_one = {
        "num_clips": views.num_clips,
        "num_samples": objective.num_samples,
        "epochs": config.optimiser.epochs,
        "num_parts": config.optimiser.num_parts,
        "log_every": config.run.log_every,
        "checkpoint_every": config.run.checkpoint_every,
    }
    for name, value in at_least_one.items():
        if value < 1:
            raise ConfigError(f"{flag(name)} is {value}, but it must be at least 1.")
    if config.optimiser.batch_size < 2:
        raise ConfigError(
            f"--batch-size is {config.optimiser.batch_size}, but a contrast needs at least 2 videos."
        )
    if config.optimiser.learning_rate <= 0:
        raise ConfigError(f"--learning-rate is {config.optimiser.learning_rate}, but it must be positive.")
    if objective.mean_contrast and views.num_clips < 2:
        raise ConfigError(f"--mean-contrast compares clips, but --num-clips is {views.num_clips}.")
    if mining.among != "batch" and (mining.mutual_top is None or mining.threshold == "adaptive"):
        raise ConfigError(
            f"--among {mining.among} needs --mutual-top and a fixed --threshold, but --mutual-top is "
            f"{mining.mutual_top} and --threshold is {mining.threshold}. Change them, or use --among batch."
        )
    if views.num_stored is not None and views.num_stored < views.num_clips:
        raise ConfigError(
            f"--num-stored is {views.num_stored}, fewer than --num-clips {views.num_clips}: a step draws its "
            "clips from the stored ones."
        )
