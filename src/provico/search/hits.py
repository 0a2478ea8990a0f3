"""Hits, and what the index knows of them: which moment was found, and which clips agree."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from provico.probability.calibration import Calibration
from provico.probability.distances import Moments, Sampled, squared_euclidean_expected
from provico.probability.gaussian import Gaussian
from provico.search.exact.found import WHOLE
from provico.search.query import TIMELINE, Asked, IndexedVideos, Span

_COLUMNS = (
    *("id", "path", "label", "group", "subset", "preview"),
    *("duration_seconds", "uncertainty", "disagreement"),
    *("mean", "start_seconds", "end_seconds", "clip_mean", "clip_log_var"),
)


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
    moment: Span
    """The part of the video that matches best: all of a short one."""
    score: float
    """What hits are ranked by: log match probability, cosine, or minus a distance."""
    log_probability: float
    """log of the match probability with the query, whatever the metric."""
    calibrated_probability: float | None
    """How often hits with such a match probability are right; None if the index is not calibrated."""
    false_match_rate: float | None
    """How often an unrelated video of the index matches the query as well; None if that cannot be said."""
    expected_by_chance: float | None
    """How many unrelated videos are expected to match as well: the rate times the allowed videos."""
    uncertainty: float
    """How unsure the encoder is of this video."""
    disagreement: float
    mean_distance: float
    """From the query's mean to this moment's mean."""
    clip: Span
    """The clip of this moment that is nearest to a clip of the query, by expected squared distance ..."""
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

    @property
    def is_whole(self) -> bool:
        """Whether all of the video is what matches best."""
        return self.moment == Span(0.0, self.duration_seconds)

    def summary(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return dataclasses.asdict(self) | {"probability": self.probability}


class HitRows:
    """What the store has of all hits of all queries, read at once."""

    def __init__(
        self,
        hits: Sequence[tuple[Int[Tensor, "hits"], Int[Tensor, "hits"]]],
        videos: IndexedVideos,
        previews: Path,
        calibration: Calibration | None,
    ) -> None:
        rows = sorted({row for some, _ in hits for row in some.tolist()})
        self._videos, self._columns = videos, videos.read(_COLUMNS, rows)
        self._index = {row: index for index, row in enumerate(rows)}
        self._previews, self._calibration = previews, calibration

    def hits(
        self,
        asked: Asked,
        rows: Int[Tensor, "hits"],
        parts: Int[Tensor, "hits"],
        scores: list[float],
        log_probabilities: list[float],
        rates: Sequence[float | None],
        expected: Sequence[float | None],
    ) -> tuple[Hit, ...]:
        """The hits of one query."""
        if not scores:
            return ()
        indices = [self._index[row] for row in rows.tolist()]
        known = self._columns
        clips = Gaussian.from_numpy(known["clip_mean"][indices], known["clip_log_var"][indices])
        squared, mine, theirs = nearest_clips(asked.clips, clips)
        starts, ends = (torch.from_numpy(known[name][indices]) for name in ("start_seconds", "end_seconds"))
        spans = torch.stack([starts, ends], dim=2)[torch.arange(len(indices)), theirs]
        means = torch.from_numpy(known["mean"][indices])
        ends = torch.from_numpy(known["duration_seconds"][indices])
        moments = torch.stack([torch.zeros_like(ends), ends], dim=1)
        for place in (parts != WHOLE).nonzero().flatten().tolist():
            span = self._videos.seconds_of(int(parts[place]))
            moments[place] = torch.tensor([span.start_seconds, span.end_seconds])
            times, inside = self._clips_of(int(rows[place]), span)
            means[place] = inside.mean[0].mean(dim=0)
            squared[place], mine[place], nearest = (one[0] for one in nearest_clips(asked.clips, inside))
            spans[place] = times[nearest]
        gaps = means - asked.mixture.mean.double()
        found = zip(
            indices,
            scores,
            log_probabilities,
            self._calibrated(log_probabilities),
            rates,
            expected,
            gaps.norm(dim=1).tolist(),
            squared.tolist(),
            asked.clip_seconds[mine].tolist(),
            spans.tolist(),
            moments.tolist(),
            strict=True,
        )
        return tuple(
            Hit(
                id=known["id"][index],
                path=known["path"][index],
                label=known["label"][index],
                group=known["group"][index],
                subset=known["subset"][index],
                duration_seconds=float(known["duration_seconds"][index]),
                moment=Span(*moment),
                score=score,
                log_probability=log_probability,
                calibrated_probability=calibrated,
                false_match_rate=rate,
                expected_by_chance=number,
                uncertainty=float(known["uncertainty"][index]),
                disagreement=float(known["disagreement"][index]),
                mean_distance=gap,
                clip=Span(*clip),
                query_clip=Span(*query_clip),
                clip_squared_distance=distance,
                preview=str(self._previews / known["preview"][index]),
            )
            for (
                index,
                score,
                log_probability,
                calibrated,
                rate,
                number,
                gap,
                distance,
                query_clip,
                clip,
                moment,
            ) in found
        )

    def _clips_of(self, row: int, span: Span) -> tuple[Float[Tensor, "clips 2"], Gaussian]:
        """The clips of a long video that lie within a moment of it, with an axis for one video."""
        known = self._videos.read(TIMELINE, [row])
        times, mean, log_var = (torch.from_numpy(known[name][0]) for name in TIMELINE)
        inside = (times[:, 0] >= span.start_seconds) & (times[:, 1] <= span.end_seconds)
        return times[inside], Gaussian(mean[inside], log_var[inside])[None]

    def _calibrated(self, log_probabilities: list[float]) -> list[float] | list[None]:
        """All at once, since a tensor of one number takes as long as one of many."""
        if self._calibration is None:
            return [None] * len(log_probabilities)
        probabilities: list[float] = self._calibration.probability(
            torch.tensor(log_probabilities, dtype=torch.float64)
        ).tolist()
        return probabilities


def nearest_clips(
    ours: Gaussian, theirs: Gaussian
) -> tuple[Float[Tensor, "videos"], Int[Tensor, "videos"], Int[Tensor, "videos"]]:
    """Of our clips and those of each video, the pair with the least expected squared distance, and where.

    The variances are part of it, so a clip of which the encoder is unsure is near to nothing.

    ours: "clips dim"; theirs: "videos clips dim".
    """
    num_videos, num_clips, dim = theirs.mean.shape
    sides = [
        Gaussian(side.mean.double().view(-1, dim), side.log_var.double().view(-1, dim))
        for side in (ours, theirs)
    ]
    distances = squared_euclidean_expected(*(Sampled(side, Moments.of_gaussian(side)) for side in sides))
    pairs = distances.view(-1, num_videos, num_clips).transpose(0, 1).flatten(1)
    least, index = pairs.min(dim=1)
    return least, index // num_clips, index % num_clips
