"""Named settings for pretraining. The README says what they reach and how that was measured.

A recipe is a value, so `dataclasses.replace` makes a variant. The command line shows a recipe's values as the
defaults of its options.
"""

from __future__ import annotations

import dataclasses

from provico.config import (
    MiningSettings,
    ModelSettings,
    ObjectiveSettings,
    OptimiserSettings,
    PretrainConfig,
    RunSettings,
    ViewSettings,
)
from provico.defaults import TEST_CLIPS
from provico.errors import look_up

_PAPER = PretrainConfig(run=RunSettings(precision="bf16"))

# From scratch the InfoNCE loss on clip means dominates: it learns faster than samples do.
_FROM_SCRATCH = ObjectiveSettings(method="provico-scratch", mean_contrast=10.0)
_MINED_FROM_SCRATCH = MiningSettings(distance="bhattacharyya_expected_scalar", threshold=None, mutual_top=2)

_TINY_MOTION = PretrainConfig(
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
    mining=dataclasses.replace(_MINED_FROM_SCRATCH, mine_from=6),
    optimiser=OptimiserSettings(
        epochs=15, batch_size=48, learning_rate=2e-3, warmup_epochs=1, warmup_from=2e-4
    ),
)

RECIPES: dict[str, PretrainConfig] = {
    # The default: features of a frozen image network, computed once; only the heads are trained.
    "frozen": PretrainConfig(
        model=ModelSettings(
            backbone="efficientnet_motion",
            parametrisation="wide",
            log_var_hidden_dim=64,
        ),
        # As many as an index and an evaluation use, so that no clip is computed twice.
        views=ViewSettings(augmentation="none", num_stored=TEST_CLIPS),
        # Pairs are mined where two views of the videos agree beyond chance. Where they do not, similar
        # appearance is not the same class, and a contrast of means is better than mined pairs (docs/log.md).
        objective=ObjectiveSettings(method="provico-frozen", num_samples=2, mean_contrast=3.0),
        mining=MiningSettings(mine_from=0, threshold=None, mutual_top=20, among="views"),
        optimiser=OptimiserSettings(
            epochs=10_000,
            max_steps=120,
            batch_size=256,
            # A small rate: larger ones degrade the features, with this objective and with InfoNCE.
            learning_rate=2e-4,
            warmup_epochs=10,
            warmup_from=1e-5,
        ),
    ),
    # From scratch on a CPU: one network for motion and one for appearance.
    "tiny": dataclasses.replace(
        _TINY_MOTION,
        model=dataclasses.replace(_TINY_MOTION.model, backbone="tiny_two_streams", motion=None),
        views=dataclasses.replace(_TINY_MOTION.views, augmentation="shift_colour"),
        objective=ObjectiveSettings(method="provico-streams", mean_contrast=100.0),
        mining=dataclasses.replace(_MINED_FROM_SCRATCH, mine_from=8, mutual_top=60, among="all"),
        # With half the epochs it is 2.5 points lower, InfoNCE 0.7 (docs/log.md).
        optimiser=dataclasses.replace(_TINY_MOTION.optimiser, epochs=30),
    ),
    # Motion only, with half the epochs: less than half the time, and blind to scenery.
    "tiny-motion": _TINY_MOTION,
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
    """The recipe of that name, or an error that lists all names."""
    return look_up("recipe", name, RECIPES)
