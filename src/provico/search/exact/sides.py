"""Queries whose radii leave many videos: the variance of the distances from both sides, for all at once.

For A_k = |z_k - mean_g|^2 and B_k' = |mean_q - z'_k'|^2, the variance of the squared distances is

    var A + var B + 4 * mean over k, k' of (u_k . v_k')^2       (lemma 8 of docs/exact-search.md),

where u and v are the deviations on both sides. A takes K products for a video, and B takes K more, of codes
of eight bits. Few videos are left after both.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from provico.search.exact.bounds import MomentBound
from provico.search.exact.clouds import SAMPLE_MARGIN, Spread
from provico.search.exact.gallery import BLOCK, Distances, Gallery
from provico.search.exact.moments import square_error
from provico.search.exact.rounded import Rounded, products_of_codes, taken
from provico.search.exact.sample_codes import Deviations

NUM_MEANS = 1024
"""Means for which the largest variance that dismisses a video is tabulated, for each query."""
QUERIES_AT_ONCE = 8
"""Queries that are looked at together."""
NUMBERS_AT_ONCE = 2**20
"""Products that are held at once (4 MB), if queries are not very many."""
AS_THEY_LIE = 0.3
"""From this share of videos on, all of a part are multiplied where they lie; copying some takes longer."""
MANY_LEFT = 16
"""Videos left of one step, from which on it pays to take all products of samples as well."""
MARGIN = 2.0**-16
"""What sums in float32 may lose, as a share, is far less."""
LEAST = 1e-30
"""So is what is lost of numbers that are too small for float32."""


class _Pairs:
    """Some queries with some videos, and what is known of the variance of each pair."""

    room: Float[Tensor, "queries videos"]
    """The variance below which a pair is dismissed, less that of A."""
    b: Float[Tensor, "queries videos"]
    crossed: Float[Tensor, "queries videos"]
    columns: Int[Tensor, "videos"]
    """Where these videos were among those before some were dismissed."""

    def __init__(
        self,
        query: Int[Tensor, "queries"],
        videos: slice | Int[Tensor, "videos"],
        is_left: Bool[Tensor, "queries videos"],
    ) -> None:
        self.query, self.videos, self.is_left = query, videos, is_left

    def without_dismissed(self, *, share: float = 1.0) -> _Pairs:
        """Without queries of which all pairs are dismissed, and videos, if at most a share is left."""
        is_left = self.is_left & ~(self.b + self.crossed < self.room)
        rows, columns = (is_left.any(dim=axis).nonzero().flatten() for axis in (1, 0))
        if len(columns) > share * is_left.shape[1]:
            left = _Pairs(self.query[rows], self.videos, is_left[rows])
            left.room, left.b, left.crossed = self.room[rows], self.b[rows], self.crossed[rows]
            return left
        left = _Pairs(self.query[rows], self.videos_at(columns), is_left[rows].index_select(1, columns))
        left.columns = columns
        for name in ("room", "b", "crossed"):
            setattr(left, name, getattr(self, name)[rows].index_select(1, columns))
        return left

    def videos_at(self, columns: Int[Tensor, "some"]) -> Int[Tensor, "some"]:
        """The indices of some of the videos."""
        return columns + self.videos.start if isinstance(self.videos, slice) else self.videos[columns]


class Sides:
    """What is known of some queries.

    samples, spread: of the queries; least: the probability that a video must reach for each.
    origin: the length of the longest sample itself, of all videos and queries.
    """

    def __init__(
        self,
        samples: Float[Tensor, "queries samples dim"],
        spread: Spread,
        gallery: Gallery,
        bound: MomentBound,
        least: Float[Tensor, "queries"],
        *,
        origin: float,
    ) -> None:
        self._spread, self._gallery, self._least = spread, gallery, least
        centred = samples.double() - gallery.centre
        middles = centred.mean(dim=1)
        deviations = centred - middles.unsqueeze(1)
        self._middles = Rounded.of(middles.float().unsqueeze(1))
        self._samples = Rounded.of(deviations.float())
        offsets = (deviations * (deviations + 2 * middles.unsqueeze(1))).sum(dim=2)
        offsets = offsets - offsets.mean(dim=1, keepdim=True)
        self._offsets = offsets.float()
        self._lengths = middles.norm(dim=1)
        scan = gallery.scan
        longest, most_lost = float((scan.most_length + scan.most_lost).max()), float(scan.most_lost.max())
        self._far = self._lengths + longest
        reaches = self._far + spread.radius + float(gallery.spread.radius.max())
        self._error = square_error(reaches, gallery.dim, origin)
        # What the codes lose, a middle that has moved, and what float32 loses.
        lost = longest * self._samples.lost + most_lost * self._samples.length
        moved = 4 * SAMPLE_MARGIN * origin * spread.radius
        most = offsets.abs().amax(dim=1) + 2 * longest * spread.radius
        self._a_error = (2 * (lost + moved) + MARGIN / 8 * most + LEAST).float()
        self._tabulate(bound, least)

    def left(
        self,
        places: Int[Tensor, "queries"],
        distances: Distances,
        radii: Float[Tensor, "queries groups"],
    ) -> tuple[Int[Tensor, "pairs"], Int[Tensor, "pairs"], Int[Tensor, "queries"]]:
        """The videos within the radii that are not dismissed, by query; and how many are within them.

        places: of the queries in `distances`; radii: theirs alone.
        """
        self._error = self._error + distances.error[places].amax(dim=1)
        num_near = torch.zeros(len(places), dtype=torch.long)
        queries, indices = [], []
        # Those with like thresholds together: they leave about as many videos.
        for some in torch.split(self._least.argsort(), QUERIES_AT_ONCE):
            step = BLOCK * max(8, NUMBERS_AT_ONCE // (BLOCK * self._samples.codes.shape[1] * len(some)))
            for first in range(0, len(self._gallery), step):
                last = min(first + step, len(self._gallery))
                squared, is_near = distances.part(places[some], radii[some], first, last)
                num_near[some] += is_near.sum(dim=1)
                columns = is_near.any(dim=0).nonzero().flatten()
                if 2 * len(columns) > last - first:  # taking some out would cost more than it saves
                    left = self._look(_Pairs(some, slice(first, last), is_near), squared)
                elif len(columns):
                    near = _Pairs(some, columns + first, is_near.index_select(1, columns))
                    left = self._look(near, squared.index_select(1, columns))
                else:
                    continue
                row, column = left.is_left.nonzero(as_tuple=True)
                queries.append(left.query[row])
                indices.append(left.videos_at(column))
        query, order = torch.cat(queries).sort(stable=True)
        return query, torch.cat(indices)[order], num_near

    def _look(self, near: _Pairs, squared: Float[Tensor, "queries videos"]) -> _Pairs:
        """Take both sides into account, and then what crosses, for ever fewer."""
        query, videos = near.query, near.videos
        mean_square, square_std, axis_std = taken(self._gallery.short_spread, videos, 1)
        error, in_query, along = (
            one[query].float().unsqueeze(1)
            for one in (self._error, self._spread.mean_square, self._spread.axis_std)
        )
        near.room = self._most_var_at(query, squared + (in_query - error))
        near.room -= self._a_std(query, videos).square_()
        gap = (squared + error).sub_(mean_square).clamp_(min=0).sqrt_()
        near.b = torch.addcmul(square_std, gap, axis_std, value=2).square_()
        near.crossed = torch.minimum(
            along.square() * (mean_square + error), axis_std.square() * in_query
        ).mul_(4)
        left = near.without_dismissed(share=AS_THEY_LIE if self._gallery.codes.are_made(videos) else 1.0)
        if len(left.query) == 0:
            return left
        of_videos = self._gallery.codes.of(left.videos)
        left.b = torch.minimum(left.b, self._b_std(left.query, of_videos).square_())
        left = left.without_dismissed()
        if int(left.is_left.sum()) > MANY_LEFT:
            crossed = self._crossed_std(left.query, of_videos[left.columns]).square_().mul_(4)
            left.crossed = torch.minimum(left.crossed, crossed)
            left = left.without_dismissed()
        return left

    def _a_std(
        self, query: Int[Tensor, "some"], videos: slice | Int[Tensor, "videos"]
    ) -> Float[Tensor, "some videos"]:
        """At least the standard deviation of A."""
        samples, middles = self._samples[query], self._gallery.scan.rounded[videos]
        products = products_of_codes(samples.codes.flatten(0, 1), middles.codes.squeeze(1))
        products = products.mul_(middles.scale).view(*samples.codes.shape[:2], -1)
        terms = torch.addcmul(self._offsets[query].unsqueeze(2), products, -2 * samples.scale[:, None, None])
        return terms.square_().mean(dim=1).sqrt_().add_(self._a_error[query].unsqueeze(1))

    def _b_std(self, query: Int[Tensor, "some"], videos: Deviations) -> Float[Tensor, "some videos"]:
        """At least the standard deviation of B."""
        rounded, middles = videos.rounded, self._middles[query]
        num, num_samples, _ = rounded.codes.shape
        products = products_of_codes(middles.codes.squeeze(1), rounded.codes.flatten(0, 1))
        products = products.view(len(query), num, num_samples).mul_(rounded.scale.unsqueeze(1))
        terms = torch.addcmul(videos.offsets, products, -2 * middles.scale[:, None, None])
        lengths = self._lengths[query].float().unsqueeze(1) * (1 + MARGIN)
        error = 2 * (lengths * rounded.lost + middles.lost.unsqueeze(1) * rounded.length)
        most = videos.offsets.abs().amax(dim=1)
        most = most + 2 * num_samples**0.5 * lengths * (rounded.length + rounded.lost)
        return _mean_inside(terms.square_()).sqrt_().add_(error).add_(MARGIN / 8 * most + LEAST)

    def _crossed_std(self, query: Int[Tensor, "some"], videos: Deviations) -> Float[Tensor, "some videos"]:
        """At least the root of the mean of (u_k . v_k')^2."""
        rounded, samples = videos.rounded, self._samples[query]
        num, num_samples, _ = rounded.codes.shape
        products = products_of_codes(samples.codes.flatten(0, 1), rounded.codes.flatten(0, 1))
        squares = products.square_().view(len(query), -1, num, num_samples)
        found = _mean_inside(squares.mean(dim=1)).sqrt_()
        of_query = (samples.length + samples.lost).unsqueeze(1)
        error = of_query * rounded.lost + samples.lost.unsqueeze(1) * rounded.length + LEAST
        return found.mul_(rounded.scale).mul_(samples.scale.unsqueeze(1)).mul_(1 + MARGIN).add_(error)

    def _tabulate(self, bound: MomentBound, least: Float[Tensor, "queries"]) -> None:
        """For means in even steps, below which variance a video is dismissed."""
        spread = self._spread
        highest = self._far.square() + self._gallery.spread.mean_square.max() + spread.mean_square
        lowest = bound.distance_at(least.log()).square()
        lowest = torch.where(lowest < highest, lowest, torch.zeros_like(lowest)).unsqueeze(1)
        cell = (highest.unsqueeze(1) - lowest) / NUM_MEANS
        means = lowest + cell * torch.arange(NUM_MEANS, dtype=torch.float64)
        most = bound.most_var(means, least.unsqueeze(1)).cummax(dim=1).values
        # A cell earlier, since rounding may move a mean into the next one; below the first all are left.
        most = torch.cat([torch.full_like(lowest, -1), most[:, :-1]], dim=1)
        self._most_var = ((1 - MARGIN) * most - LEAST).float()
        self._lowest, self._per_mean = lowest.float(), (1 / cell).float()

    def _most_var_at(
        self, query: Int[Tensor, "some"], mean: Float[Tensor, "some videos"]
    ) -> Float[Tensor, "some videos"]:
        cell = ((mean - self._lowest[query]) * self._per_mean[query]).long().clamp_(0, NUM_MEANS - 1)
        return self._most_var[query].gather(1, cell)


def _mean_inside(terms: Float[Tensor, "queries videos samples"]) -> Float[Tensor, "queries videos"]:
    """The mean along the last axis; as a product, which takes a third of the time."""
    num_samples = terms.shape[2]
    return terms @ terms.new_full((num_samples,), 1 / num_samples)
