"""From the distributions of a batch of videos to one number to descend: the method in a few lines.

    videos -> samples -> match probabilities \\
           -> distances -> positive pairs    -> loss

Both methods share the encoder, the videos and the loop; `infonce` is the deterministic one, which compares
the means of two clips and knows neither samples nor uncertainty.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from provico.config import MiningSettings, ObjectiveSettings
from provico.probability import (
    Gaussian,
    MatchCurve,
    MinedPairs,
    Mixture,
    MixtureSamples,
    Moments,
    Sampled,
    agreed,
    find_distance,
    first_stage_pairs,
    info_nce_two_view,
    kl_of_videos,
    match_log_probabilities,
    mine_pairs,
    pairs_of_one_class,
    provico_loss,
    self_distances,
    threshold_at_epoch,
)
from provico.training.memory import Remembered


@dataclass(frozen=True)
class Outcome:
    """What a step descends, and what it logs."""

    loss: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
    """Named as in the run's log."""
    pairs: MinedPairs | None = None
    """The positive pairs, where the method has them."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Where in the run a step is."""

    epoch: int
    generator: torch.Generator
    """For the samples of this step; every process has one with the same seed."""
    remembered: Remembered | None = None
    """All videos as they were last seen, where mining ranks among all."""
    labels: Tensor | None = None
    """The classes of the batch's videos, only where pairs are of one class."""


def provico(
    videos: Mixture,
    *,
    curve: MatchCurve,
    objective: ObjectiveSettings,
    mining: MiningSettings,
    at: Moment,
    num_streams: int = 1,
) -> Outcome:
    """Eqs. (4)-(12), on all pairs of a batch."""
    drawn = draw(videos, objective, at.generator)
    pairs = positive_pairs(videos, drawn, mining=mining, at=at, num_streams=num_streams)
    second = draw(videos, objective, at.generator) if objective.self_pairs == "independent" else None
    log_probabilities = match_log_probabilities(
        drawn.samples,
        curve=curve,
        self_pairs=objective.self_pairs,
        clip=drawn.clip if objective.samples_from == "clips" else None,
        second_samples=second.samples if second else None,
    )
    parts = provico_loss(
        log_probabilities,
        pairs.positive,
        log_uncertainty=videos.moment_matched.log_uncertainty,
        kl=kl_of_videos(videos, of=objective.kl_of, mean_term=objective.kl_mean_term),
        kl_weight=objective.kl_weight,
        reduction=objective.reduction,
        hardness=objective.hardness,
        uncertainty_from=objective.uncertainty_from,
        detach_weight=objective.detach_weight,
    )
    loss = parts.total
    contrast: dict[str, Tensor] = {}
    if objective.mean_contrast:
        contrast["loss/mean_contrast"] = contrast_of_means(
            videos, objective, positive=pairs.positive, num_streams=num_streams
        )
        loss = loss + objective.mean_contrast * contrast["loss/mean_contrast"]
    logged = contrast | {
        "loss/attenuated_soft": parts.attenuated_soft,
        "loss/regulariser": parts.regulariser,
        "loss/kl": parts.kl,
        "loss/soft_positive": parts.soft_positive,
        "loss/soft_negative": parts.soft_negative,
    }
    return Outcome(loss, {name: part.detach() for name, part in logged.items()}, pairs)


def infonce(
    videos: Mixture,
    *,
    curve: MatchCurve,
    objective: ObjectiveSettings,
    mining: MiningSettings,
    at: Moment,
    num_streams: int = 1,
) -> Outcome:
    """The two-view contrast of clip means (eq. 1)."""
    return Outcome(contrast_of_means(videos, objective, num_streams=num_streams))


Objective = Callable[..., Outcome]

OBJECTIVES: dict[str, Objective] = {"provico": provico, "infonce": infonce}
"""Every method by name."""


