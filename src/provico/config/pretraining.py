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
    """r3d18, r2plus1d18, r3d50, tiny, efficientnet_motion, another of BACKBONES, or an import path."""
    dim: int = DIM
    """D, the coordinates of an embedding."""
    hidden_dim: int | None = None
    """Width of a hidden layer in each head; without one they are single layers, as in the paper."""
    log_var_hidden_dim: int | None = None
    """The same for the head of the variance alone."""
    num_landmarks: int | None = None
    """On a frozen network: the head of the variance sees only how far a clip is from this many landmarks."""
    parametrisation: str = PARAMETRISATION
    """The units of the embedding: sqrt_dim, long, wide, rms, pcme or paper_literal."""
    start: Literal["random", "principal"] = "random"
    """How the head of the mean starts; on a frozen network it can start at the features' principal axes."""
    num_frames: int | None = None
    """Frames of a clip; as the backbone was made for if not given."""
    frame_step: int | None = None
    """Every how many frames of the video one is taken; as the backbone was made for if not given."""
    size: int | None = None
    """Pixels of the square the network sees; as the backbone was made for if not given."""
    motion: bool | None = None
    """Whether the network sees differences of frames instead of frames; as its backbone if not given."""
    feature_dim: int | None = None
    """How many features a network that is named by import path gives."""


@dataclass(frozen=True, kw_only=True)
class ViewSettings:
    """The clips of a video that one step sees."""

    num_clips: int = 2
    """N, the clips of a video in a step."""
    augmentation: Literal["none", "crop", "shift", "shift_colour", "contrastive"] = "crop"
    """crop is the paper's; shift crops each clip by itself; shift_colour also changes colours and blurs;
    contrastive changes the size too."""
    short_side: int | None = None
    """Pixels of a frame's shorter side before it is cropped; 8/7 of the crop if not given."""
    num_stored: int | None = None
    """With a frozen network: clips of each video whose features are stored; a step draws from them."""
    store: Literal["none", "jpeg", "raw", "mp4"] = "none"
    """Prepare all frames in this form before training, as `provico prepare` does; none reads the videos."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveSettings:
    """What is learnt."""

    method: Literal["provico", "infonce"] = "provico"
    """provico, or the deterministic baseline infonce."""
    num_samples: int = NUM_SAMPLES
    """K, the samples drawn of each video."""
    samples_from: Literal["moments", "clips"] = "moments"
    """Samples of the video's moment-matched Gaussian (the paper), or of its clips' own Gaussians."""
    self_pairs: Literal["drop", "keep", "independent", "across_clips"] = "drop"
    """Which sample pairs score a video against itself; across_clips needs samples of clips."""
    reduction: Literal["mean", "sum", "balanced", "rows"] = "mean"
    """How pairs are averaged; balanced gives positives and negatives the same weight, rows for each video."""
    hardness: float = 0.0
    """With rows: how much more the negatives count that look like matches; 0 counts all alike."""
    kl_weight: float = 1e-4
    """beta, the weight of KL(p(z|V) || N(0, I))."""
    kl_of: Literal["moment", "clip"] = "moment"
    """KL of the video's moment-matched Gaussian, or the mean over its clips."""
    kl_mean_term: bool = True
    """Whether the KL term also pulls at the means."""
    detach_weight: bool = False
    """Whether the certainty weight has no gradient."""
    uncertainty_from: Literal["all_pairs", "positives"] = "all_pairs"
    """Which pairs a video's uncertainty learns from."""
    mean_contrast: float = 0.0
    """Weight of the deterministic contrast of clip means, with the same positives, beside the loss."""
    temperature: float = 0.1
    """Of the deterministic contrast."""
    to_find: Literal["any", "each"] = "any"
    """Of mined positives the contrast of means pulls at the nearest, or at each."""


