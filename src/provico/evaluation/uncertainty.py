"""Is the uncertainty useful? Does it predict which test videos retrieve a wrong class, and better than
trivial baselines?

Each test video is a query among the training videos, ranked by match probability; the best hit is right or
wrong. Doubts are compared by how well they predict that. Calibrations are fitted to the training videos only
and tested on the hits of the test videos.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from provico.config.evaluation import FeatureReading, SetsChoice, UncertaintySettings
from provico.data.library import Library
from provico.embedding.driver import embed_features
from provico.embedding.features import ClipFeatures
from provico.errors import ConfigError
from provico.evaluation.embedded_search import Sampling, SearchedEmbeddings, hits_of
from provico.evaluation.protocols import features_of, open_all
from provico.evaluation.rivals import rival_doubts
from provico.evaluation.statistics import Estimate, redrawn_sets
from provico.metrics import aurc, excess_aurc, r_auroc, risk_coverage
from provico.models.encoder import Encoder
from provico.probability.calibration import CalibrationQuality, log_odds
from provico.probability.reliability import ReliabilityBin, reliability
from provico.progress import Progress, silent
from provico.search.calibrate import calibrate

OURS = ("uncertainty", "disagreement", "total uncertainty", "low match probability")


@dataclass(frozen=True, eq=False)
class JudgedDoubt:
    """One kind of doubt, and how well it predicts errors."""

    name: str
    kind: Literal["ours", "rival"]
    auroc: Estimate
    """R-AUROC: the probability that a wrong query has more doubt than a right one."""
    aurc: float
    excess: Estimate
    """AURC minus the lowest possible AURC."""
    advantage: Estimate
    """Its AUROC minus that of the uncertainty, on the same resampled sets."""
    risk: Float[Tensor, "queries"]
    """The risk at coverages 1/n to 1."""

    @property
    def is_above_uncertainty(self) -> bool:
        """Whether it predicts errors better than the uncertainty, significantly or not."""
        return self.advantage.value > 0


@dataclass(frozen=True, eq=False)
class JudgedProbability:
    """Probabilities of hits, and their calibration."""

    name: str
    quality: CalibrationQuality
    mean_probability: float
    bins: tuple[ReliabilityBin, ...]


@dataclass(frozen=True, eq=False)
class UncertaintyEvaluation:
    """The quality of doubts and probabilities on the test videos."""

    doubts: tuple[JudgedDoubt, ...]
    probabilities: tuple[JudgedProbability, ...]
    num_queries: int
    num_errors: int
    num_groups: int
    num_failed: int
    hit_share: float
    """The share of the k best hits of all queries that are right."""
    least_aurc: float
    about: str
    """Data, encoder and settings in one line."""

    @property
    def verdicts(self) -> tuple[str, ...]:
        """The conclusions as sentences: does the uncertainty predict errors, and better than baselines?"""
        (main,) = [doubt for doubt in self.doubts if doubt.name == "uncertainty"]
        if self.num_errors in (0, self.num_queries):
            return (f"{self.num_errors} of {self.num_queries} queries are wrong: nothing can be predicted.",)
        if main.auroc.low > 0.5:
            first = "The uncertainty predicts errors"
        elif main.auroc.high < 0.5:
            first = "The uncertainty is misleading: it is lower for errors"
        else:
            first = "There is no evidence that the uncertainty predicts errors"
        lines = [f"{first} (R-AUROC {main.auroc:.3f}; 0.5 is chance)."]
        for doubt in self.doubts:
            if doubt.kind == "rival" and doubt.is_above_uncertainty:
                surely = "beyond chance" if doubt.advantage.low > 0 else "not beyond chance"
                lines.append(
                    f'The trivial baseline "{doubt.name}" is better by {doubt.advantage:.3f} in R-AUROC, '
                    f"{surely}."
                )
        if len(lines) == 1:
            lines.append("No trivial baseline is better.")
        best = min(self.probabilities, key=lambda one: one.quality.calibration_error)
        lines.append(
            f"The best calibrated probability is the {best.name} (calibration error "
            f"{best.quality.calibration_error:.3f})."
        )
        return tuple(lines)


def evaluate_uncertainty(
    encoder: Encoder,
    choice: SetsChoice,
    *,
    settings: UncertaintySettings = UncertaintySettings(),
    reading: FeatureReading = FeatureReading(),
    library: Library | None = None,
    progress: Progress = silent,
) -> UncertaintyEvaluation:
    """Evaluate the uncertainty of an encoder on the pooled test videos of one or several splits."""
    all_sets = open_all(choice)
    features = features_of(encoder, all_sets, reading, settings.num_clips, library, progress)
    parts = [
        _queries(encoder, features(sets.train), features(sets.test), settings, library, progress)
        for sets in all_sets
    ]
    names = list(parts[0].doubts)
    groups = [group for part in parts for group in part.groups]
    correct = torch.cat([part.correct for part in parts])
    hits_right = torch.cat([part.hits_right.flatten() for part in parts])
    hit_groups = [group for part in parts for group in part.hit_groups]
    logits = {
        name: torch.cat([part.hit_logits[name].flatten() for part in parts])
        for name in parts[0].hit_logits
        if all(name in part.hit_logits for part in parts)
    }
    return UncertaintyEvaluation(
        doubts=judge_doubts(
            {name: torch.cat([part.doubts[name] for part in parts]) for name in names},
            correct,
            groups,
            num_resamples=settings.num_resamples,
            seed=settings.seed,
        ),
        probabilities=tuple(
            JudgedProbability(
                name=name,
                quality=CalibrationQuality.of(values, hits_right),
                mean_probability=float(values.sigmoid().mean()),
                bins=reliability(values.sigmoid(), hits_right, bins="count", groups=hit_groups),
            )
            for name, values in logits.items()
        ),
        num_queries=len(correct),
        num_errors=int((~correct).sum()),
        num_groups=len({group for group in groups if group is not None}) + groups.count(None),
        num_failed=sum(part.num_failed for part in parts),
        hit_share=float(hits_right.double().mean()),
        least_aurc=aurc((~correct).double(), correct),
        about=(
            f"{choice.data.name}, {', '.join(sets.name for sets in all_sets)}; {encoder.config.backbone}, "
            f"{settings.num_clips} clips, K = {settings.num_samples}, the {settings.k} best hits, seed "
            f"{settings.seed}"
        ),
    )


def judge_doubts(
    doubts: dict[str, Float[Tensor, "queries"]],
    correct: Bool[Tensor, "queries"],
    groups: Sequence[str | None],
    *,
    num_resamples: int,
    seed: int = 0,
) -> tuple[JudgedDoubt, ...]:
    """How well each doubt, including `uncertainty`, predicts errors, with intervals by group."""
    if "uncertainty" not in doubts:
        raise ConfigError("Doubts are compared with `uncertainty`, which is not among those given.")
    redrawn = redrawn_sets(groups, num_resamples=num_resamples, seed=seed)
    aurocs = {
        name: [r_auroc(doubt[rows], correct[rows]) for rows in redrawn] for name, doubt in doubts.items()
    }
    base, redrawn_base = r_auroc(doubts["uncertainty"], correct), aurocs["uncertainty"]
    judged = []
    for name, doubt in doubts.items():
        value = r_auroc(doubt, correct)
        judged.append(
            JudgedDoubt(
                name=name,
                kind="ours" if name in OURS else "rival",
                auroc=Estimate.of_redrawn(value, aurocs[name]),
                aurc=aurc(doubt, correct),
                excess=Estimate.of_redrawn(
                    excess_aurc(doubt, correct), [excess_aurc(doubt[rows], correct[rows]) for rows in redrawn]
                ),
                advantage=Estimate.of_redrawn(
                    value - base, [mine - its for mine, its in zip(aurocs[name], redrawn_base, strict=True)]
                ),
                risk=risk_coverage(doubt, correct),
            )
        )
    return tuple(judged)


@dataclass(frozen=True, eq=False)
class _Queries:
    """The data of one split's test videos."""

    doubts: dict[str, Tensor]
    correct: Bool[Tensor, "queries"]
    groups: tuple[str | None, ...]
    hit_logits: dict[str, Float[Tensor, "queries k"]]
    hits_right: Bool[Tensor, "queries k"]
    hit_groups: tuple[str, ...]
    num_failed: int


