"""One step of an objective on a few random videos, and what is computed of it by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from provico.config import MiningSettings, ObjectiveSettings
from provico.probability import Gaussian, MatchCurve, Mixture
from provico.training.objective import Outcome, Provico, StepContext

B, N, D = 4, 2, 3
EPOCH = 30
UNGUARDED = MiningSettings(mutual_top=None)
FORM_FIELDS = {field.name for field in dataclasses.fields(Provico)}
CURVE = MatchCurve(torch.tensor(1.3).double(), torch.tensor(2.0).double())


def context(
    *,
    mining: MiningSettings = UNGUARDED,
    epoch: int = 0,
    seed: int = 0,
    curve: MatchCurve = CURVE,
    **settings: Any,
) -> StepContext:
    return StepContext(
        settings=ObjectiveSettings(**{"num_samples": 4, **settings}),
        mining=mining,
        curve=curve,
        epoch=epoch,
        generator=torch.Generator().manual_seed(seed),
        indices=torch.arange(B),
    )


def random_videos(seed: int = 0, num_videos: int = B) -> Mixture:
    generator = torch.Generator().manual_seed(seed)
    mean, log_var = torch.randn(2, num_videos, N, D, generator=generator, dtype=torch.float64)
    return Mixture(Gaussian(mean.requires_grad_(), (0.5 * log_var - 1).requires_grad_()))


def loss_of(videos: Mixture, **options: Any) -> Outcome:
    """Of a form of ProViCo, without a cap on mining; options are of the form or of the step."""
    form = Provico(**{"max_share": None, **{k: v for k, v in options.items() if k in FORM_FIELDS}})
    return form(videos, context(**{k: v for k, v in options.items() if k not in FORM_FIELDS}))


def moments_by_hand(videos: Mixture) -> tuple[Tensor, Tensor]:
    """Mean and variance of each video (eq. A3)."""
    mean, var = videos.clips.mean.detach(), videos.clips.var.detach()
    video_mean = mean.mean(dim=1)
    return video_mean, (var + mean.square()).mean(dim=1) - video_mean.square()
