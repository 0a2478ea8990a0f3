"""The objectives: from the distributions of a batch of videos to a loss.

    videos -> samples -> match probabilities \\
           -> distances -> positive pairs    -> loss

An objective is a function of the videos of a batch and of the context of the step. `OBJECTIVES` lists them by
name; a new one is a function and a line there. Settings of a run are in `provico.config`; what distinguishes
variants of an objective are fields of the classes here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from provico.config import MiningSettings, ObjectiveSettings, PretrainConfig
from provico.errors import ConfigError, look_up
from provico.probability import (
    AgreedPairs,
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
    info_nce,
    match_log_probabilities,
    mine_pairs,
    provico_loss,
    self_distances,
)
from provico.training.memory import Remembered


@dataclass(frozen=True)
class Outcome:
    """The loss of a step, and its logged terms."""

    loss: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
    """Terms of the loss, by their names in the run's log."""
    pairs: MinedPairs | None = None
    """The positive pairs, if the objective mines them."""


@dataclass(frozen=True, kw_only=True)
class StepContext:
    """Inputs of an objective besides the videos of the batch."""

    settings: ObjectiveSettings
    mining: MiningSettings
    curve: MatchCurve
    epoch: int
    generator: torch.Generator
    """Generator of this step's samples; every process has one with the same seed."""
    indices: Tensor
    """The index of each video of the batch in the catalog."""
    agreed: AgreedPairs | None = None
    """Pairs on which views of a frozen network agree, for `among="views"`, if they are reliable."""
    remembered: Remembered | None = None
    """The latest embeddings of all videos, for `among="all"`, if their pairs are reliable."""
    num_streams: int = 1
    """Parallel networks in the backbone; each has an equal share of the coordinates."""


Loss = Callable[[Mixture, StepContext], Outcome]


@dataclass(frozen=True, kw_only=True)
class Objective:
    """A loss, and its requirements for training."""

    loss: Loss
    learns_variance: bool = True
    """Whether variances and match curve are trained; if not, their weights stay unchanged."""
    curve_factor: float = 10.0
    """Learning rate factor of the match curve: Adam moves a scalar by at most one rate per step."""
    log_var_factor: float = 1.0
    """Learning rate factor of the variance head."""
    min_clips: int = 1
    """Minimum number of clips per video."""
    min_samples: int = 1
    """Minimum number of samples per video."""


