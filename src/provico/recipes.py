"""Named settings for pretraining; what they reach, and how that was measured, is in the README.

A recipe is a value, so a variant is `dataclasses.replace`, and the command line shows a recipe's numbers as
the defaults of its options.
"""

from __future__ import annotations

from difflib import get_close_matches

from provico.config import (
    MiningSettings,
    ModelSettings,
    ObjectiveSettings,
    OptimiserSettings,
    PretrainConfig,
    RunSettings,
    ViewSettings,
)
from provico.errors import ConfigError

_PAPER = PretrainConfig(run=RunSettings(precision="bf16"))

_FROM_SCRATCH = ObjectiveSettings(
    samples_from="clips",
    self_pairs="across_clips",
    reduction="rows",
    hardness=0.3,
    mean_contrast=1.0,
    kl_mean_term=False,
)

RECIPES: dict[str, PretrainConfig] = {
    # The default: features of a frozen image network, computed once; only the heads are trained.
    "frozen": PretrainConfig(
        model=ModelSettings(
            backbone="efficientnet_motion", parametrisation="wide", start="principal", log_var_hidden_dim=64
        ),
        views=ViewSettings(augmentation="none", num_stored=8),
        objective=ObjectiveSettings(
            num_samples=4,
            samples_from="clips",
            self_pairs="across_clips",
            reduction="rows",
            uncertainty_from="positives",
        ),
        # No threshold: with so few and so good features, the nearest of a few hundred videos are the better
        # guide. From the first step on, since the heads start at the features' own axes.
        mining=MiningSettings(mine_from=0, threshold=None, mutual_top=12, always_top=6, max_share=0.3),
        optimiser=OptimiserSettings(
            epochs=10_000,
            max_steps=120,
            batch_size=256,
            learning_rate=5e-4,
            warmup_epochs=20,
            warmup_from=2.5e-5,
            curve_factor=30.0,
            log_var_factor=20.0,
        ),
    ),
    # From scratch on a CPU.
    "tiny": PretrainConfig(
        model=ModelSettings(
            backbone="tiny",
            size=48,
            num_frames=9,
            frame_step=2,
            motion=True,
            hidden_dim=128,
            parametrisation="long",
        ),
        views=ViewSettings(augmentation="shift", store="raw"),
        objective=_FROM_SCRATCH,
        mining=MiningSettings(mine_from=9, threshold=None, mutual_top=1),
        optimiser=OptimiserSettings(
            epochs=15, batch_size=48, learning_rate=2e-3, warmup_epochs=1, warmup_from=2e-4
        ),
    ),
    # From scratch on one GPU: what was learnt from `tiny`, at a size that a GPU deserves. Never run on one.
    "small": PretrainConfig(
        model=ModelSettings(
            backbone="r3d18", num_frames=17, motion=True, hidden_dim=512, parametrisation="long"
        ),
        views=ViewSettings(augmentation="shift", store="jpeg"),
        objective=_FROM_SCRATCH,
        mining=MiningSettings(mine_from=60, threshold=None, mutual_top=1),
        optimiser=OptimiserSettings(epochs=100, batch_size=64, warmup_epochs=5),
        run=RunSettings(precision="bf16"),
    ),
    # Section 4.2 of the paper: UCF101 or Kinetics-400, R3D-18 (or --backbone r2plus1d18).
    "paper": _PAPER,
    # The last row of its Table 2.
    "paper-r3d50": PretrainConfig(
        model=ModelSettings(backbone="r3d50", size=224),
        optimiser=OptimiserSettings(batch_size=512),
        run=_PAPER.run,
    ),
}
"""Every recipe by name."""

DEFAULT_RECIPE = "frozen"


def find_recipe(name: str) -> PretrainConfig:
    """The recipe of that name, or an error that lists the names there are."""
    if name not in RECIPES:
        near = get_close_matches(name, RECIPES, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(RECIPES)}."
        raise ConfigError(f"There is no recipe {name!r}. {hint}")
    return RECIPES[name]