def _queries(
    encoder: Encoder,
    train: ClipFeatures,
    test: ClipFeatures,
    settings: UncertaintySettings,
    library: Library | None,
    progress: Progress,
) -> _Queries:
    gallery = embed_features(encoder, train.features, train.catalog, failed=train.failed)
    queries = embed_features(encoder, test.features, test.catalog, failed=test.failed)
    searched = SearchedEmbeddings(
        gallery, encoder.match_curve().fixed(), Sampling(settings.num_samples, settings.seed)
    )
    log_probabilities, right = hits_of(queries, searched, k=settings.k)
    logits = {"match probability": log_odds(log_probabilities)}
    try:
        found = calibrate(searched, k=settings.k, seed=settings.seed)
        logits["calibrated (labels)"] = found.logit(log_probabilities)
    except ConfigError:
        pass  # too few training videos for a calibration
    videos = queries.videos
    rivals = rival_doubts(
        test.catalog.videos, test.features, queries, gallery, library=library, progress=progress
    )
    return _Queries(
        doubts={
            "uncertainty": videos.uncertainty.double(),
            "disagreement": videos.disagreement.double(),
            "total uncertainty": videos.total_uncertainty.double(),
            "low match probability": -log_probabilities[:, 0],
            **rivals,
        },
        correct=right[:, 0],
        groups=queries.groups,
        hit_logits=logits,
        hits_right=right,
        hit_groups=tuple(
            group or f"video {name}"
            for name, group in zip(queries.ids, queries.groups, strict=True)
            for _ in range(right.shape[1])
        ),
        num_failed=len(gallery.failed) + len(queries.failed),
    )
