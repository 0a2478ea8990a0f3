"""What is known of one query while its best videos are looked for, and what others must reach."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from provico.probability.match_scores import slope_and_offset
from provico.probability.matching import MatchCurve
from provico.search.exact.bounds import LEAST_LOG_THRESHOLD, least_probability
from provico.search.exact.found import Certificate, Number, TopK, in_order, rounding
from provico.search.exact.gallery import Gallery
from provico.search.exact.scoring import exact_log_probabilities, screen

LARGEST_ROUND = 4096
"""Videos that are bounded or scored at once, which limits the memory."""
SCREEN_FROM = 48
"""From so many videos on it pays to score in float32 first."""
SCREENED_AT_ONCE = 512
"""Videos that float32 scores at once."""


@dataclass(frozen=True)
class Limits:
    """How many videos are wanted, how good they must be, and how many there are."""

    k: int
    min_log_probability: float
    num_allowed: int


class Known:
    """What is known so far for one query."""

    def __init__(
        self, samples: Float[Tensor, "samples dim"], gallery: Gallery, curve: MatchCurve, limits: Limits
    ) -> None:
        self._samples, self._gallery, self._curve, self._limits = samples, gallery, curve, limits
        self._indices: Tensor = torch.empty(0, dtype=torch.long)
        self._scores: Tensor = torch.empty(0, dtype=torch.float64)
        self._num_scored = self.num_bounded = 0
        self._offset = abs(slope_and_offset(curve)[1])

    def add(self, indices: Int[Tensor, "some"], scores: Float[Tensor, "some"], *, num_scored: int) -> None:
        """Take videos whose scores are known, the best of those that were scored."""
        self._indices, self._scores = torch.cat([self._indices, indices]), torch.cat([self._scores, scores])
        self._num_scored += num_scored

    def work_through(self, indices: Int[Tensor, "some"], bounds: Float[Tensor, "some"]) -> None:
        """Score many videos, in ever larger rounds, those with the highest bounds first."""
        bounds, order = bounds.sort(descending=True)
        indices, size = indices[order], SCREEN_FROM
        while len(indices):
            chosen = indices[:size]
            likely = self._screened(chosen) if len(chosen) >= SCREEN_FROM else chosen
            samples = self._gallery.samples(likely)
            queries = self._samples.expand(len(samples), -1, -1)
            scores = exact_log_probabilities(queries, samples, curve=self._curve)
            self.add(likely, scores, num_scored=len(chosen))
            is_left = self.are_left(indices[size:], bounds[size:])
            indices, bounds = indices[size:][is_left], bounds[size:][is_left]
            size = min(2 * size, LARGEST_ROUND)

    def threshold(self) -> float:
        """The log p that a video must reach to be among the best, less what rounding may hide."""
        return self._lowered(self._level(self._scores))

    def least_probability(self) -> float:
        """What a bound must reach for a video to be scored."""
        return least_probability(self.threshold())

    def are_left(self, indices: Int[Tensor, "some"], bounds: Float[Tensor, "some"]) -> Bool[Tensor, "some"]:
        """Which videos may be among the best, from a bound of each."""
        return bounds >= self.least_probability()

    def result(self) -> TopK:
        """The best of what was scored."""
        rows = self._gallery.rows[self._indices]
        order, best = in_order(self._scores, rows, self._rounding)
        kept = self._kept(self._indices[order])
        order, best = order[kept], best[kept]
        is_found = best >= self._limits.min_log_probability
        rows, best, ceiling = rows[order][is_found], best[is_found], self.threshold()
        return TopK(
            rows,
            best,
            Certificate(
                is_exact=ceiling <= self._last(best),
                ceiling=ceiling,
                num_allowed=self._limits.num_allowed,
                num_scored=self._num_scored,
                num_bounded=self.num_bounded,
            ),
        )

    def _kept(self, indices: Int[Tensor, "found"]) -> slice | Int[Tensor, "some"]:
        """Which of those that were scored are the answer, from the best to the worst."""
        return slice(self._limits.k)

    def _last(self, best: Float[Tensor, "found"]) -> float:
        """The log p of the k-th best, from what was found."""
        limits = self._limits
        return float(best[-1]) if len(best) == limits.k > 0 else limits.min_log_probability

    def _screened(self, indices: Int[Tensor, "some"]) -> Int[Tensor, "fewer"]:
        """The videos that may be among the best by what float32 says."""
        parts = [
            screen(self._samples, self._gallery.samples(part), curve=self._curve)
            for part in torch.split(indices, SCREENED_AT_ONCE)
        ]
        score, error = (torch.cat(column) for column in zip(*parts, strict=True))
        # Where float32 overflows, the error is not a number, and nothing is known.
        least = self._least(indices, (score - error).nan_to_num(nan=-torch.inf))
        return indices[~(score + error < least)]

    def _least(self, indices: Int[Tensor, "some"], scores: Float[Tensor, "some"]) -> float | Tensor:
        """The log p that each must reach, where their own scores are at least these."""
        return self._lowered(self._level(torch.cat([self._scores, scores])))

    def _level(self, scores: Float[Tensor, "some"]) -> float:
        """The k-th best of some scores, or the least that is wanted."""
        least, k = self._limits.min_log_probability, self._limits.k
        if not 0 < k <= len(scores):
            return least
        return max(least, float(scores.kthvalue(len(scores) - k + 1).values))

    def _lowered(self, level: float) -> float:
        return level - 4 * self._rounding(level) if level > -math.inf else level

    def _rounding(self, log_probability: Number) -> Number:
        return rounding(log_probability, dim=self._gallery.dim, offset=self._offset)


class OwnersKnown(Known):
    """What is known of the owners of parts: each has a score, which rises as its parts are scored."""

    def __init__(
        self,
        samples: Float[Tensor, "samples dim"],
        gallery: Gallery,
        curve: MatchCurve,
        limits: Limits,
        owner: Int[Tensor, "videos"],
        known: Float[Tensor, "owners"],
    ) -> None:
        super().__init__(samples, gallery, curve, limits)
        self._owner, self._of_owners = owner, known.clone()

    def add(self, indices: Int[Tensor, "some"], scores: Float[Tensor, "some"], *, num_scored: int) -> None:
        """Take parts whose scores are known."""
        super().add(indices, scores, num_scored=num_scored)
        self._of_owners = self._risen(indices, scores)

    def threshold(self) -> float:
        """The log p that an owner must reach to be among the best, less what rounding may hide."""
        return self._lowered(self._level(self._of_owners))

    def are_left(self, indices: Int[Tensor, "some"], bounds: Float[Tensor, "some"]) -> Bool[Tensor, "some"]:
        """Which parts may be the best of an owner that may be among the best."""
        least = self._at_least(indices, self._of_owners)
        return bounds >= torch.where(least > LEAST_LOG_THRESHOLD, least.exp(), 0.0)

    def _least(self, indices: Int[Tensor, "some"], scores: Float[Tensor, "some"]) -> Tensor:
        return self._at_least(indices, self._risen(indices, scores))

    def _at_least(
        self, indices: Int[Tensor, "some"], of_owners: Float[Tensor, "owners"]
    ) -> Float[Tensor, "some"]:
        level = of_owners[self._owner[indices]].clamp(min=self._level(of_owners))
        return torch.where(level > -torch.inf, level - 4 * self._rounding(level), level)

    def _risen(self, indices: Int[Tensor, "some"], scores: Float[Tensor, "some"]) -> Float[Tensor, "owners"]:
        return self._of_owners.scatter_reduce(0, self._owner[indices], scores, "amax")

    def _kept(self, indices: Int[Tensor, "found"]) -> Int[Tensor, "some"]:
        """The best part of each owner."""
        owners, places = self._owner[indices], torch.arange(len(indices))
        first = torch.full_like(self._of_owners, len(indices), dtype=torch.long)
        first = first.scatter_reduce(0, owners, places, "amin")
        return first[first < len(indices)].sort().values

    def _last(self, best: Float[Tensor, "found"]) -> float:
        """The log p of the k-th best owner, by a part or without."""
        return self._level(self._of_owners)
