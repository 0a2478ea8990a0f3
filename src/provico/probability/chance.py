"""Significance of a match: how often an unrelated video matches as well, and how many would by chance.

Without labels nobody knows how often hits are right. But the scores of unrelated videos are known, since most
pairs of a collection are unrelated. As with the E-value of a sequence search and the false match rate of face
recognition, a score is compared with what chance gives:

    u_V  = 95 % quantile of V's scores with videos of other recordings            V's own level
    t    = s - max(u_Q, u_V, u)                  u the median level of all videos
    rate = Phi(-(t - location) / scale)                                           false match rate
    expected by chance = rate * number of candidate videos

**Both sides must stand out.** A score is measured from the higher of both levels. A hub, and a video in a
crowd of look-alikes, score high with many videos, so their levels are high. A query that is unlike everything
has a low level, above which any score would stand out; the other video's level and the median level prevent
that.

**Location and scale** are the median and the quartiles of t over pairs of different recordings: Efron's
empirical null, fitted to the centre. All videos share them, since the spread of one video's scores predicts
its tail poorly. Some pairs are true matches. Those that clearly stand out are left out (`CLEARLY_OUT`); the
others widen the quartiles, which is conservative: rates come out larger.
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
"""The quantile of a video's scores that is its level. The median is overconfident in crowded regions."""
CLEARLY_OUT = 4.0
"""Scores this many lower half-widths above the median count as matches and are not part of the null."""

_QUARTILE = 0.6744897501960817  # of a normal distribution
_LOWER_DECILE = 1.2815515655446004


@dataclass(frozen=True, kw_only=True)
class ChanceModel:
    """The score distribution of unrelated videos of a collection, in units that all videos share."""

    level: float
    """The median level of the videos; the lowest level that scores are measured from."""
    location: float
    scale: float
    num_videos: int
    """Number of videos of the fit."""
    num_pairs: int
    share_out: float
    """Share of pairs that clearly stood out and were counted as matches."""

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
        """Fit to the scores of videos with each other; None if too few can be compared or all are equal.

        is_other: which pairs are of different recordings; only these are used.
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
        """Fit to the scores of unrelated queries of another kind than the videos, such as texts."""
        rows, columns = (scores.double().quantile(LEVEL_QUANTILE, dim=dim) for dim in (1, 0))
        level = float(torch.cat([rows, columns]).median())
        excess = scores.double() - torch.maximum(rows.unsqueeze(1), columns).clamp(min=level)
        return cls._of_excess(excess.flatten(), level, num_videos=scores.shape[1])

    @classmethod
    def _of_excess(
        cls, excess: Float[Tensor, "pairs"], level: float, *, num_videos: int
    ) -> ChanceModel | None:
        """Fit to the excess of scores over their base; None if half of them are equal."""
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
        """The probability that an unrelated video scores as high, in float64.

        own, other: the levels of the query and of the video; see `own_levels`.
        """
        base = torch.maximum(own.double(), other.double()).clamp(min=self.level)
        rates: Tensor = torch.special.ndtr((base + self.location - scores.double()) / self.scale)
        return rates

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ChanceModel:
        """The inverse of `to_dict`; raises ValueError or TypeError for other values."""
        return cls(**values)


def own_levels(
    scores: Float[Tensor, "videos references"], is_other: Bool[Tensor, "videos references"]
) -> Float[Tensor, "videos"]:
    """The level of each video, from the videos of other recordings; nan if there are too few."""
    num = is_other.sum(dim=1)
    # Excluded scores come first, so the position of the quantile is counted from the end.
    in_order = scores.double().masked_fill(~is_other, -torch.inf).sort(dim=1).values
    place = scores.shape[1] - 1 - ((1 - LEVEL_QUANTILE) * (num - 1).clamp(min=0)).round().long()
    levels = in_order.gather(1, place.unsqueeze(1)).squeeze(1)
    return levels.masked_fill(num < LEAST_UNRELATED, torch.nan)


def usual_level(
    scores: Float[Tensor, "videos"], unrelated: Float[Tensor, "queries videos"]
) -> Float[Tensor, ""]:
    """The level of a query that may match many videos: its median plus the usual distance.

    Its own quantile would lie among its matches if they are more than a few per cent of the collection.
    """
    rows = unrelated.double()
    above = (rows.quantile(LEVEL_QUANTILE, dim=1) - rows.median(dim=1).values).median()
    return scores.double().median() + above


def _central(excess: Float[Tensor, "pairs"]) -> tuple[float, float, int]:
    """Location and scale of sorted values from their quartiles, and how many values were used."""
    kept = excess
    while True:
        low, first, middle, third = (_quantile(kept, share) for share in (0.1, 0.25, 0.5, 0.75))
        limit = middle + CLEARLY_OUT * (middle - low) / _LOWER_DECILE
        num_kept = int((kept <= limit).sum())
        if num_kept == len(kept):
            return middle, (third - first) / (2 * _QUARTILE), num_kept
        kept = kept[:num_kept]


def _quantile(in_order: Float[Tensor, "pairs"], share: float) -> float:
    """A quantile of sorted values of any number: torch.quantile is limited to 16 million."""
    return float(in_order[round(share * (len(in_order) - 1))])
