"""The k videos with the highest match probability, exactly, and a certificate that no other is better.

    1. Score the videos that are nearest by mean squared distance. The k-th best of them sets a threshold:
       the answer has k videos that reach it.
    2. From the threshold follows how near a video of each group must be to reach it (`hopeless_from`).
       All others are dismissed by their distance alone.
    3. Of those that are near enough, most are dismissed by a bound of their own (`item_moments`).
    4. The rest is scored, the highest bounds first, so that the threshold rises and dismisses more.

If the bounds dismiss nothing, this is the full scan. docs/exact-search.md has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from provico.errors import ConfigError
from provico.probability.match_scores import slope_and_offset
from provico.probability.matching import MatchCurve
from provico.search.exact.bounds import MomentBound, least_probability
from provico.search.exact.clouds import describe
from provico.search.exact.gallery import LONGEST, Distances, Gallery
from provico.search.exact.moments import hopeless_from, item_moments, squared_gaps
from provico.search.exact.scoring import exact_log_probabilities, screen
from provico.search.exact.sides import Sides

SHORTLIST = 6
"""Videos beyond k that are scored at once, without a bound."""
WIDE, MANY = 0.5, 1024
"""Share of blocks with videos within the radius, above which a query is looked at from both sides, and of how
many videos at least."""
SCREEN_FROM = 48
"""From so many videos on it pays to score in float32 first."""
SCREENED_AT_ONCE = 512
"""Videos that float32 scores at once."""
LARGEST_ROUND = 4096
"""Videos that are bounded or scored at once, which limits the memory."""
QUERIES_AT_ONCE, DISTANCES_AT_ONCE = 64, 2**23
"""Queries that are scanned together, and how many distances they may have (32 MB)."""
FLOAT64_UNIT = 2.0**-52
WHOLE = -1
"""Stands for all of a video, where a segment of it could be named."""


Number = TypeVar("Number", float, Tensor)


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """Whether the best videos are proved to be the best, and what that took."""

    is_exact: bool
    ceiling: float
    """No video that was not scored has a log match probability, or a score of another metric, above this."""
    num_allowed: int
    """Videos that could have been found, and segments of long ones."""
    num_scored: int
    """Videos that were compared in full: whose K x K pairs of samples were looked at."""
    num_bounded: int
    """Videos that were near enough to need a bound of their own."""

    @classmethod
    def of_scan(cls, num_allowed: int) -> Certificate:
        """For a search that compares with every video."""
        return cls(
            is_exact=True, ceiling=-math.inf, num_allowed=num_allowed, num_scored=num_allowed, num_bounded=0
        )


@dataclass(frozen=True, eq=False)
class TopK:
    """The best videos for one query, and what is known of all others."""

    rows: Int[Tensor, "found"]
    """Into the gallery, the best first; of equal scores the one earlier in the gallery."""
    scores: Float[Tensor, "found"]
    """log p of each, or its similarity by another metric, in float64."""
    certificate: Certificate
    parts: Int[Tensor, "found"] | None = None
    """Which segment of each matches best (`search/segments.py`), or `WHOLE`; None if all are whole."""

    @property
    def segments(self) -> Int[Tensor, "found"]:
        """`parts`, where none are given too."""
        return torch.full_like(self.rows, WHOLE) if self.parts is None else self.parts

    def best(self, num: int) -> TopK:
        """The first of them."""
        return TopK(self.rows[:num], self.scores[:num], self.certificate, self.segments[:num])

    @classmethod
    def nothing(cls) -> TopK:
        """The best of no videos."""
        empty = torch.empty(0, dtype=torch.float64)
        return cls(empty.long(), empty, Certificate.of_scan(0))


@torch.no_grad()
def exact_top_k(
    queries: Float[Tensor, "queries samples dim"],
    gallery: Gallery,
    *,
    curve: MatchCurve,
    k: int = 10,
    min_log_probability: float = -math.inf,
    allowed: Bool[Tensor, "videos"] | None = None,
) -> list[TopK]:
    """The k best videos for each query by log p(m|V_q, V_g), from the K samples of each.

    min_log_probability: videos below this are left out, which ends the search early where nothing matches.
    allowed: which videos may be found; all, unless told.
    """
    if k < 1:
        raise ConfigError(f"k is {k}, but it must be at least 1.")
    if not min_log_probability <= 0:
        raise ConfigError(f"min_log_probability is {min_log_probability}, but a logarithm of p is at most 0.")
    dim = gallery.dim
    if queries.ndim != 3 or queries.shape[2] != dim or not bool((queries.abs() < LONGEST).all()):
        raise ConfigError(
            f"The queries have shape {tuple(queries.shape)}, but numbers below {LONGEST:g} of shape "
            f"(queries, samples, {dim}) are needed. Embed them with the encoder of the gallery."
        )
    if torch.get_float32_matmul_precision() != "highest":
        raise ConfigError(
            f"Matrix products have {torch.get_float32_matmul_precision()!r} precision, whose rounding no "
            "certificate covers. Call torch.set_float32_matmul_precision('highest')."
        )
    num_allowed = len(gallery) if allowed is None else int(allowed.sum())
    limits = _Limits(min(k, num_allowed), min_log_probability, num_allowed)
    size = max(1, min(QUERIES_AT_ONCE, DISTANCES_AT_ONCE // len(gallery)))
    found = []
    for part in torch.split(queries.float(), size):
        batch = _Batch(part, gallery, curve, limits)
        if num_allowed > 0:
            batch.scan(allowed, num_shortlisted=min(num_allowed, k + SHORTLIST))
        found += [search.result() for search in batch.searches]
    return found


@dataclass(frozen=True)
class _Limits:
    k: int
    min_log_probability: float
    num_allowed: int


class _Batch:
    """Some queries that go through all stages together, as long as each has few videos left."""

    def __init__(
        self,
        queries: Float[Tensor, "queries samples dim"],
        gallery: Gallery,
        curve: MatchCurve,
        limits: _Limits,
    ) -> None:
        self._queries, self._gallery, self._curve = queries, gallery, curve
        self._bound = MomentBound.of(curve)
        mean, self._spread = describe(queries)
        self._middles = (mean - gallery.centre).float()
        self._samples = (queries.double() - gallery.centre).float()
        self._origin = max(gallery.origin, float(self._spread.reach.max()))
        self.searches = [_Search(samples, gallery, curve, limits) for samples in queries]

    def scan(self, allowed: Bool[Tensor, "videos"] | None, *, num_shortlisted: int) -> None:
        """Compute all distances, and look again only at what is near enough."""
        if allowed is not None:
            allowed = allowed[self._gallery.rows]
        distances = self._gallery.scan.distances(self._middles, allowed)
        nearest = distances.nearest(num_shortlisted)
        self._score(torch.arange(len(nearest)).repeat_interleave(num_shortlisted), nearest.flatten())
        is_known = torch.zeros(len(nearest), len(self._gallery), dtype=torch.bool).scatter_(1, nearest, True)
        radii = self._radii(distances)
        is_wide = (distances.share_of_blocks_within(radii) > WIDE) & (len(self._gallery) >= MANY)
        query, index = distances.within(radii, ~is_wide)
        is_new = ~is_known[query, index]
        query, index = query[is_new], index[is_new]
        num_bounded = torch.bincount(query, minlength=len(nearest))
        self._work_through(query, index, num_bounded)
        if bool(is_wide.any()):
            self._look_from_both_sides(is_wide.nonzero().flatten(), distances, radii, is_known)

    def _look_from_both_sides(
        self,
        wide: Int[Tensor, "some"],
        distances: Distances,
        radii: Float[Tensor, "queries groups"],
        is_known: Bool[Tensor, "queries videos"],
    ) -> None:
        least = torch.tensor([self.searches[one].least_probability() for one in wide], dtype=torch.float64)
        sides = Sides(
            self._queries[wide], self._spread[wide], self._gallery, self._bound, least, origin=self._origin
        )
        place, index, num_near = sides.left(wide, distances, radii[wide])
        query = wide[place]
        is_new = ~is_known[query, index]
        num_bounded = torch.zeros(len(self.searches), dtype=torch.long)
        num_bounded[wide] = num_near - is_known[wide].sum(dim=1)
        self._work_through(query[is_new], index[is_new], num_bounded)

    def _radii(self, distances: Distances) -> Float[Tensor, "queries groups"]:
        """How far from each query a video of each group can be and reach the threshold."""
        return hopeless_from(
            [search.threshold() for search in self.searches],
            self._bound,
            self._middles,
            self._spread,
            self._gallery.extents,
            origin=self._origin,
            scan_error=distances.error,
        )

    def _work_through(
        self,
        query: Int[Tensor, "pairs"],
        index: Int[Tensor, "pairs"],
        num_bounded: Int[Tensor, "queries"],
    ) -> None:
        """Score the pairs, sorted by query, that a bound of their own does not dismiss."""
        for search, num in zip(self.searches, num_bounded.tolist(), strict=True):
            search.num_bounded += num
        if len(query) == 0:
            return
        bounds = self._bounds(query, index)
        least = [search.least_probability() for search in self.searches]
        is_left = bounds >= torch.tensor(least, dtype=torch.float64)[query]
        query, index, bounds = query[is_left], index[is_left], bounds[is_left]
        num_left = torch.bincount(query, minlength=len(least))
        is_easy = num_left <= SCREEN_FROM
        for number, search in enumerate(self.searches):
            if not is_easy[number]:
                search.work_through(index[query == number], bounds[query == number])
        # Where few videos are left, those of all queries are scored together.
        self._score(query[is_easy[query]], index[is_easy[query]])

    def _bounds(self, query: Int[Tensor, "pairs"], index: Int[Tensor, "pairs"]) -> Float[Tensor, "pairs"]:
        parts = []
        for queries, indices in zip(
            torch.split(query, LARGEST_ROUND), torch.split(index, LARGEST_ROUND), strict=True
        ):
            middles, spread = self._gallery.scan.middles[indices], self._gallery.spread[indices]
            counts = torch.bincount(queries, minlength=len(self._samples)).tolist()
            found = [
                squared_gaps(samples, part)
                for samples, part in zip(self._samples, torch.split(middles, counts), strict=True)
                if len(part)
            ]
            gaps, reaches = (torch.cat(column) for column in zip(*found, strict=True))
            moments = item_moments(gaps, reaches, spread, dim=self._gallery.dim, origin=self._origin)
            parts.append(self._bound(moments))
        # What is not a number is not known, and could be anything.
        return torch.cat(parts).nan_to_num(nan=1.0)

    def _score(self, query: Int[Tensor, "pairs"], index: Int[Tensor, "pairs"]) -> None:
        """Score the pairs, sorted by query, in float64."""
        if len(query) == 0:
            return
        counts = torch.bincount(query, minlength=len(self.searches)).tolist()
        scores = exact_log_probabilities(
            self._queries[query], self._gallery.samples(index), curve=self._curve
        )
        parts = zip(torch.split(index, counts), torch.split(scores, counts), strict=True)
        for search, (indices, known) in zip(self.searches, parts, strict=True):
            search.add(indices, known, num_scored=len(indices))


class _Search:
    """What is known so far for one query."""

    def __init__(
        self, samples: Float[Tensor, "samples dim"], gallery: Gallery, curve: MatchCurve, limits: _Limits
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
        first, size = 0, SCREEN_FROM
        while num_left := int((bounds[first:] >= self.least_probability()).sum()):
            size = min(size, num_left)
            chosen = indices[order[first : first + size]]
            likely = self._screened(chosen) if size >= SCREEN_FROM else chosen
            samples = self._gallery.samples(likely)
            queries = self._samples.expand(len(samples), -1, -1)
            self.add(likely, exact_log_probabilities(queries, samples, curve=self._curve), num_scored=size)
            first, size = first + size, min(2 * size, LARGEST_ROUND)

    def threshold(self, more: Tensor | None = None) -> float:
        """The log p that a video must reach to be among the best, less what rounding may hide."""
        least = self._limits.min_log_probability
        scores = self._scores if more is None else torch.cat([self._scores, more])
        if 0 < self._limits.k <= len(scores):
            least = max(least, float(scores.kthvalue(len(scores) - self._limits.k + 1).values))
        return least - 4 * self._rounding(least) if least > -math.inf else least

    def least_probability(self) -> float:
        """What a bound must reach for a video to be scored."""
        return least_probability(self.threshold())

    def result(self) -> TopK:
        """The best of what was scored."""
        rows = self._gallery.rows[self._indices]
        order, best = in_order(self._scores, rows, self._rounding)
        order, best = order[: self._limits.k], best[: self._limits.k]
        is_found = best >= self._limits.min_log_probability
        rows, best, ceiling = rows[order][is_found], best[is_found], self.threshold()
        last = float(best[-1]) if len(best) == self._limits.k > 0 else self._limits.min_log_probability
        return TopK(
            rows,
            best,
            Certificate(
                is_exact=ceiling <= last,
                ceiling=ceiling,
                num_allowed=self._limits.num_allowed,
                num_scored=self._num_scored,
                num_bounded=self.num_bounded,
            ),
        )

    def _screened(self, indices: Int[Tensor, "some"]) -> Int[Tensor, "fewer"]:
        """The videos that may be among the best by what float32 says."""
        parts = [
            screen(self._samples, self._gallery.samples(part), curve=self._curve)
            for part in torch.split(indices, SCREENED_AT_ONCE)
        ]
        score, error = (torch.cat(column) for column in zip(*parts, strict=True))
        # Where float32 overflows, the error is not a number, and nothing is known.
        least = self.threshold((score - error).nan_to_num(nan=-torch.inf))
        return indices[~(score + error < least)]

    def _rounding(self, log_probability: Number) -> Number:
        return rounding(log_probability, dim=self._gallery.dim, offset=self._offset)


def rounding(log_probability: Number, *, dim: int, offset: float) -> Number:
    """How far log p may be off: by the rounding of its logit, times 1 - p where that is small."""
    size = abs(log_probability)
    logit = 1 + 2 * offset + size
    return (dim + 64) * FLOAT64_UNIT * logit * size / (1 + size)


def in_order(
    scores: Float[Tensor, "found"], places: Int[Tensor, "found"], rounding: Callable[[Tensor], Tensor]
) -> tuple[Int[Tensor, "found"], Float[Tensor, "found"]]:
    """From the best to the worst: which, and their scores.

    Scores that rounding cannot tell apart are one tie, in the order of places, with the score of its first.
    """
    sorted_scores, order = scores.sort(descending=True)
    is_below = sorted_scores[:-1] - sorted_scores[1:] > rounding(sorted_scores[1:])
    tie = torch.cat([is_below.new_zeros(1), is_below]).cumsum(0)[: len(scores)]
    in_ties = (tie * (int(places.max()) + 1 if len(places) else 1) + places[order]).argsort()
    return order[in_ties], sorted_scores[torch.searchsorted(tie, tie[in_ties])]