def contrast_of_means(
    videos: Mixture, objective: ObjectiveSettings, *, positive: Tensor | None = None, num_streams: int = 1
) -> Tensor:
    """Of the first two clips of each video. Networks side by side are contrasted each by itself, so that
    the one whose task is easier cannot stand in for the other."""
    contrasts = [
        info_nce_two_view(
            *means.unbind(dim=1),
            temperature=objective.temperature,
            positive=positive,
            to_find=objective.to_find,
        )
        for means in videos.clips.mean[:, :2].chunk(num_streams, dim=-1)
    ]
    return torch.stack(contrasts).mean()


def draw(videos: Mixture, objective: ObjectiveSettings, generator: torch.Generator) -> MixtureSamples:
    """K samples of each video: of its moment-matched Gaussian, as in the paper, or of its clips."""
    if objective.samples_from == "clips":
        return videos.sample_clips(objective.num_samples, generator=generator)
    samples = videos.moment_matched.sample(objective.num_samples, generator=generator)
    return MixtureSamples(samples, torch.zeros(samples.shape[:2], dtype=torch.long, device=samples.device))


@torch.no_grad()
def positive_pairs(
    videos: Mixture, drawn: MixtureSamples, *, mining: MiningSettings, at: Moment, num_streams: int = 1
) -> MinedPairs:
    """Only i = j in the first stage; in the second, pairs closer than the threshold too (eq. 7)."""
    if mining.mine_from is None or at.epoch < mining.mine_from:
        return first_stage_pairs(len(drawn.samples), device=drawn.samples.device)
    if mining.pairs_of == "class":
        assert at.labels is not None
        return pairs_of_one_class(at.labels)
    if mining.among == "all":
        remembered = at.remembered
        assert remembered is not None
        streams = (videos.marginals(num_streams) for videos in (remembered.batch, remembered.everyone))
        found = [
            _near_among_all(batch, everyone, remembered.place, mining, at.epoch)
            for batch, everyone in zip(*streams, strict=True)
        ]
    else:
        samples = drawn.samples.chunk(num_streams, dim=-1)
        found = [
            _near_in_batch(batch, seen, mining, at.epoch)
            for batch, seen in zip(videos.moment_matched.marginals(num_streams), samples, strict=True)
        ]
    return agreed(found)


def _near_in_batch(batch: Gaussian, samples: Tensor, mining: MiningSettings, epoch: int) -> MinedPairs:
    distance = find_distance(mining.distance)
    sampled = Sampled(batch, Moments.of_samples(samples))
    own: Tensor | None = None
    if mining.threshold == "adaptive":
        own = self_distances(distance, sampled, num_samples=samples.shape[1])
    return _mined(distance(sampled, sampled), mining, epoch, own=own)


def _near_among_all(
    batch: Gaussian, everyone: Gaussian, place: Tensor, mining: MiningSettings, epoch: int
) -> MinedPairs:
    distance = find_distance(mining.distance)
    among = distance(*(Sampled(videos, Moments.of_gaussian(videos)) for videos in (batch, everyone)))
    itself = place.unsqueeze(1)
    return _mined(among[:, place], mining, epoch, among=among.scatter(1, itself, torch.inf))


def _mined(
    distances: Tensor,
    mining: MiningSettings,
    epoch: int,
    *,
    own: Tensor | None = None,
    among: Tensor | None = None,
) -> MinedPairs:
    assert mining.mine_from is not None
    threshold: float | Literal["adaptive"] | None = "adaptive"
    if mining.threshold != "adaptive":
        threshold = threshold_at_epoch(
            epoch,
            threshold=math.inf if mining.threshold is None else mining.threshold,
            first_mining_epoch=mining.mine_from,
            ramp_epochs=mining.threshold_ramp,
        )
    assert threshold is not None
    return mine_pairs(
        distances,
        threshold=threshold,
        self_distances=own,
        mutual_top=mining.mutual_top,
        always_top=mining.always_top,
        max_share=mining.max_share,
        among=among,
    )