@dataclass(frozen=True, kw_only=True)
class Provico:
    """Eqs. (4)-(12), on all pairs of a batch. The defaults are those of the paper."""

    samples_from: Literal["moments", "clips"] = "moments"
    """Samples of the video's moment-matched Gaussian (the paper), or of its clips' own Gaussians."""
    self_pairs: Literal["drop", "keep", "across_clips"] = "drop"
    """Which sample pairs score a video against itself (`match_log_probabilities`); across_clips needs samples
    of clips."""
    reduction: Literal["mean", "balanced", "rows"] = "mean"
    """How pairs are averaged (`pair_weights`)."""
    hardness: float = 0.0
    """With rows: extra weight of hard negatives; 0 weighs all equally."""
    kl_mean_term: bool = True
    """Whether the KL term also acts on the means."""
    detach_weight: bool = False
    """Whether the certainty weight has no gradient."""
    uncertainty_from: Literal["all_pairs", "positives"] = "all_pairs"
    """Which pairs train a video's uncertainty (`provico_loss`)."""
    to_find: Literal["any", "each"] = "any"
    """Whether the InfoNCE loss on means attracts any or each of the mined positives (`info_nce`)."""
    max_share: float | None = 0.2
    """Mining guard: at most this share of all pairs is mined; None turns it off."""

    def __post_init__(self) -> None:
        if self.self_pairs == "across_clips" and self.samples_from != "clips":
            raise ConfigError(
                "self_pairs='across_clips' needs the clip of each sample. Set samples_from='clips' too."
            )

    def as_objective(self, *, curve_factor: float = 10.0, log_var_factor: float = 1.0) -> Objective:
        """This variant as an objective, with the clips and samples that it needs."""
        return Objective(
            loss=self,
            curve_factor=curve_factor,
            log_var_factor=log_var_factor,
            min_clips=2 if self.self_pairs == "across_clips" else 1,
            min_samples=1 if self.self_pairs == "keep" else 2,
        )

    def __call__(self, videos: Mixture, step: StepContext) -> Outcome:
        """The loss of a batch."""
        drawn = self.draw(videos, step)
        pairs = self.positive_pairs(videos, drawn, step)
        return self.loss_of(videos, drawn, pairs, step)

    def draw(self, videos: Mixture, step: StepContext) -> MixtureSamples:
        """K samples of each video."""
        num_samples, generator = step.settings.num_samples, step.generator
        if self.samples_from == "clips":
            return videos.sample_clips(num_samples, generator=generator)
        samples = videos.moment_matched.sample(num_samples, generator=generator)
        no_clip = torch.zeros(samples.shape[:2], dtype=torch.long, device=samples.device)
        return MixtureSamples(samples, no_clip)

    def loss_of(
        self, videos: Mixture, drawn: MixtureSamples, pairs: MinedPairs, step: StepContext
    ) -> Outcome:
        """The loss with these positive pairs."""
        settings = step.settings
        log_probabilities = match_log_probabilities(
            drawn.samples,
            curve=step.curve,
            self_pairs=self.self_pairs,
            clip=drawn.clip if self.samples_from == "clips" else None,
        )
        parts = provico_loss(
            log_probabilities,
            pairs.positive,
            log_uncertainty=videos.moment_matched.log_uncertainty,
            kl=videos.moment_matched.kl_to_unit(mean_term=self.kl_mean_term),
            kl_weight=settings.kl_weight,
            reduction=self.reduction,
            hardness=self.hardness,
            uncertainty_from=self.uncertainty_from,
            detach_weight=self.detach_weight,
        )
        loss = parts.total
        contrast: dict[str, Tensor] = {}
        # With `among="views"`, this loss replaces mined pairs that are not reliable.
        if settings.mean_contrast and step.agreed is None:
            contrast["loss/mean_contrast"] = contrast_of_means(
                videos, step, positive=pairs.positive, to_find=self.to_find
            )
            loss = loss + settings.mean_contrast * contrast["loss/mean_contrast"]
        logged = contrast | {
            "loss/attenuated_soft": parts.attenuated_soft,
            "loss/regulariser": parts.regulariser,
            "loss/kl": parts.kl,
            "loss/soft_positive": parts.soft_positive,
            "loss/soft_negative": parts.soft_negative,
        }
        return Outcome(loss, {name: part.detach() for name, part in logged.items()}, pairs)

    @torch.no_grad()
    def positive_pairs(self, videos: Mixture, drawn: MixtureSamples, step: StepContext) -> MinedPairs:
        """Only i = j in the first stage; in the second, also pairs below the threshold (eq. 7)."""
        mining = step.mining
        if mining.mine_from is None or step.epoch < mining.mine_from:
            return first_stage_pairs(len(drawn.samples), device=drawn.samples.device)
        if mining.among == "views":
            if step.agreed is None:
                return first_stage_pairs(len(drawn.samples), device=drawn.samples.device)
            return step.agreed.among(step.indices)
        if mining.among == "all":
            remembered = step.remembered
            if remembered is None:
                return first_stage_pairs(len(drawn.samples), device=drawn.samples.device)
            streams = (seen.marginals(step.num_streams) for seen in (remembered.batch, remembered.everyone))
            found = [
                self._near_among_all(batch, everyone, remembered.place, mining)
                for batch, everyone in zip(*streams, strict=True)
            ]
        else:
            samples = drawn.samples.chunk(step.num_streams, dim=-1)
            found = [
                self._near_in_batch(batch, seen, mining)
                for batch, seen in zip(
                    videos.moment_matched.marginals(step.num_streams), samples, strict=True
                )
            ]
        return agreed(found)

    def _near_in_batch(self, batch: Gaussian, samples: Tensor, mining: MiningSettings) -> MinedPairs:
        distance = find_distance(mining.distance)
        sampled = Sampled(batch, Moments.of_samples(samples))
        own: Tensor | None = None
        if mining.threshold == "adaptive":
            own = self_distances(distance, sampled, num_samples=samples.shape[1])
        return self._mined(distance(sampled, sampled), mining, own=own)

    def _near_among_all(
        self, batch: Gaussian, everyone: Gaussian, place: Tensor, mining: MiningSettings
    ) -> MinedPairs:
        distance = find_distance(mining.distance)
        among = distance(*(Sampled(videos, Moments.of_gaussian(videos)) for videos in (batch, everyone)))
        itself = place.unsqueeze(1)
        return self._mined(among[:, place], mining, among=among.scatter(1, itself, torch.inf))

    def _mined(
        self,
        distances: Tensor,
        mining: MiningSettings,
        *,
        own: Tensor | None = None,
        among: Tensor | None = None,
    ) -> MinedPairs:
        return mine_pairs(
            distances,
            threshold=math.inf if mining.threshold is None else mining.threshold,
            self_distances=own,
            mutual_top=mining.mutual_top,
            max_share=self.max_share,
            among=among,
        )


