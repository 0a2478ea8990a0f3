"""The base settings of the experiments; each experiment states only its changes.

`frozen` is the released recipe with the paper's K = 10 and B = 96, and with pairs mined in the batch by
distance. A run takes seconds, since the features are computed once, so ablations are feasible on a CPU.
`scratch` is a tiny network trained from pixels. `paper` is the paper's recipe.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from provico.config import PretrainConfig
from provico.demo import demo_recipe
from provico.errors import ConfigError
from provico.recipes import find_recipe
from provico.reproduce.bench import Bench
from provico.training.objective import OBJECTIVES, Provico, find_objective

BATCH_SIZE = 96
NUM_SAMPLES = 10


def changed(config: PretrainConfig, **groups: dict[str, Any]) -> PretrainConfig:
    """A copy with some settings changed: `changed(config, objective={"kl_weight": 0.01})`."""
    values = {name: dataclasses.replace(getattr(config, name), **new) for name, new in groups.items()}
    return dataclasses.replace(config, **values)


def starting_point(bench: Bench, *, seed: int) -> PretrainConfig:
    """The base settings of an experiment's preset."""
    size = bench.size
    if size.recipe == "scratch":
        config = demo_recipe() if bench.is_demo_set else find_recipe("tiny-motion")
        if size.epochs is not None:  # the second stage begins at the same share of the run
            mine_from = (config.mining.mine_from or 0) * size.epochs // config.optimiser.epochs
            config = changed(config, mining={"mine_from": mine_from})
        config = changed(config, run={"log_every": 2})
    elif size.recipe == "frozen":
        config = changed(
            find_recipe("frozen"),
            objective={"num_samples": NUM_SAMPLES, "mean_contrast": 0.0},
            mining={"among": "batch", "distance": "bhattacharyya_expected_scalar", "mutual_top": 12},
        )
        config = with_batch_size(config, BATCH_SIZE)
        if size.num_stored is not None:
            config = changed(config, views={"num_stored": size.num_stored})
    else:
        config = find_recipe("paper")
    if size.backbone is not None:
        config = changed(config, model={"backbone": size.backbone})
    if size.epochs is not None:
        config = changed(config, optimiser={"epochs": size.epochs})
    if size.max_steps is not None:
        config = changed(config, optimiser={"max_steps": size.max_steps})
    return changed(config, run={"seed": seed})


def with_batch_size(config: PretrainConfig, batch_size: int) -> PretrainConfig:
    """Change B. Mining by neighbours keeps their share of the batch, as a threshold would."""

    def scaled(neighbours: int | None) -> int | None:
        if neighbours is None or config.mining.threshold is not None:
            return neighbours
        return max(1, round(neighbours * batch_size / config.optimiser.batch_size))

    return changed(
        config,
        optimiser={"batch_size": batch_size},
        mining={"mutual_top": scaled(config.mining.mutual_top)},
    )


def with_form(config: PretrainConfig, **fields: Any) -> PretrainConfig:
    """Another variant of ProViCo: `with_form(config, self_pairs="drop")`.

    It is registered as an objective under a name with its differences, so that settings identify a run.
    """
    objective = find_objective(config.objective.method)
    if not isinstance(objective.loss, Provico):
        raise ConfigError(f"The method {config.objective.method} is not a variant of ProViCo.")
    form = dataclasses.replace(objective.loss, **fields)
    if form == objective.loss:
        return config
    name = ", ".join([config.objective.method, *(f"{field}={value}" for field, value in fields.items())])
    OBJECTIVES[name] = form.as_objective(
        curve_factor=objective.curve_factor, log_var_factor=objective.log_var_factor
    )
    return changed(config, objective={"method": name})
