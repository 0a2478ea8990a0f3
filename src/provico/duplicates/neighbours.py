"""Which videos are worth comparing in full: those with clips, or pictures, near to each other.

Each video is some vectors, of its clips or of its pictures. For every vector the nearest one of each other
video counts, by how much nearer it is than the background: the distance at which *any* videos are. A vector
that is near to everything, such as that of a black clip, is no nearer to one video than to the background
and so says nothing. The variances of clips are part of their distances, so a clip that the encoder is unsure
of says less.

Only ranks are used, never a threshold: what is a duplicate is for `verify` to say. Of large collections, a
vector is compared only with those in the cells around it, so time grows with the number of videos.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from provico.k_means import k_means

BACKGROUND_RANK = 30
"""How many other videos are nearer than the background."""
BEST_VECTORS = 3
"""So many of a video's vectors speak for a pair: an excerpt shares no more than a few."""
NUMBERS_AT_ONCE = 2**24
"""Distances that are in memory at once (64 MB)."""
VIDEOS_AT_ONCE = 512
"""Videos whose neighbours are looked for together."""
CELL_VECTORS = 4096
"""Vectors of a cell, on average ..."""
CELLS_LOOKED_AT = 4
"""... and cells that a vector is compared with. Four cells are all, up to 1,365 videos of twelve vectors."""
LEARNT_FROM = 64
"""Vectors for each cell by which cells are chosen."""

Rows = NDArray[np.int64]
Distances = NDArray[np.float32]


