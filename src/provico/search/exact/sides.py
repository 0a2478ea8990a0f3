"""Queries whose radii leave many videos: the variance of the distances from both sides, for all at once.

For A_k = |z_k - mean_g|^2 and B_k' = |mean_q - z'_k'|^2, the variance of the squared distances is

    var A + var B + 4 * mean over k, k' of (u_k . v_k')^2       (lemma 8 of docs/exact-search.md),

where u and v are the deviations on both sides. A takes K products for a video, all of its middle. B takes K
products with the video's own samples, and the last term K x K. Each is first bounded by what is known of the
video, and only computed for the videos that this leaves.
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
from provico.search.exact.sample_codes import Deviations, cross_std

NUM_MEANS = 512
"""Means for which the largest variance that dismisses a video is tabulated, for each query."""
NUMBERS_AT_ONCE = 2**19
"""Products that are held at once (2 MB), if queries are not very many."""
MOST_AT_ONCE = 2**14
"""Videos that are looked at together."""
MANY_LEFT = 1 / 32
"""Share of videos left, from which on it may pay to look at all of them where they lie."""
WORTH_ALL = 0.5
"""How many queries must have all videos left, or how many more a share of them, for that to pay."""
SOME_AT_ONCE = 2**11
"""Videos whose products of samples are held together, for one query."""
MARGIN = 2.0**-16
"""What sums in float32 may lose, as a share, is far less."""
LEAST = 1e-30
"""So is what is lost of numbers that are too small for float32."""
LEAST_SQUARE = 1e-36


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
        self._gallery = gallery
        self._num_samples = samples.shape[1]
        centred = samples.double() - gallery.centre
        middles = centred.mean(dim=1)
        deviations = centred - middles.unsqueeze(1)
        self._middles = Rounded.of(middles.float().unsqueeze(1))
        self._samples = Rounded.of(deviations.float())
        self._lengths = middles.norm(dim=1)
        offsets = (deviations * (deviations + 2 * middles.unsqueeze(1))).sum(dim=2)
        offsets = offsets - offsets.mean(dim=1, keepdim=True)
        self._mean_square, self._square_std, self._axis_std = (
            one.float().unsqueeze(1) for one in (spread.mean_square, spread.square_std, spread.axis_std)
        )
        self._cross_std = 2 * cross_std(deviations, moved=4 * SAMPLE_MARGIN * origin).unsqueeze(1)
        scan = gallery.scan
        longest, most_lost = float((scan.most_length + scan.most_lost).max()), float(scan.most_lost.max())
        self._far = self._lengths + longest
        reaches = self._far + spread.radius + float(gallery.spread.radius.max())
        self._error = square_error(reaches, gallery.dim, origin)
        # The mean of A's squares is a + f (b . P + f |P|^2), with the products P of codes, f of scales.
        root = self._num_samples**0.5
        self._a_factor = (2 / root * self._samples.scale).unsqueeze(1)
        self._a_weights = (-2 / root * offsets).float().unsqueeze(1)
        most = offsets.abs().amax(dim=1) + 2 * longest * spread.radius
        lost_in_sums = (self._num_samples + 16) * 2.0**-22 * most.square() + LEAST_SQUARE
        self._a_start = (offsets.square().mean(dim=1) + lost_in_sums).float().unsqueeze(1)
        # What the codes lose, and a middle that has moved.
        lost = longest * self._samples.lost + most_lost * self._samples.length
        moved = 4 * SAMPLE_MARGIN * origin * spread.radius
        self._a_error = (2 * (lost + moved) + LEAST).float().unsqueeze(1)
        # Sums of K squares, and of their means.
        self._margin = max(MARGIN, self._num_samples * 2.0**-20)
        self._tabulate(bound, least, spread)

    def left(
        self,
        places: Int[Tensor, "queries"],
        distances: Distances,
        radii: Float[Tensor, "queries groups"],
    ) -> tuple[Int[Tensor, "pairs"], Int[Tensor, "pairs"], Float[Tensor, "pairs"], Int[Tensor, "queries"]]:
        """The videos within the radii that are not dismissed, by query, and how many are within them.

        The third list is at least the variance of each pair without that of A.
        places: of the queries in `distances`; radii: theirs alone.
        """
        self._error = self._error + distances.error[places].amax(dim=1)
        num_near = torch.zeros(len(places), dtype=torch.long)
        queries, indices, values = [], [], []
        step = BLOCK * max(4, NUMBERS_AT_ONCE // (BLOCK * self._num_samples * len(places)))
        step = min(step, MOST_AT_ONCE)
        for first in range(0, len(self._gallery), step):
            last = min(first + step, len(self._gallery))
            squared, is_near = distances.part(places, radii, first, last)
            num_near += is_near.sum(dim=1)
            columns = is_near.any(dim=0).nonzero().flatten()
            videos: slice | Tensor = slice(first, last)
            if 2 * len(columns) <= last - first:  # else taking some out would cost more than it saves
                if len(columns) == 0:
                    continue
                videos = columns + first
                squared, is_near = squared.index_select(1, columns), is_near.index_select(1, columns)
            is_left, room, rest = self._look(videos, squared, is_near)
            query, column = is_left.nonzero(as_tuple=True)
            queries.append(query)
            indices.append(column + first if isinstance(videos, slice) else videos[column])
            values.append(torch.stack([room[query, column], rest[query, column]], dim=1))
        if not queries:
            return num_near.new_empty(0), num_near.new_empty(0), torch.empty(0), num_near
        query, order = torch.cat(queries).sort(stable=True)
        counts = torch.bincount(query, minlength=len(places)).tolist()
        lists = (torch.split(torch.cat(column)[order], counts) for column in (indices, values))
        found = [self._look_closely(number, *part) for number, part in enumerate(zip(*lists, strict=True))]
        index, rest = (torch.cat(column) for column in zip(*found, strict=True))
        query = torch.arange(len(places)).repeat_interleave(torch.tensor([len(part) for part, _ in found]))
        return query, index, (1 + MARGIN) * rest.double(), num_near

    def _look(
        self,
        videos: slice | Int[Tensor, "videos"],
        squared: Float[Tensor, "queries videos"],
        is_near: Bool[Tensor, "queries videos"],
    ) -> tuple[
        Bool[Tensor, "queries videos"], Float[Tensor, "queries videos"], Float[Tensor, "queries videos"]
    ]:
        """Which are left by their spread, and by A and B where that pays for all of them where they lie.

        Also the room for the variance, and what the spread says of it without that of A.
        """
        mean_square, square_std, axis_std = taken(self._gallery.short_spread, videos, 1)
        error = self._error.float().unsqueeze(1)
        room = self._most_var_at(squared + (self._mean_square - error))
        gap = (squared + error).sub_(mean_square).clamp_(min=0).sqrt_()
        crossed = (self._cross_std * self._gallery.codes.cross_std(videos)).square_()
        rest = torch.addcmul(square_std, gap, axis_std, value=2).square_().add_(crossed)
        a = torch.addcmul(self._square_std, gap, self._axis_std, value=2).square_()
        is_left = is_near.logical_and_(~(a.add_(rest) < room))
        many = self._many(is_left)
        if len(many):
            a[many] = self._a_var(many, videos)
            is_left[many] &= ~(a[many].add_(rest[many]) < room[many])
        # Of a query that is not among the first, `a` is still at least the whole variance.
        many = self._many(is_left)
        if len(many):
            b = self._b_var(many, self._gallery.codes.of(videos)).add_(crossed[many])
            is_left[many] &= ~(b.add_(a[many]) < room[many])
        return is_left, room, rest

    @staticmethod
    def _many(is_left: Bool[Tensor, "queries videos"]) -> Int[Tensor, "some"]:
        """The queries with many videos left, if together they have so many that it pays to look at all."""
        share = is_left.float().mean(dim=1)
        many = (share > MANY_LEFT).nonzero().flatten()
        return many if float(share[many].sum()) > WORTH_ALL else many[:0]

    def _look_closely(
        self, number: int, index: Int[Tensor, "videos"], values: Float[Tensor, "videos 2"]
    ) -> tuple[Int[Tensor, "some"], Float[Tensor, "some"]]:
        """What is left for one query by A, B and all products of samples, and the variance but that of A."""
        query, found = torch.tensor([number]), [(index[:0], torch.empty(0))]
        if len(index) == 0:
            return found[0]
        for some, (room, rest) in zip(
            torch.split(index, MOST_AT_ONCE),
            (part.T for part in torch.split(values, MOST_AT_ONCE)),
            strict=True,
        ):
            room = room - self._a_var(query, some).squeeze(0)
            left = (~(rest < room)).nonzero().flatten()
            for part in torch.split(left, SOME_AT_ONCE):
                found.append(self._rest(query, some[part], room[part]))
        indices, rest_var = (torch.cat(column) for column in zip(*found, strict=True))
        return indices, rest_var

    def _rest(
        self, query: Int[Tensor, "1"], index: Int[Tensor, "videos"], room: Float[Tensor, "videos"]
    ) -> tuple[Int[Tensor, "some"], Float[Tensor, "some"]]:
        """What B and all products of samples leave, and the variance but that of A."""
        videos = self._gallery.codes.of(index)
        b = self._b_var(query, videos).squeeze(0)
        crossed = (self._cross_std[query, 0] * self._gallery.codes.cross_std(index)).square_()
        left = (~(b + crossed < room)).nonzero().flatten()
        if len(left) == 0:
            return index[left], b[left]
        rest = b[left] + torch.minimum(crossed[left], self._crossed_var(query, videos[left]))
        last = (~(rest < room[left])).nonzero().flatten()
        return index[left[last]], rest[last]

    def _a_var(
        self, query: Int[Tensor, "some"], videos: slice | Int[Tensor, "videos"]
    ) -> Float[Tensor, "some videos"]:
        """At least the variance of A."""
        codes, middles = self._samples.codes[query], self._gallery.scan.rounded[videos]
        products = products_of_codes(codes.flatten(0, 1), middles.codes.squeeze(1)).view(*codes.shape[:2], -1)
        linear = torch.bmm(self._a_weights[query], products).squeeze(1)
        factor = self._a_factor[query] * middles.scale
        found = products.square_().sum(dim=1).mul_(factor).add_(linear).mul_(factor)
        return found.add_(self._a_start[query]).sqrt_().add_(self._a_error[query]).square_()

    def _b_var(self, query: Int[Tensor, "some"], videos: Deviations) -> Float[Tensor, "some videos"]:
        """At least the variance of B."""
        rounded, middles = videos.rounded, self._middles[query]
        num, num_samples, _ = rounded.codes.shape
        products = products_of_codes(middles.codes.squeeze(1), rounded.codes.flatten(0, 1))
        products = products.view(len(query), num, num_samples)
        torch.addcmul(videos.offsets, products, -2 * middles.scale[:, None, None], out=products)
        lengths = self._lengths[query].float().unsqueeze(1) * (1 + MARGIN)
        most = videos.most + 2 * num_samples**0.5 * lengths * (rounded.length + rounded.lost)
        error = 2 * (lengths * rounded.lost + middles.lost.unsqueeze(1) * rounded.length)
        std = _mean_inside(products.square_()).sqrt_().mul_(rounded.scale)
        return std.add_(error).add_(most, alpha=MARGIN / 8).add_(LEAST).square_()

    def _crossed_var(self, query: Int[Tensor, "1"], videos: Deviations) -> Float[Tensor, "videos"]:
        """At least four times the mean of (u_k . v_k')^2."""
        rounded, samples = videos.rounded, self._samples[query]
        num, num_samples, _ = rounded.codes.shape
        products = products_of_codes(samples.codes.squeeze(0), rounded.codes.flatten(0, 1))
        squares = products.square_().mean(dim=0).view(num, num_samples)
        found = _mean_inside(squares).sqrt_().mul_(rounded.scale).mul_(samples.scale)
        error = (samples.length + samples.lost) * rounded.lost + samples.lost * rounded.length + LEAST
        return found.mul_(1 + MARGIN).add_(error).square_().mul_(4)

    def _tabulate(self, bound: MomentBound, least: Float[Tensor, "queries"], spread: Spread) -> None:
        """For means in even steps, below which variance a video is dismissed."""
        highest = self._far.square() + self._gallery.spread.mean_square.max() + spread.mean_square
        lowest = bound.distance_at(least.log()).square()
        lowest = torch.where(lowest < highest, lowest, torch.zeros_like(lowest)).unsqueeze(1)
        cell = (highest.unsqueeze(1) - lowest) / NUM_MEANS
        means = lowest + cell * torch.arange(NUM_MEANS, dtype=torch.float64)
        most = bound.most_var(means, least.unsqueeze(1)).cummax(dim=1).values
        # A cell earlier, since rounding may move a mean into the next one; below the first all are left.
        most = torch.cat([torch.full_like(lowest, -1), most[:, :-1]], dim=1)
        self._most_var = ((1 - self._margin) * most - LEAST).float()
        self._lowest, self._per_mean = lowest.float(), (1 / cell).float()

    def _most_var_at(self, mean: Float[Tensor, "queries videos"]) -> Float[Tensor, "queries videos"]:
        cell = mean.sub_(self._lowest).mul_(self._per_mean).clamp_(0, NUM_MEANS - 1).long()
        return self._most_var.gather(1, cell)


def _mean_inside(terms: Float[Tensor, "*pairs samples"]) -> Float[Tensor, "*pairs"]:
    """The mean along the last axis; as a product, which takes a third of the time."""
    num_samples = terms.shape[-1]
    return terms @ terms.new_full((num_samples,), 1 / num_samples)