def infonce(videos: Mixture, step: StepContext) -> Outcome:
    """InfoNCE on two views' clip means (eq. 1): the deterministic baseline."""
    return Outcome(contrast_of_means(videos, step))


def contrast_of_means(
    videos: Mixture,
    step: StepContext,
    *,
    positive: Tensor | None = None,
    to_find: Literal["any", "each"] = "any",
) -> Tensor:
    """InfoNCE of the first two clips of each video. Parallel networks have separate losses, so that the one
    with the easier task cannot replace the other."""
    contrasts = [
        info_nce(
            *means.unbind(dim=1), temperature=step.settings.temperature, positive=positive, to_find=to_find
        )
        for means in videos.clips.mean[:, :2].chunk(step.num_streams, dim=-1)
    ]
    return torch.stack(contrasts).mean()


_FROM_SCRATCH = Provico(
    samples_from="clips",
    self_pairs="across_clips",
    reduction="rows",
    hardness=0.3,
    kl_mean_term=False,
    # Otherwise videos that are hard at first could escape the loss by a high variance.
    detach_weight=True,
)

OBJECTIVES: dict[str, Objective] = {
    # As in the paper.
    "provico": Provico().as_objective(),
    # For heads over a frozen network.
    "provico-frozen": Provico(
        samples_from="clips",
        self_pairs="across_clips",
        reduction="rows",
        uncertainty_from="positives",
    ).as_objective(curve_factor=75.0, log_var_factor=50.0),
    # For a network trained from scratch on few videos.
    "provico-scratch": _FROM_SCRATCH.as_objective(),
    # For two such networks in parallel: pairs that both mine are mostly right, so each is to be attracted.
    "provico-streams": replace(_FROM_SCRATCH, to_find="each").as_objective(),
    "infonce": Objective(loss=infonce, learns_variance=False, min_clips=2),
}
"""Every objective by its name for `--method`."""


def find_objective(name: str) -> Objective:
    """The objective of that name, or an error with the nearest name."""
    return look_up("method", name, OBJECTIVES)


def check_objective(config: PretrainConfig) -> None:
    """Raise ConfigError for unknown names and for settings that the objective cannot use."""
    method = config.objective.method
    objective = find_objective(method)
    find_distance(config.mining.distance)
    if config.views.num_clips < objective.min_clips:
        raise ConfigError(
            f"--method {method} compares {objective.min_clips} clips of a video, but --num-clips is "
            f"{config.views.num_clips}."
        )
    if config.objective.num_samples < objective.min_samples:
        raise ConfigError(
            f"--method {method} compares {objective.min_samples} samples of a video with each other, but "
            f"--num-samples is {config.objective.num_samples}."
        )
