"""Every experiment by name, in the order of the paper."""

from __future__ import annotations

from provico.errors import ConfigError, did_you_mean
from provico.reproduce.comparisons import METRIC, MINING, RECOGNITION, RETRIEVAL
from provico.reproduce.corruption import MASKED, MIXED
from provico.reproduce.distance_example import DISTANCE_EXAMPLE
from provico.reproduce.embedding_3d import EMBEDDING_3D
from provico.reproduce.experiment import Experiment
from provico.reproduce.knobs import BATCH, BETA, CLIPS, SAMPLES
from provico.reproduce.qualitative import QUALITATIVE
from provico.reproduce.toy_mining import TOY_MINING
from provico.reproduce.uncertainty import BINS, OVER_TRAINING

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        DISTANCE_EXAMPLE,
        RECOGNITION,
        RETRIEVAL,
        BETA,
        SAMPLES,
        OVER_TRAINING,
        BINS,
        TOY_MINING,
        CLIPS,
        BATCH,
        MINING,
        METRIC,
        EMBEDDING_3D,
        QUALITATIVE,
        MIXED,
        MASKED,
    )
}


def find_experiments(name: str) -> tuple[Experiment, ...]:
    """The experiment of that name, or all of them for `all`."""
    if name == "all":
        return tuple(EXPERIMENTS.values())
    if name not in EXPERIMENTS:
        hint = did_you_mean(name, [*EXPERIMENTS, "all"])
        raise ConfigError(f"There is no experiment {name!r}. {hint}")
    return (EXPERIMENTS[name],)