@dataclass(frozen=True)
class _Cells:
    """Vectors of videos, those of a cell next to each other and in the order of their videos."""

    centres: Tensor
    starts: Rows
    """Where each cell begins, and the end."""
    vectors: Tensor
    squares: Tensor
    videos: Rows
    """Of which video each vector is."""

    @classmethod
    def of(
        cls, vectors: Float[Tensor, "videos vectors dim"], squares: Float[Tensor, "videos vectors"]
    ) -> _Cells:
        flat = vectors.flatten(0, 1)
        num_cells = -(-len(flat) // CELL_VECTORS)
        some = torch.linspace(0, len(flat) - 1, min(len(flat), num_cells * LEARNT_FROM)).long()
        centres = torch.from_numpy(k_means(flat[some].double().numpy(), num_cells).centres).float()
        cell_of = _nearest_cells(flat, centres, 1)[:, 0].numpy()
        order = np.argsort(cell_of, kind="stable")
        starts = np.searchsorted(cell_of[order], np.arange(len(centres) + 1))
        places = torch.from_numpy(order)
        return cls(centres, starts, flat[places], squares.flatten()[places], order // vectors.shape[1])

    def nearest(self, queries: Float[Tensor, "queries dim"], num: int) -> tuple[Rows, Distances]:
        """The nearest vector of each of the `num` nearest videos, in every cell that is looked at.

        Without the squares of the queries. A place that no video takes is infinitely far away.
        """
        num_cells = min(CELLS_LOOKED_AT, len(self.centres))
        looked_at = _nearest_cells(queries, self.centres, num_cells).numpy()
        videos = np.full((len(queries), num_cells, num), -1, np.int64)
        squared = np.full(videos.shape, np.inf, np.float32)
        for cell, (start, end) in enumerate(zip(self.starts[:-1], self.starts[1:], strict=True)):
            asking, place = np.nonzero(looked_at == cell)
            if not len(asking) or start == end:
                continue
            first_of_video = np.flatnonzero(np.diff(self.videos[start:end], prepend=-1))
            there = self.videos[start:end][first_of_video]
            at_once = max(1, NUMBERS_AT_ONCE // int(end - start))
            for at in range(0, len(asking), at_once):
                some, its = asking[at : at + at_once], place[at : at + at_once]
                products = torch.addmm(
                    self.squares[start:end], queries[some], self.vectors[start:end].T, alpha=-2
                )
                of_videos = torch.from_numpy(np.minimum.reduceat(products.numpy(), first_of_video, axis=1))
                found = of_videos.topk(min(num, len(there)), dim=1, largest=False)
                videos[some, its, : found.indices.shape[1]] = there[found.indices.numpy()]
                squared[some, its, : found.indices.shape[1]] = found.values.numpy()
        return videos.reshape(len(queries), -1), squared.reshape(len(queries), -1)


def nearest_videos(
    ours: Float[Tensor, "videos vectors dim"],
    theirs: Float[Tensor, "others vectors_of_others dim"],
    *,
    num: int,
    our_spread: Float[Tensor, "videos vectors"] | None = None,
    their_spread: Float[Tensor, "others vectors_of_others"] | None = None,
    is_same: bool = False,
) -> Int[Tensor, "pairs 2"]:
    """Pairs (ours, theirs): for each of our videos up to `num` of theirs, the most promising first.

    our_spread, their_spread: the sum of the variances, which is added to the squared distance.
    is_same: both are the same videos; then none is paired with itself.
    """
    num_others = len(theirs) - is_same
    if not len(ours) or num_others < 1:
        return torch.empty(0, 2, dtype=torch.int64)
    centre = theirs.mean(dim=(0, 1))
    their_vectors = theirs - centre
    cells = _Cells.of(
        their_vectors, their_vectors.square().sum(dim=2) + (0 if their_spread is None else their_spread)
    )
    rank = min(BACKGROUND_RANK, num_others)
    pairs = []
    for numbers in torch.split(torch.arange(len(ours)), VIDEOS_AT_ONCE):
        queries = (ours[numbers] - centre).flatten(0, 1)
        own = queries.square().sum(dim=1) + (0 if our_spread is None else our_spread[numbers].flatten())
        videos, squared = cells.nearest(queries, rank + is_same)
        squared = np.maximum(squared + own.numpy()[:, None], 0)
        if is_same:
            squared[videos == numbers.repeat_interleave(ours.shape[1]).numpy()[:, None]] = np.inf
        videos, squared = _each_once(videos, squared, rank)
        found = _best(videos.reshape(len(numbers), -1), _nearer(squared).reshape(len(numbers), -1), num)
        pairs.append(found + np.array([int(numbers[0]), 0]))
    return torch.from_numpy(np.concatenate(pairs))


def _nearest_cells(vectors: Tensor, centres: Tensor, num: int) -> Tensor:
    squares = centres.square().sum(dim=1)
    parts = torch.split(vectors, max(1, NUMBERS_AT_ONCE // len(centres)))
    return torch.cat(
        [
            torch.addmm(squares, part, centres.T, alpha=-2).topk(num, dim=1, largest=False).indices
            for part in parts
        ]
    )


def _each_once(videos: Rows, squared: Distances, num: int) -> tuple[Rows, Distances]:
    """The `num` nearest videos of each row; one found in several cells counts by its nearest vector."""
    videos, squared = _in_order(videos, squared, by=squared)
    videos, squared = _in_order(videos, squared, by=videos)
    squared[:, 1:][videos[:, 1:] == videos[:, :-1]] = np.inf
    videos, squared = _in_order(videos, squared, by=squared)
    return videos[:, :num], squared[:, :num]


def _in_order(videos: Rows, squared: Distances, *, by: Rows | Distances) -> tuple[Rows, Distances]:
    order = np.argsort(by, axis=1, kind="stable")
    return np.take_along_axis(videos, order, axis=1), np.take_along_axis(squared, order, axis=1)


def _nearer(squared: Distances) -> Distances:
    """By how much each is nearer than the background, the last of its row: 0 to 1; -1 if it is not there."""
    is_there = np.isfinite(squared)
    background = np.where(is_there, squared, 0).max(axis=1, keepdims=True)
    nearer = 1 - squared / np.maximum(background, np.finfo(np.float32).tiny)
    found: Distances = np.where(is_there, nearer, -1)
    return found


def _best(videos: Rows, nearer: Distances, num: int) -> Rows:
    """Pairs (row, video): of each row up to `num` videos, by their support."""
    rows, places = np.nonzero(nearer >= 0)
    videos, values = videos[rows, places], nearer[rows, places]
    order = np.lexsort((-values, videos, rows))
    rows, videos, values = rows[order], videos[order], values[order]
    is_first = (np.diff(rows, prepend=-1) != 0) | (np.diff(videos, prepend=-1) != 0)
    firsts = np.flatnonzero(is_first)
    if not len(firsts):
        return np.empty((0, 2), np.int64)
    place = np.arange(len(rows)) - firsts[np.cumsum(is_first) - 1]
    support = np.add.reduceat(np.where(place < BEST_VECTORS, values, 0), firsts)
    rows, videos = rows[firsts], videos[firsts]
    order = np.lexsort((videos, -support, rows))
    rows, videos = rows[order], videos[order]
    firsts = np.flatnonzero(np.diff(rows, prepend=-1))
    place = np.arange(len(rows)) - np.repeat(firsts, np.diff(firsts, append=len(rows)))
    return np.stack([rows, videos], axis=1)[place < num]


def unordered(pairs: Int[Tensor, "pairs 2"]) -> Int[Tensor, "some 2"]:
    """Each pair of the same videos once, the smaller number first."""
    return torch.unique(pairs.sort(dim=1).values, dim=0) if len(pairs) else pairs


def near_each_other(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Order pairs so that a video is needed for a while and then no more.

    Videos are visited from one to its partners, and on to theirs. For 3,000 drawn videos, of which a hundred
    are in memory, that takes a fifth of the reading that the order by number does.
    """
    partners: dict[int, list[int]] = defaultdict(list)
    for a, b in pairs:
        partners[a].append(b)
        partners[b].append(a)
    places: dict[int, int] = {}
    for start in partners:
        visited = [] if start in places else [start]
        places.setdefault(start, len(places))
        for video in visited:  # which grows meanwhile
            for other in partners[video]:
                if other not in places:
                    places[other] = len(places)
                    visited.append(other)
    return sorted(pairs, key=lambda pair: (places[pair[0]], places[pair[1]]))
