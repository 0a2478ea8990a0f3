"""Which videos are worth comparing in full: those with clips, or pictures, near to each other.

Each video is some vectors, of its clips or of its pictures. For every vector the nearest one of each other
video counts, by how much nearer it is than the background: the distance at which *any* videos are. A vector
that is near to everything, such as that of a black clip, is no nearer to one video than to the background
and so says nothing. The variances of clips are part of their distances, so a clip that the encoder is unsure
of says less.

Only ranks are used, never a threshold: what is a duplicate is for `verify` to say.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

BACKGROUND_RANK = 30
"""How many other videos are nearer than the background."""
BEST_VECTORS = 3
"""So many of a video's vectors speak for a pair: an excerpt shares no more than a few."""
NUMBERS_AT_ONCE = 2**25
"""Distances that are in memory at once (128 MB)."""


def nearest_videos(
    ours: Float[Tensor, "videos vectors dim"],
    theirs: Float[Tensor, "others vectors_of_others dim"],
    *,
    num: int,
    our_spread: Float[Tensor, "videos vectors"] | None = None,
    their_spread: Float[Tensor, "others vectors_of_others"] | None = None,
    is_same: bool = False,
) -> Int[Tensor, "pairs 2"]:
    """Pairs (ours, theirs): for each of our videos the `num` most promising of theirs.

    our_spread, their_spread: the sum of the variances, which is added to the squared distance.
    is_same: both are the same videos; then none is paired with itself.
    """
    num_others = len(theirs) - is_same
    if not len(ours) or num_others < 1:
        return torch.empty(0, 2, dtype=torch.int64)
    centre = theirs.flatten(0, 1).mean(dim=0)
    ours, theirs = ours - centre, theirs - centre
    their_squares = theirs.square().sum(dim=2) + (0 if their_spread is None else their_spread)
    our_squares = ours.square().sum(dim=2) + (0 if our_spread is None else our_spread)
    num_at_once = max(1, NUMBERS_AT_ONCE // (2 * ours.shape[1] * len(theirs)))
    pairs = []
    for indices in torch.split(torch.arange(len(ours)), num_at_once):
        queries = ours[indices].flatten(0, 1)
        squared = torch.full((len(queries), len(theirs)), torch.inf)
        for vector in range(theirs.shape[1]):  # one of theirs at a time: the nearest is all that counts
            product = torch.addmm(their_squares[:, vector], queries, theirs[:, vector].T, alpha=-2)
            squared = torch.minimum(squared, product)
        squared = squared.view(len(indices), ours.shape[1], -1) + our_squares[indices].unsqueeze(2)
        if is_same:
            squared[torch.arange(len(indices)), :, indices] = torch.inf
        pairs.append(_best(squared.clamp_(min=0), indices, min(num, num_others)))
    return torch.cat(pairs)


def _best(
    squared: Float[Tensor, "videos vectors others"], indices: Int[Tensor, "videos"], num: int
) -> Int[Tensor, "pairs 2"]:
    rank = min(BACKGROUND_RANK, int(squared[0, 0].isfinite().sum()))
    background = squared.kthvalue(rank, dim=2, keepdim=True).values
    nearer = (1 - squared / background.clamp(min=torch.finfo(squared.dtype).tiny)).clamp_(min=-1)
    support = nearer.topk(min(BEST_VECTORS, squared.shape[1]), dim=1).values.sum(dim=1)
    # Not topk, which leaves the order of equal scores open.
    found = support.sort(dim=1, descending=True, stable=True).indices[:, :num]
    return torch.stack([indices.repeat_interleave(found.shape[1]), found.flatten()], dim=1)


def unordered(pairs: Int[Tensor, "pairs 2"]) -> Int[Tensor, "some 2"]:
    """Each pair of the same videos once, the smaller number first."""
    return torch.unique(pairs.sort(dim=1).values, dim=0) if len(pairs) else pairs
