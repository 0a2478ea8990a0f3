"""What a search answers: hits, and what is known of all that was not found."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from provico.probability.calibration import Calibration

Exclusion = Literal["nothing", "video", "group"]
"""What a query may not find: `video` is itself; `group` is also what was cut from the same recording."""


@dataclass(frozen=True)
class Span:
    """A part of a video."""

    start_seconds: float
    end_seconds: float

    def __str__(self) -> str:
        return f"{in_minutes(self.start_seconds)}-{in_minutes(self.end_seconds)}"


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A video that was found, and why."""

    id: str
    path: str
    """Where the video was when it was indexed."""
    label: str | None
    group: str | None
    subset: str | None
    duration_seconds: float
    score: float
    """What hits are ranked by: log match probability, cosine, or minus a distance."""
    log_probability: float
    """log of the match probability with the query, whatever the metric."""
    calibrated_probability: float | None
    """How often hits with such a match probability are right; None if the index is not calibrated."""
    uncertainty: float
    """How unsure the encoder is of this video: `ambiguity` + `disagreement`."""
    ambiguity: float
    disagreement: float
    mean_distance: float
    """From the query's mean to this video's mean."""
    clip: Span
    """The clip of this video that is nearest to a clip of the query, by expected squared distance ..."""
    query_clip: Span
    """... and that clip of the query."""
    clip_squared_distance: float
    """Their expected squared distance."""
    preview: str
    """Path of a short H.264 video."""

    @property
    def probability(self) -> float:
        """The match probability."""
        return math.exp(self.log_probability)

    def summary(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return dataclasses.asdict(self) | {"probability": self.probability}


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """Whether the hits are proved to be the best, and what that took."""

    is_exact: bool
    ceiling: float
    """No video that was not scored has a log match probability, or a score of another metric, above this."""
    num_allowed: int
    """Videos that could have been found."""
    num_scored: int
    """Videos that were compared in full."""
    num_bounded: int
    """Videos that needed a bound of their own."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was found for one query."""

    query: str
    """The id, or the path of the file."""
    span: Span | None
    """The part of the query that was asked about; None for all of it."""
    uncertainty: float
    """How unsure the encoder is of the query: `ambiguity` + `disagreement`."""
    ambiguity: float
    disagreement: float
    metric: str
    hits: tuple[Hit, ...]
    """The best first."""
    min_probability: float | None
    best_log_probability: float | None
    """Of the best video, even if it is not probable enough to be a hit; None if there was none to compare."""
    best_calibrated_probability: float | None
    """The same, calibrated."""
    certificate: Certificate
    calibration: Calibration | None
    """What calibrated probabilities rest on; None if the index is not calibrated."""

    @property
    def min_probability_of(self) -> Literal["calibrated", "match"]:
        """Which probability `min_probability` is about."""
        return "match" if self.calibration is None else "calibrated"

    @property
    def best_probability(self) -> float | None:
        """The same as a probability."""
        return None if self.best_log_probability is None else math.exp(self.best_log_probability)

    @property
    def is_confident(self) -> bool:
        """False is an answer, too: no video matches with the probability that was asked for."""
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
            "min_probability_of": self.min_probability_of,
            "certificate": certificate,
            "calibration": None if self.calibration is None else self.calibration.summary(),
        }


@dataclass(frozen=True, kw_only=True)
class AddReport:
    """What came of adding a catalog to an index."""

    path: Path
    num_videos: int
    """In the index now."""
    num_added: int
    """Were not in the index before."""
    num_changed: int
    """Files that had changed, and were embedded again."""
    num_relabelled: int
    """Files that had not changed but whose path, label, group, subset or time of change had."""
    num_recognised: int
    """Files that were moved, renamed or copied: their content was indexed under another id already."""
    num_unchanged: int
    vanished: tuple[str, ...]
    """Ids of indexed videos whose files are gone."""
    num_removed: int
    """How many of these were removed from the index."""
    failed: tuple[tuple[str, str], ...]
    """Ids of the videos that could not be read, with the reasons. They are not in the index."""

    @property
    def has_changed(self) -> bool:
        """Whether the index is not as it was."""
        return bool(
            self.num_added + self.num_changed + self.num_relabelled + self.num_recognised + self.num_removed
        )

    def summary(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return dataclasses.asdict(self) | {
            "path": str(self.path),
            "vanished": list(self.vanished),
            "failed": dict(self.failed),
        }


def in_minutes(seconds: float) -> str:
    """0:07.5 or 1:02:03.0."""
    minutes, rest = divmod(round(seconds, 1), 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02}:{rest:04.1f}" if hours else f"{minutes}:{rest:04.1f}"
