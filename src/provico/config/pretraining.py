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
    """r3d18, r2plus1d18, r3d50, tiny, efficientnet_motion, another of BACKBONES; or an external network:
    hf:OWNER/NAME, timm:NAME, a folder of either, FILE.onnx or package.module:name."""
    dim: int = DIM
    """D, the dimension of the embedding."""
    hidden_dim: int | None = None
    """Width of a hidden layer in each head; by default a head is a single layer, as in the paper."""
    log_var_hidden_dim: int | None = None
    """Width of a hidden layer in the variance head only."""
    parametrisation: str = PARAMETRISATION
    """The units of the embedding: sqrt_dim, long or wide."""
    num_frames: int | None = None
    """Frames of a clip; the backbone's own number if not given."""
    frame_step: int | None = None
    """Frame stride; the backbone's own if not given."""
    size: int | None = None
    """Input size of the network in pixels; the backbone's own if not given."""
    motion: bool | None = None
    """Feed the network differences of frames instead of frames; as the backbone expects if not given."""


@dataclass(frozen=True, kw_only=True)
class ViewSettings:
    """The clips of a video in one training step."""

    num_clips: int = 2
    """N, the clips of a video in a step."""
    augmentation: str = "crop"
    """none; crop, as in the paper; shift, which crops each clip separately; shift_colour, which also jitters
    colours and blurs; contrastive, which also varies the scale; or another of AUGMENTATIONS."""
    num_stored: int | None = None
    """With a frozen network: the clips per video whose features are stored, from which steps draw."""
    store: str = "none"
    """Prepare all frames before training, as `provico prepare` does: jpeg, raw, mp4 or another of STORES;
    none reads the videos."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveSettings:
    """The training objective."""

    method: str = "provico"
    """provico (as in the paper), provico-frozen, provico-scratch, provico-streams, the deterministic baseline
    infonce, or another of OBJECTIVES."""
    num_samples: int = NUM_SAMPLES
    """K, the number of samples drawn per video."""
    kl_weight: float = 1e-4
    """beta, the weight of KL(p(z|V) || N(0, I))."""
    mean_contrast: float = 0.0
    """Weight of an additional InfoNCE loss on clip means, with the same positive pairs."""
    temperature: float = 0.1
    """Temperature of InfoNCE."""


@dataclass(frozen=True, kw_only=True)
class MiningSettings:
    """Which pairs of different videos count as positive, and from which epoch."""

    mine_from: int | None = 30
    """The first epoch of the second stage; None turns mining off."""
    distance: str = "bhattacharyya_expected"
    """A name of DISTANCES."""
    threshold: float | Literal["adaptive"] | None = 0.15
    """tau; adaptive uses the mean self-distance, None leaves the choice to --mutual-top alone."""
    mutual_top: int | None = 3
    """Keep a pair only if each is among this many nearest neighbours of the other; None: off."""
    among: Literal["batch", "all", "views"] = "batch"
    """Where nearest neighbours are counted: batch, within the batch; all, among the latest embeddings of all
    videos; views, once among all videos, in two views of a frozen network that must agree."""


@dataclass(frozen=True, kw_only=True)
class OptimiserSettings:
    """Adam with linear warm-up and cosine decay."""

    epochs: int = 200
    max_steps: int | None = None
    """Stop after this many steps, if that is earlier."""
    batch_size: int = 96
    """Videos per step, over all processes; all videos if there are fewer."""
    learning_rate: float = 1e-3
    """Peak learning rate, at the end of the warm-up. The paper states only where the warm-up starts."""
    warmup_epochs: float = 20
    warmup_from: float = 1e-4
    """Initial learning rate of the warm-up."""
    weight_decay: float = 0.0
    """Decoupled (AdamW); not applied to biases, norms and the match curve."""
    num_parts: int = 1
    """Encode the batch in this many parts to save memory. The pairs remain those of the whole batch."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """How the run is executed. Of these settings, only the seed and the precision affect the result."""

    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Precision of the backbone; heads and loss always use float32."""
    num_workers: int | None = None
    """Processes that read clips; chosen for the machine if not given."""
    log_every: int = 10
    """Steps between two lines of metrics.jsonl."""
    checkpoint_every: int = 200
    """Steps between two checkpoints; the end of the run and a signal also write one."""
    on_unhealthy: Literal["stop", "rewind"] = "stop"
    """If training collapses: stop, or rewind to the last checkpoint and halve the learning rate."""
    max_broken_share: float = MAX_BROKEN_SHARE
    """Stop if more than this share of the videos is unreadable."""


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """All settings of a pretraining run except its videos. `provico.recipes` has named ones."""

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
        """The settings in such a dict; an unknown name is an error that names the nearest."""
        _check_known(values, _GROUPS, where="")
        built: dict[str, Any] = {}
        for name, kind in _GROUPS.items():
            given = values.get(name, {})
            _check_known(given, [field.name for field in dataclasses.fields(kind)], where=f"{name}.")
            built[name] = kind(**given)
        return cls(**built)

    def differences(self, other: PretrainConfig) -> dict[str, tuple[Any, Any]]:
        """The settings in which two configurations differ, as `group.name`, with both values."""
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
    """The settings stored with a run."""
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
            f"The settings {where or 'of a run'} are {given!r}, but a mapping of names to values is needed."
        )
    for name in given:
        if name not in known:
            hint = did_you_mean(str(name), known, prefix=where)
            raise ConfigError(f"There is no setting {where}{name}. {hint}")


def flag(name: str) -> str:
    """A setting's name as a command-line flag."""
    return "--" + name.rpartition(".")[2].replace("_", "-")


def _check_values(config: PretrainConfig) -> None:
    """Raise ConfigError if a value has the wrong type or is not one of the allowed words."""
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
    """Raise ConfigError for settings that cannot work, before any video is read."""
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
