"""What a search answers: hits, how surprising they are, how unsure, and which clips agree."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from provico.display import table
from provico.errors import ConfigError
from provico.probability.calibration import Calibration
from provico.probability.chance import ChanceModel
from provico.search.chance import Chance
from provico.search.exact.found import WHOLE, Certificate, TopK
from provico.search.exact.scoring import exact_log_probabilities
from provico.search.hits import Hit, HitRows
from provico.search.query import Asked, IndexedVideos, Span


@dataclass(frozen=True)
class Unreached:
    """A part of a collection that could not be asked."""

    name: str
    """Folder or address of the index."""
    reason: str

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was found for one query."""

    query: str
    """The id, or the path of the file."""
    span: Span | None
    """The part of the query that was asked about; None for all of it."""
    uncertainty: float
    """How unsure the encoder is of the query."""
    disagreement: float
    metric: str
    hits: tuple[Hit, ...]
    """The best first."""
    max_chance: float | None
    min_probability: float | None
    best_log_probability: float | None
    """Of the best video, even if it is not probable enough to be a hit; None if there was none to compare."""
    best_calibrated_probability: float | None
    """The calibrated probability of the best video."""
    best_expected_by_chance: float | None
    """The least of all that was found, even if it is too much to be a hit; None if that cannot be said."""
    certificate: Certificate
    calibration: Calibration | None
    """What calibrated probabilities rest on; None if the index is not calibrated."""
    chance: ChanceModel | None
    """What false match rates rest on; None if there are too few videos to say."""
    max_error: float | None = None
    """At most this share of the queries that are answered is wrong; None if that was not asked for."""
    withheld: str | None = None
    """Why there is no answer at `max_error`, in words; None if it is answered."""
    unreached: tuple[Unreached, ...] = ()
    """Of several indexes that are searched as one, those whose videos are not in this answer."""

    def _repr_html_(self) -> str:
        """The hits as a table, for notebooks."""
        rows = [
            (
                rank,
                hit.id,
                hit.label or "",
                f"{math.exp(hit.log_probability):.3f}",
                "" if hit.expected_by_chance is None else f"{hit.expected_by_chance:.2g}",
                f"{hit.uncertainty:.3g}",
            )
            for rank, hit in enumerate(self.hits, start=1)
        ]
        said = self.withheld or ("" if rows else "no match beyond chance")
        caption = f"{self.query}, unsure {self.uncertainty:.3g}" + (f": {said}" if said else "")
        return table(("", "video", "label", "match", "by chance", "unsure"), rows, caption=caption)

    @property
    def best_probability(self) -> float | None:
        """The match probability of the best video."""
        return None if self.best_log_probability is None else math.exp(self.best_log_probability)

    @property
    def is_confident(self) -> bool:
        """False is an answer, too: no video matches beyond chance, or as probably as was asked for."""
        return bool(self.hits)

    def summary(self) -> dict[str, Any]:
        """As plain values, for JSON, which knows no infinity."""
        certificate = dataclasses.asdict(self.certificate)
        if not math.isfinite(self.certificate.ceiling):
            certificate["ceiling"] = None
        return dataclasses.asdict(self) | {
            "hits": [hit.summary() for hit in self.hits],
            "is_confident": self.is_confident,
            "best_probability": self.best_probability,
            "certificate": certificate,
            "calibration": None if self.calibration is None else self.calibration.summary(),
            "chance": None if self.chance is None else self.chance.to_dict(),
        }


