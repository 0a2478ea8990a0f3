"""The k videos with the highest match probability, exactly, and a certificate that no other is better.

    1. Score the videos that are nearest by mean squared distance. The k-th best of them sets a threshold:
       the answer has k videos that reach it.
    2. From the threshold follows how near a video of each group must be to reach it (`hopeless_from`).
       All others are dismissed by their distance alone.
    3. Of those that are near enough, most are dismissed by a bound of their own (`item_moments`).
    4. The rest is scored, the highest bounds first, so that the threshold rises and dismisses more.

If the bounds dismiss nothing, this is the full scan. docs/exact-search.md has the proofs.

Where videos are parts of something (`Owners`), the k best owners are found, each by its best part. A part
must then reach the k-th best owner, and what its own owner has already.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from provico.errors import ConfigError
from provico.probability.matching import MatchCurve
from provico.search.exact.bounds import MomentBound
from provico.search.exact.clouds import describe
from provico.search.exact.found import Owners, TopK
from provico.search.exact.gallery import LONGEST, Distances, Gallery
from provico.search.exact.known import LARGEST_ROUND, SCREEN_FROM, Known, Limits, OwnersKnown
from provico.search.exact.moments import hopeless_from, item_moments, squared_gaps
from provico.search.exact.scoring import exact_log_probabilities
from provico.search.exact.sides import Sides

SHORTLIST = 6
"""Videos beyond k that are scored at once, without a bound."""
WIDE, MANY = 0.5, 2048
"""Share of blocks with videos within the radius, and number of such videos, above which a query is looked at
from both sides."""
QUERY_SAMPLES_AT_ONCE = 2**10
"""Samples of queries that are looked at from both sides together."""
QUERIES_AT_ONCE, DISTANCES_AT_ONCE = 64, 2**23
"""Queries that are scanned together, and how many distances they may have (32 MB)."""


@torch.no_grad()
def exact_top_k(
    queries: Float[Tensor, "queries samples dim"],
    gallery: Gallery,
    *,
    curve: MatchCurve,
    k: int = 10,
    min_log_probability: float = -math.inf,
    allowed: Bool[Tensor, "videos"] | None = None,
    owners: Owners | None = None,
) -> list[TopK]:
    """The k best videos for each query by log p(m|V_q, V_g), from the K samples of each.

    min_log_probability: videos below this are left out, which ends the search early where nothing matches.
    allowed: which videos may be found; all, unless told.
    owners: find the best part of each owner that is among the k best owners and is better than what it has.
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
    limits = Limits(k if owners else min(k, num_allowed), min_log_probability, num_allowed)
    size = max(1, min(QUERIES_AT_ONCE, DISTANCES_AT_ONCE // len(gallery)))
    found = []
    for part in torch.split(queries.float(), size):
        batch = _Batch(part, gallery, curve, limits, owners)
        if num_allowed > 0:
            batch.scan(allowed, num_shortlisted=min(num_allowed, k + SHORTLIST))
        found += [search.result() for search in batch.searches]
    return found


class _Batch:
    """Some queries that go through all stages together, as long as each has few videos left."""

    def __init__(
        self,
        queries: Float[Tensor, "queries samples dim"],
        gallery: Gallery,
        curve: MatchCurve,
        limits: Limits,
        owners: Owners | None,
    ) -> None:
        self._queries, self._gallery, self._curve = queries, gallery, curve
        self._bound = MomentBound.of(curve)
        mean, self._spread = describe(queries)
        self._middles = (mean - gallery.centre).float()
        self._samples = (queries.double() - gallery.centre).float()
        self._origin = max(gallery.origin, float(self._spread.reach.max()))
        self._owner = None if owners is None else owners.of[gallery.rows]
        self.searches = [
            Known(samples, gallery, curve, limits)
            if self._owner is None or owners is None
            else OwnersKnown(samples, gallery, curve, limits, self._owner, owners.known)
            for samples in queries
        ]

    def scan(self, allowed: Bool[Tensor, "videos"] | None, *, num_shortlisted: int) -> None:
        """Compute all distances, and look again only at what is near enough."""
        if allowed is not None:
            allowed = allowed[self._gallery.rows]
        distances = self._gallery.scan.distances(self._middles, allowed)
        query, index = (
            distances.nearest(num_shortlisted)
            if self._owner is None
            else distances.nearest_of_owners(num_shortlisted, self._owner)
        )
        self._score(query, index)
        is_known = torch.zeros(len(self.searches), len(self._gallery), dtype=torch.bool)
        is_known[query, index] = True
        radii = self._radii(distances)
        is_wide = (distances.share_of_blocks_within(radii) > WIDE) & (len(self._gallery) > MANY)
        query, index = distances.within(radii, ~is_wide)
        is_wide |= torch.bincount(query, minlength=len(self.searches)) > MANY
        is_new = ~(is_wide[query] | is_known[query, index])
        query, index = query[is_new], index[is_new]
        num_bounded = torch.bincount(query, minlength=len(self.searches))
        self._work_through(query, index, num_bounded)
        size = max(1, QUERY_SAMPLES_AT_ONCE // self._samples.shape[1])
        for wide in torch.split(is_wide.nonzero().flatten(), size):
            if len(wide):
                self._look_from_both_sides(wide, distances, radii, is_known)

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
        place, index, rest_var, num_near = sides.left(wide, distances, radii[wide])
        query = wide[place]
        is_new = ~is_known[query, index]
        num_bounded = torch.zeros(len(self.searches), dtype=torch.long)
        num_bounded[wide] = num_near - is_known[wide].sum(dim=1)
        self._work_through(query[is_new], index[is_new], num_bounded, rest_var=rest_var[is_new])

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
        *,
        rest_var: Float[Tensor, "pairs"] | None = None,
    ) -> None:
        """Score the pairs, sorted by query, that a bound of their own does not dismiss.

        rest_var: at least the variance of each pair without that over the samples of the query, if known.
        """
        for search, num in zip(self.searches, num_bounded.tolist(), strict=True):
            search.num_bounded += num
        if len(query) == 0:
            return
        if rest_var is None:
            rest_var = torch.full((len(query),), torch.inf, dtype=torch.float64)
        bounds = self._bounds(query, index, rest_var)
        counts = torch.bincount(query, minlength=len(self.searches)).tolist()
        is_left = torch.cat(
            [
                search.are_left(indices, some)
                for search, indices, some in zip(
                    self.searches, torch.split(index, counts), torch.split(bounds, counts), strict=True
                )
            ]
        )
        query, index, bounds = query[is_left], index[is_left], bounds[is_left]
        num_left = torch.bincount(query, minlength=len(self.searches))
        is_easy = num_left <= SCREEN_FROM
        for number, search in enumerate(self.searches):
            if not is_easy[number]:
                search.work_through(index[query == number], bounds[query == number])
        # Where few videos are left, those of all queries are scored together.
        self._score(query[is_easy[query]], index[is_easy[query]])

    def _bounds(
        self, query: Int[Tensor, "pairs"], index: Int[Tensor, "pairs"], rest_var: Float[Tensor, "pairs"]
    ) -> Float[Tensor, "pairs"]:
        parts = []
        for queries, indices, of_rest in zip(
            *(torch.split(column, LARGEST_ROUND) for column in (query, index, rest_var)), strict=True
        ):
            middles, spread = self._gallery.scan.halves[indices], self._gallery.spread[indices]
            counts = torch.bincount(queries, minlength=len(self._samples)).tolist()
            found = [
                squared_gaps(samples, part)
                for samples, part in zip(self._samples, torch.split(middles, counts), strict=True)
                if len(part)
            ]
            gaps, reaches = (torch.cat(column) for column in zip(*found, strict=True))
            moments = item_moments(
                gaps,
                reaches,
                spread,
                dim=self._gallery.dim,
                origin=self._origin + self._gallery.raised,
                rest_var=of_rest,
            )
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