@dataclass(frozen=True, kw_only=True)
class MiningSettings:
    """Which pairs of different videos count as positive, and from when on."""

    mine_from: int | None = 30
    """The first epoch of the second stage; None never mines."""
    pairs_of: Literal["near", "class"] = "near"
    """Which videos are mined: those near each other. For studies, class *learns from labels* which are alike,
    and shows what perfect mining would give."""
    distance: str = "bhattacharyya_expected"
    """A name of DISTANCES."""
    threshold: float | Literal["adaptive"] | None = 0.15
    """tau; adaptive takes the mean self-distance, None leaves the choice to the guards below."""
    threshold_ramp: int = 0
    """Epochs over which the threshold rises to its full value."""
    mutual_top: int | None = 3
    """Guard: each video of a pair must be among this many nearest of the other; None turns it off."""
    among: Literal["batch", "all"] = "batch"
    """Where these nearest are counted: in the batch, or among all videos as they were last seen."""
    always_top: int | None = None
    """A pair passes the guard above if one video is among this many nearest of the other."""
    max_share: float | None = 0.2
    """Guard: at most this share of all pairs is mined; None turns it off."""


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
    curve_factor: float = 10.0
    """The match curve learns this many times as fast: Adam moves a scalar by one rate a step at most."""
    log_var_factor: float = 1.0
    """The head of the variance learns this many times as fast."""
    clip_norm: float | None = 2.0
    """Gradients are cut to this norm; None leaves them."""
    num_parts: int = 1
    """Encode the batch in this many parts to save memory. The pairs remain those of the whole batch."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """How the run is run. Nothing here but the seed and the precision changes what is learnt."""

    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Of the backbone; heads and loss are always computed in float32."""
    compile: bool = False
    """Let torch.compile optimise the backbone."""
    num_workers: int | None = None
    """Processes that read clips; what suits the machine if not given."""
    log_every: int = 10
    """Steps between two lines of metrics.jsonl."""
    checkpoint_every: int = 200
    """Steps between two checkpoints; the end of the run and a signal write one too."""
    keep_checkpoints: int = 2
    """How many of the newest checkpoints stay."""
    on_unhealthy: Literal["stop", "rewind"] = "stop"
    """When a run collapses: stop, or go back to the last checkpoint at half the learning rate."""
    max_broken_share: float = MAX_BROKEN_SHARE
    """More unreadable videos than this share end the run."""
    tensorboard: bool = False
    """Also write events for TensorBoard."""


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


def _check_values(config: PretrainConfig) -> None:
    """Refuse a value that is not of its field's type, or not one of the words that it knows."""
    for group, kind in _GROUPS.items():
        hints = get_type_hints(kind)
        for name, value in vars(getattr(config, group)).items():
            if not _fits(value, hints[name]):
                words = [repr(choice) for choice in get_args(hints[name])]
                needed = " or ".join(words) if words else hints[name].__name__
                raise ConfigError(f"{group}.{name} is {value!r}, but it must be {needed}.")


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
    at_least_one = {
        "views.num_clips": config.views.num_clips,
        "objective.num_samples": config.objective.num_samples,
        "optimiser.epochs": config.optimiser.epochs,
        "optimiser.num_parts": config.optimiser.num_parts,
        "run.log_every": config.run.log_every,
        "run.checkpoint_every": config.run.checkpoint_every,
        "run.keep_checkpoints": config.run.keep_checkpoints,
    }
    for name, value in at_least_one.items():
        if value < 1:
            raise ConfigError(f"{name} is {value}, but it must be at least 1.")
    if config.optimiser.batch_size < 2:
        raise ConfigError(
            f"optimiser.batch_size is {config.optimiser.batch_size}, but a contrast needs at least 2 videos."
        )
    if config.optimiser.learning_rate <= 0:
        raise ConfigError(
            f"optimiser.learning_rate is {config.optimiser.learning_rate}, but it must be positive."
        )
    objective, num_clips = config.objective, config.views.num_clips
    if objective.method == "infonce" and num_clips != 2:
        raise ConfigError(f"infonce compares two clips of a video, but views.num_clips is {num_clips}.")
    if objective.self_pairs == "across_clips" and objective.samples_from != "clips":
        raise ConfigError(
            "objective.self_pairs is across_clips, which needs to know the clip of each sample. Set "
            "objective.samples_from to clips too."
        )
    if objective.mean_contrast and num_clips < 2:
        raise ConfigError(f"objective.mean_contrast compares clips, but views.num_clips is {num_clips}.")
    if objective.self_pairs == "across_clips" and num_clips < 2:
        raise ConfigError(f"objective.self_pairs is across_clips, but views.num_clips is {num_clips}.")
    if objective.self_pairs in ("drop", "across_clips") and objective.num_samples < 2:
        raise ConfigError(
            f"objective.num_samples is {objective.num_samples}, but a video is compared with itself by two "
            "different samples."
        )
    mining = config.mining
    if mining.among == "all" and (mining.mutual_top is None or mining.threshold == "adaptive"):
        raise ConfigError(
            "mining.among is all, which is about the nearest videos, but mining.mutual_top is "
            f"{mining.mutual_top} and mining.threshold is {mining.threshold}. Give a number of nearest and a "
            "threshold that does not adapt to the batch, or use mining.among batch."
        )
    if config.model.start == "principal" and config.model.hidden_dim is not None:
        raise ConfigError(
            "model.start is principal, which is for heads of one layer, but model.hidden_dim is "
            f"{config.model.hidden_dim}. Leave one of them out."
        )
    stored = config.views.num_stored
    if stored is not None and stored < num_clips:
        raise ConfigError(f"views.num_stored is {stored}, fewer than the {num_clips} clips of a step.")
