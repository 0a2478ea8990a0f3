"""How surprising is a match? How often does an unrelated video match as well, and how many would by chance?

Without labels nobody knows how often hits are right. What can be known is what two videos that have nothing
to do with each other score, since in a collection most pairs are of that kind. As with the E-value of a
sequence search and the false match rate of face recognition, a score is compared with what chance gives:

    u_V  = 95 % quantile of V's scores with videos of other recordings            V's own level
    t    = s - max(u_Q, u_V, u)                  u the median level of all videos
    rate = Phi(-(t - location) / scale)                                           false match rate
    expected by chance = rate * number of videos that could be found

**Both sides must be surprised.** A score is measured from the higher of both levels. A hub, and a video in a
crowd of look-alikes, score high with many, so their levels are high. A query that is unlike everything has a
low level, from which any score would stand out; the level of the video and the median level prevent that.

**Location and scale** are the median and the quartiles of t over pairs of other recordings: the empirical
null of Efron, by its middle. All videos share them, since the spread of one video's scores is a poor guide to
its tail. Some pairs are true matches. Those that stand out clearly are left out (`CLEARLY_OUT`); the others
widen the quartiles, which is on the safe side: rates come out larger.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from provico.defaults import LEAST_UNRELATED

LEVEL_QUANTILE = 0.95
"""Which of a video's scores is its level. With the median, videos of crowded regions look too certain."""
CLEARLY_OUT = 4.0
"""Scores so many lower half-widths above the median are matches, and no part of the null."""

_QUARTILE = 0.6744897501960817  # of a normal distribution
_LOWER_DECILE = 1.2815515655446004


@dataclass(frozen=True, kw_only=True)
class ChanceModel:
    """What unrelated videos of a collection score, in units in which all videos are alike."""

    level: float
    """The median level of its videos; no video is measured from less."""
    location: float
    scale: float
    num_videos: int
    """How many videos were compared with each other."""
    num_pairs: int
    share_out: float
    """The share of pairs that stood out so clearly that they were taken for matches."""

    def __post_init__(self) -> None:
        numbers = (self.level, self.location, self.scale)
        if not (all(math.isfinite(number) for number in numbers) and self.scale > 0):
            raise ValueError(
                f"Level, location and scale are {numbers}, but they must be finite and the scale positive."
            )

    @classmethod
    def fit(
        cls,
        scores: Float[Tensor, "videos videos"],
        is_other: Bool[Tensor, "videos videos"],
    ) -> ChanceModel | None:
        """From the scores of videos with each other; None where too few can be compared, or all are equal.

        is_other: which pairs are of two recordings; only these count.
        """
        own = own_levels(scores, is_other)
        is_known = own.isfinite()
        if int(is_known.sum()) < LEAST_UNRELATED:
            return None
        counted = is_other & is_known & is_known.unsqueeze(1)
        level = float(own[is_known].median())
        base = torch.maximum(own.unsqueeze(1), own).clamp(min=level)
        return cls._of_excess((scores.double() - base)[counted], level, num_videos=int(is_known.sum()))

    @classmethod
    def between(cls, scores: Float[Tensor, "queries videos"]) -> ChanceModel | None:
        """From the scores of unrelated queries with videos of another kind, such as texts with videos."""
        rows, columns = (scores.double().quantile(LEVEL_QUANTILE, dim=dim) for dim in (1, 0))
        level = float(torch.cat([rows, columns]).median())
        excess = scores.double() - torch.maximum(rows.unsqueeze(1), columns).clamp(min=level)
        return cls._of_excess(excess.flatten(), level, num_videos=scores.shape[1])

    @classmethod
    def _of_excess(
        cls, excess: Float[Tensor, "pairs"], level: float, *, num_videos: int
    ) -> ChanceModel | None:
        """From how far pairs score above their base; None if half of them are equal."""
        location, scale, num_kept = _central(excess.sort().values)
        if not scale > 0:
            return None
        return cls(
            level=level,
            location=location,
            scale=scale,
            num_videos=num_videos,
            num_pairs=len(excess),
            share_out=1 - num_kept / len(excess),
        )

    def false_match_rate(
        self,
        scores: Float[Tensor, "*pairs"],
        own: Float[Tensor, "*pairs"],
        other: Float[Tensor, "*pairs"],
    ) -> Float[Tensor, "*pairs"]:
        """How often an unrelated video scores as high, in float64.

        own, other: the level of the query and that of the video, see `own_levels`.
        """
        base = torch.maximum(own.double(), other.double()).clamp(min=self.level)
        rates: Tensor = torch.special.ndtr((base + self.location - scores.double()) / self.scale)
        return rates

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ChanceModel:
        """What `to_dict` gave; raises ValueError or TypeError for anything else."""
        return cls(**values)


def own_levels(
    scores: Float[Tensor, "videos references"], is_other: Bool[Tensor, "videos references"]
) -> Float[Tensor, "videos"]:
    """The level of each video, by what is not of its recording; nan where there is too little of that."""
    num = is_other.sum(dim=1)
    # Excluded scores come first, so that the place of the quantile is counted from the end.
    in_order = scores.double().masked_fill(~is_other, -torch.inf).sort(dim=1).values
    place = scores.shape[1] - 1 - ((1 - LEVEL_QUANTILE) * (num - 1).clamp(min=0)).round().long()
    levels = in_order.gather(1, place.unsqueeze(1)).squeeze(1)
    return levels.masked_fill(num < LEAST_UNRELATED, torch.nan)


def usual_level(
    scores: Float[Tensor, "videos"], unrelated: Float[Tensor, "queries videos"]
) -> Float[Tensor, ""]:
    """The level of a query that many of the videos may match: as far above its median as is usual.

    Its own quantile would be that of its matches, where these are more than a few of the collection.
    """
    rows = unrelated.double()
    above = (rows.quantile(LEVEL_QUANTILE, dim=1) - rows.median(dim=1).values).median()
    return scores.double().median() + above


def _central(excess: Float[Tensor, "pairs"]) -> tuple[float, float, int]:
    """Location and scale of sorted numbers from their quartiles, and how many were not clearly out."""
    kept = excess
    while True:
        low, first, middle, third = (_quantile(kept, share) for share in (0.1, 0.25, 0.5, 0.75))
        limit = middle + CLEARLY_OUT * (middle - low) / _LOWER_DECILE
        num_kept = int((kept <= limit).sum())
        if num_kept == len(kept):
            return middle, (third - first) / (2 * _QUARTILE), num_kept
        kept = kept[:num_kept]


def _quantile(in_order: Float[Tensor, "pairs"], share: float) -> float:
    """Of sorted numbers, however many: torch.quantile takes 16 million at most."""
    return float(in_order[round(share * (len(in_order) - 1))])
