"""The videos that are searched: middles and spreads in memory, samples wherever they are kept.

Stage 1 of a search asks which videos are nearest to a query by the mean squared distance of their samples:

    mean over k, k' of |z_k - z'_k'|^2 = |mean_q - mean_g|^2 + V_q + V_g,

so for one query it is L2 search with one more coordinate: sqrt(V_g) for a video, 0 for the query. A vector
engine can do that (`search/served.py`). `FlatScan` does it in memory, by one product for many queries.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from provico.errors import ConfigError
from provico.search.exact.clouds import SAMPLE_MARGIN, Spread, describe
from provico.search.exact.moments import Extents, largest
from provico.search.exact.rounded import Halved, Rounded, products_of_codes
from provico.search.exact.sample_codes import SampleCodes

BLOCK = 128
"""Videos whose distances are first looked at through their minimum alone."""
VIDEOS_AT_ONCE = 2**14
"""Middles that are made ready at once: whole blocks of them."""
CODES_AT_ONCE = 2**19
"""Products that are held at once (2 MB), if queries are not very many."""


class FlatScan:
    """Middles in memory, those of one group next to each other, by whole blocks, and scanned as codes.

    middles: gives those from one place to another, in float64.
    """

    def __init__(
        self,
        middles: Callable[[int, int], Float[Tensor, "some dim"]],
        mean_square: Float[Tensor, "videos"],
        *,
        blocks_per_group: int,
        longest: float,
    ) -> None:
        num = len(mean_square)
        filling = -num % BLOCK
        codes, squares = [], []
        for first in range(0, num, VIDEOS_AT_ONCE):
            part = middles(first, min(first + VIDEOS_AT_ONCE, num))
            if first == 0:
                self.halves = Halved(num, part.shape[1], longest=longest)
            self.halves.put(first, part)
            single = part.float()
            squares.append(
                (single.double().square().sum(dim=1) + mean_square[first : first + len(part)]).float()
            )
            if first + len(part) == num:
                single = F.pad(single, (0, 0, 0, filling))
            codes.append(Rounded.of(single.unsqueeze(1)))
        self.rounded = Rounded.joined(codes)
        # What fills up the last block is infinitely far away.
        self._squares = F.pad(torch.cat(squares), (0, filling), value=torch.inf)
        self.group_of_block = torch.arange(len(self._squares) // BLOCK) // blocks_per_group
        group = self.group_of_block.repeat_interleave(BLOCK)
        self.most_lost, self.most_length = (
            largest(values.double(), group) for values in (self.rounded.lost, self.rounded.length)
        )

    def distances(
        self, queries: Float[Tensor, "queries dim"], allowed: Bool[Tensor, "videos"] | None = None
    ) -> Distances:
        """Squared distances of some queries, given about the centre of the gallery, to the allowed videos."""
        squares = self._squares
        if allowed is not None:
            squares = squares.masked_fill(F.pad(~allowed, (0, len(squares) - len(allowed))), torch.inf)
        rounded = Rounded.of(queries.unsqueeze(1))
        codes, factors = rounded.codes.squeeze(1), -2 * rounded.scale.unsqueeze(1)
        squared = torch.empty(len(queries), len(squares))
        minima = torch.empty(len(queries), len(squares) // BLOCK)
        # What one step makes stays in the cache.
        step = BLOCK * max(32, CODES_AT_ONCE // (BLOCK * len(queries)))
        for first in range(0, len(squares), step):
            part = slice(first, min(first + step, len(squares)))
            products = products_of_codes(codes, self.rounded.codes[part].squeeze(1))
            found = torch.addcmul(squares[part], products.mul_(self.rounded.scale[part]), factors)
            squared[:, part] = found
            blocks = found.view(len(found), -1, BLOCK)
            torch.amin(blocks, dim=2, out=minima[:, part.start // BLOCK : part.stop // BLOCK])
        lengths = queries.double().norm(dim=1)
        error = 2 * (lengths.unsqueeze(1) * self.most_lost + rounded.lost.unsqueeze(1) * self.most_length)
        return Distances(squared, minima, lengths.square(), self.group_of_block, error)


class Distances:
    """What one scan found, without the squared norms of the queries, which change no order."""

    def __init__(
        self,
        squared: Float[Tensor, "queries videos"],
        minima: Float[Tensor, "queries blocks"],
        norms: Float[Tensor, "queries"],
        group_of_block: Int[Tensor, "blocks"],
        error: Float[Tensor, "queries groups"],
    ) -> None:
        self._norms, self._group_of_block = norms, group_of_block
        self._blocks = squared.view(len(squared), -1, BLOCK)
        self._minima = minima
        self.error = error
        """How far codes may be off: at most so much for each query and group of videos."""

    def nearest(self, num: int) -> tuple[Int[Tensor, "found"], Int[Tensor, "found"]]:
        """Queries, in order, and indices of their nearest videos, in the blocks with the smallest minima."""
        num_blocks = min(num, self._minima.shape[1])
        blocks = self._minima.topk(num_blocks, largest=False, sorted=False).indices
        rows = torch.arange(len(blocks)).unsqueeze(1)
        best = self._blocks[rows, blocks].flatten(1).topk(num, largest=False, sorted=False).indices
        nearest = blocks.gather(1, best // BLOCK) * BLOCK + best % BLOCK
        return rows.expand_as(nearest).flatten(), nearest.flatten()

    def nearest_of_owners(
        self, num: int, owner: Int[Tensor, "videos"]
    ) -> tuple[Int[Tensor, "found"], Int[Tensor, "found"]]:
        """Queries, in order, and indices of the nearest part of each of so many owners, the nearest ones."""
        squared = self._blocks.flatten(1)[:, : len(owner)]
        owners = owner.expand_as(squared)
        least = squared.new_full((len(squared), int(owner.max()) + 1), torch.inf)
        least = least.scatter_reduce(1, owners, squared, "amin")
        farthest = least.kthvalue(min(num, least.shape[1]), dim=1, keepdim=True).values
        is_nearest = (squared == least.gather(1, owners)) & (squared <= farthest) & squared.isfinite()
        query, index = is_nearest.nonzero(as_tuple=True)
        return query, index

    def share_of_blocks_within(self, radii: Float[Tensor, "queries groups"]) -> Float[Tensor, "queries"]:
        """How many of the blocks have videos nearer than the squared radius of their group."""
        return (self._minima < self._limits(radii)).float().mean(dim=1)

    def within(
        self, radii: Float[Tensor, "queries groups"], is_wanted: Bool[Tensor, "queries"]
    ) -> tuple[Int[Tensor, "found"], Int[Tensor, "found"]]:
        """Queries, in order, and indices of the videos nearer than the squared radius of their group."""
        limits = self._limits(radii)
        query, block = ((self._minima < limits) & is_wanted.unsqueeze(1)).nonzero(as_tuple=True)
        found, within = (self._blocks[query, block] < limits[query, block].unsqueeze(1)).nonzero(
            as_tuple=True
        )
        return query[found], block[found] * BLOCK + within

    def part(
        self, queries: Int[Tensor, "some"], radii: Float[Tensor, "some groups"], first: int, last: int
    ) -> tuple[Float[Tensor, "some part"], Bool[Tensor, "some part"]]:
        """Squared distances to the videos from the first of a block on, and which are within the radii."""
        blocks = slice(first // BLOCK, -(-last // BLOCK))
        squared, norms = self._blocks[queries, blocks], self._norms[queries]
        limits = (radii - norms.unsqueeze(1))[:, self._group_of_block[blocks]].unsqueeze(2)
        is_within = (squared < limits).flatten(1)[:, : last - first]
        return (squared + norms[:, None, None].float()).flatten(1)[:, : last - first], is_within

    def _limits(self, radii: Float[Tensor, "queries groups"]) -> Float[Tensor, "queries blocks"]:
        return (radii - self._norms.unsqueeze(1))[:, self._group_of_block]


Fetch = Callable[[Int[Tensor, "some"]], Float[Tensor, "some samples dim"]]
"""The samples of some videos, by their rows."""

NUM_GROUPS = 16
"""Videos are grouped by the width of their clouds, since wide ones match from further away."""
LONGEST = 1e15
"""Squares of longer samples would not fit into float32."""
LARGEST_DIM = 16_000
"""Up to here the rounding of stage 1 is bounded (lemma 6 of docs/exact-search.md)."""


class Gallery:
    """Videos, ready to be searched.

    mean, spread: what `describe` says of the samples of each video, which `fetch` gives again. Means are
        looked at some at a time, so they may lie in a file; kept are their codes, and float16.
    """

    def __init__(self, mean: Float[Tensor, "videos dim"], spread: Spread, fetch: Fetch) -> None:
        total, is_finite = torch.zeros(mean.shape[1], dtype=torch.float64), []
        for part in torch.split(mean, VIDEOS_AT_ONCE):
            total += part.double().sum(dim=0)
            is_finite.append(part.isfinite().all(dim=1))
        is_usable = torch.cat([*is_finite, torch.empty(0, dtype=torch.bool)]) & (spread.reach < LONGEST)
        if len(mean) == 0 or not bool(is_usable.all()):
            raise ConfigError(
                f"{int((~is_usable).sum())} of {len(mean)} videos have samples that are not finite or longer "
                f"than {LONGEST:g}. A gallery needs at least one video, and samples that float32 can compare."
            )
        if mean.shape[1] > LARGEST_DIM:
            raise ConfigError(
                f"The samples have {mean.shape[1]} coordinates, but exact search is proved for {LARGEST_DIM}."
            )
        self._fetch = fetch
        self.origin = float(spread.reach.max())
        self.centre = total / len(mean)
        # Within, videos are sorted: those with clouds of like width are next to each other.
        self.rows = spread.axis_std.argsort(stable=True)
        self.spread = spread[self.rows]
        self.short_spread = torch.stack(
            [self.spread.mean_square, self.spread.square_std, self.spread.axis_std]
        ).float()
        blocks_per_group = -(-len(mean) // (NUM_GROUPS * BLOCK))
        self.extents = Extents.of_groups(self.spread, torch.arange(len(mean)) // (blocks_per_group * BLOCK))
        self.codes = SampleCodes(self.spread, self.centre, self.samples, origin=self.origin)
        self.scan = FlatScan(
            lambda first, last: mean[self.rows[first:last]].double() - self.centre,
            self.spread.mean_square,
            blocks_per_group=blocks_per_group,
            longest=2 * self.origin,
        )
        self.raised = self.scan.halves.step / SAMPLE_MARGIN
        """By how much `origin` is too small where middles come from halves (lemma 6)."""

    @classmethod
    def of_samples(cls, samples: Float[Tensor, "videos samples dim"]) -> Gallery:
        """A gallery whose samples are all in memory."""
        samples = samples.float()
        return cls(*describe(samples), fetch=samples.__getitem__)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def dim(self) -> int:
        """D, the number of embedding coordinates."""
        return len(self.centre)

    def samples(self, indices: Int[Tensor, "some"]) -> Float[Tensor, "some samples dim"]:
        """The samples of some videos, by their indices in sorted order."""
        return self._fetch(self.rows[indices]).float()
