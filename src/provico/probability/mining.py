"""Which pairs of videos count as positive: P = {(i, j) | dist(V_i, V_j) < tau or i = j}   (eq. 7).

Mining feeds on itself: each false positive draws two videos together, which makes more of them. Two guards
keep it from running away: a pair must be among the m nearest of *both* its videos, and the mined share of all
pairs is capped. Where two networks look at the videos, both must have mined a pair. What a guard cuts is
counted, never hidden.

Nothing here has a gradient, and no statistic counts the diagonal, which is positive by definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from provico.errors import ConfigError


@dataclass(frozen=True)
class MinedPairs:
    """The positive pairs of a batch, and how they came to be. Counts are of ordered pairs with i != j."""

    positive: Bool[Tensor, "videos videos"]
    threshold: float | None
    """tau, or None in the first stage, when only i = j is positive."""
    num_below_threshold: int = 0
    num_cut_not_mutual: int = 0
    num_cut_over_cap: int = 0
    num_cut_not_agreed: int = 0

    @property
    def num_mined(self) -> int:
        """How many pairs with i != j are positive."""
        cut = self.num_cut_not_mutual + self.num_cut_over_cap + self.num_cut_not_agreed
        return self.num_below_threshold - cut

    @property
    def mined_share(self) -> float:
        """Mined pairs as a share of all pairs with i != j."""
        num_videos = len(self.positive)
        return self.num_mined / max(1, num_videos * (num_videos - 1))


@dataclass(frozen=True)
class MiningScore:
    """How well mined pairs agree with labels. Counts are of unordered pairs with i != j."""

    num_pairs: int
    num_same_label: int
    num_mined: int
    num_mined_same_label: int

    @property
    def precision(self) -> float:
        """Share of the mined pairs with one label; nan if nothing was mined."""
        return self.num_mined_same_label / self.num_mined if self.num_mined else float("nan")

    @property
    def recall(self) -> float:
        """Share of the pairs with one label that were mined; nan if there are none."""
        return self.num_mined_same_label / self.num_same_label if self.num_same_label else float("nan")


def first_stage_pairs(num_videos: int, *, device: torch.device | None = None) -> MinedPairs:
    """The first stage: only i = j is positive (eq. A10), and no distance is needed."""
    return MinedPairs(torch.eye(num_videos, dtype=torch.bool, device=device), threshold=None)


@torch.no_grad()
def mine_pairs(
    distances: Float[Tensor, "videos videos"],
    *,
    threshold: float | Literal["adaptive"],
    self_distances: Float[Tensor, "videos"] | None = None,
    mutual_top: int | None = 3,
    always_top: int | None = None,
    max_share: float | None = 0.2,
    among: Float[Tensor, "videos all"] | None = None,
) -> MinedPairs:
    """The positive pairs of a batch.

    `threshold` is tau, or `adaptive` for the mean of the `self_distances` (eq. A9). The guards are off where
    None, which is the printed method: `mutual_top` asks that each video of a pair be among the m nearest of
    the other; `max_share` keeps the closest pairs up to that share of all pairs.

    `always_top` lets a pair pass where one video is among that many nearest of the other, mutual or not: then
    a stray video has positives too, and learns that they are far.

    `among` gives the distances of each video to all among which its nearest are counted, itself at infinity;
    without it these are the others of the batch.
    """
    num_videos = len(distances)
    diagonal = torch.eye(num_videos, dtype=torch.bool, device=distances.device)
    if threshold == "adaptive":
        if self_distances is None:
            raise ConfigError("The adaptive threshold is the mean self-distance. Give `self_distances` too.")
        tau = float(self_distances.mean())
    else:
        tau = float(threshold)

    mined = (distances < tau) & ~diagonal
    num_below = int(mined.sum())
    if mutual_top is not None:
        others = distances.masked_fill(diagonal, torch.inf) if among is None else among
        near = distances <= _reach(others, mutual_top)
        passing = near & near.T
        if always_top is not None:
            near = distances <= _reach(others, always_top)
            passing = passing | near | near.T
        mined = mined & passing
    num_mutual = int(mined.sum())
    if max_share is not None:
        mined = _closest(distances, mined, limit=int(max_share * num_videos * (num_videos - 1)))
    num_kept = int(mined.sum())
    return MinedPairs(
        positive=mined | diagonal,
        threshold=tau,
        num_below_threshold=num_below,
        num_cut_not_mutual=num_below - num_mutual,
        num_cut_over_cap=num_mutual - num_kept,
    )


def agreed(pairs: Sequence[MinedPairs]) -> MinedPairs:
    """The pairs that all have found, each in its own distances; counted from the first one's."""
    first, *others = pairs
    positive = first.positive
    for other in others:
        positive = positive & other.positive
    num_lost = int(first.positive.sum()) - int(positive.sum())
    return replace(first, positive=positive, num_cut_not_agreed=first.num_cut_not_agreed + num_lost)


def score_mining(positive: Bool[Tensor, "videos videos"], labels: Int[Tensor, "videos"]) -> MiningScore:
    """Compare mined pairs with labels. A pair counts as mined if either order of it is positive."""
    upper = torch.ones_like(positive).triu(diagonal=1)
    mined = (positive | positive.T) & upper
    same = (labels.unsqueeze(1) == labels) & upper
    return MiningScore(
        num_pairs=int(upper.sum()),
        num_same_label=int(same.sum()),
        num_mined=int(mined.sum()),
        num_mined_same_label=int((mined & same).sum()),
    )


def _reach(distances: Float[Tensor, "videos others"], num_nearest: int) -> Float[Tensor, "videos 1"]:
    """How far each video's so-many-th nearest is."""
    nearest = distances.topk(min(num_nearest, distances.shape[1]), dim=1, largest=False)
    return nearest.values[:, -1:]


def _closest(
    distances: Float[Tensor, "videos videos"], mined: Bool[Tensor, "videos videos"], *, limit: int
) -> Bool[Tensor, "videos videos"]:
    """At most `limit` of the mined pairs, the closest; of several at the very limit, none."""
    candidates = distances[mined]
    if len(candidates) <= limit:
        return mined
    # Strictly below the first one too many: equal distances, such as of (i, j) and (j, i), share their fate.
    bar = candidates.kthvalue(limit + 1).values
    return mined & (distances < bar)