@dataclass(frozen=True)
class HitLimits:
    """What a video must keep to, to be a hit."""

    max_chance: float | None
    min_probability: float | None

    @classmethod
    def checked(
        cls, max_chance: float | None, min_probability: float | None, calibration: Calibration | None
    ) -> HitLimits:
        """Before anything is computed: refuse what cannot be kept to."""
        if max_chance is not None and not max_chance >= 0:
            raise ConfigError(f"--max-chance is {max_chance:g}, but it must be a number of videos, or inf.")
        if min_probability is not None:
            if not 0 <= min_probability <= 1:
                raise ConfigError(f"--min-probability is {min_probability:g}, but it must be from 0 to 1.")
            if calibration is None:
                raise ConfigError(
                    "--min-probability needs to know how often hits are right, but the index is not "
                    "calibrated. Label some videos and run `provico calibrate`, or use --max-chance, which "
                    "needs no labels."
                )
        return cls(None if max_chance == math.inf else max_chance, min_probability)

    def are_kept(
        self, expected: Float[Tensor, "found"] | None, probability: Float[Tensor, "found"] | None, num: int
    ) -> Bool[Tensor, "found"]:
        """Which of `num` videos are hits, from how many are expected by chance and how often it is right."""
        kept = torch.ones(num, dtype=torch.bool)
        if self.max_chance is not None and expected is not None:
            kept &= expected <= self.max_chance
        if self.min_probability is not None and probability is not None:
            kept &= probability >= self.min_probability
        return kept


def answer_all(
    asked: Sequence[Asked],
    ranked: Sequence[TopK],
    videos: IndexedVideos,
    *,
    metric: str,
    limits: HitLimits,
    calibration: Calibration | None,
    chance: Chance,
    previews: Path,
) -> list[Answer]:
    """The answer to each query; what was found but is beyond the limits counts only as the best."""
    log_probabilities = [
        found.scores if metric == "match" else _log_probabilities(one, found, videos)
        for one, found in zip(asked, ranked, strict=True)
    ]
    rates = chance.false_match_rates(metric, asked, ranked, videos)
    expected = [
        None if rate is None else rate * found.certificate.num_allowed
        for rate, found in zip(rates, ranked, strict=True)
    ]
    are_hits = [
        limits.are_kept(number, None if calibration is None else calibration.probability(scores), len(scores))
        for number, scores in zip(expected, log_probabilities, strict=True)
    ]
    hits = [
        (found.rows[is_hit], found.segments[is_hit]) for found, is_hit in zip(ranked, are_hits, strict=True)
    ]
    known = HitRows(hits, videos, previews, calibration)
    answers = []
    for one, found, scores, rate, number, is_hit, (rows, parts) in zip(
        asked, ranked, log_probabilities, rates, expected, are_hits, hits, strict=True
    ):
        mixture, best = one.mixture, float(scores.max()) if len(scores) else None
        answers.append(
            Answer(
                query=one.name,
                span=one.span,
                uncertainty=float(mixture.uncertainty),
                disagreement=float(mixture.disagreement),
                metric=metric,
                hits=known.hits(
                    one,
                    rows,
                    parts,
                    found.scores[is_hit].tolist(),
                    scores[is_hit].tolist(),
                    [None] * len(rows) if rate is None else rate[is_hit].tolist(),
                    [None] * len(rows) if number is None else number[is_hit].tolist(),
                ),
                max_chance=limits.max_chance,
                min_probability=limits.min_probability,
                best_log_probability=best,
                best_calibrated_probability=_calibrated(best, calibration),
                best_expected_by_chance=None if number is None or not len(number) else float(number.min()),
                certificate=found.certificate,
                calibration=calibration,
                chance=None if rate is None else chance.model(metric),
            )
        )
    return answers


def _log_probabilities(asked: Asked, found: TopK, videos: IndexedVideos) -> Float[Tensor, "found"]:
    if not len(found.rows):
        return found.scores
    samples = videos.describe(found.rows.tolist(), found.segments.tolist()).samples
    whole, clips = (asked.samples(videos.settings, draw) for draw in ("moments", "clips"))
    queries = torch.where((found.segments == WHOLE)[:, None, None], whole, clips)
    return exact_log_probabilities(queries, samples, curve=videos.settings.curve)


def _calibrated(log_probability: float | None, calibration: Calibration | None) -> float | None:
    if log_probability is None or calibration is None:
        return None
    return float(calibration.probability(torch.tensor(log_probability, dtype=torch.float64)))
