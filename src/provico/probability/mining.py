"""Which pairs of videos count as positive: P = {(i, j) | dist(V_i, V_j) < tau or i = j}   (eq. 7).

Mining reinforces itself: each false positive pulls two videos together, which creates more. Two guards keep
it stable: a pair must be among the m nearest neighbours of *both* videos, and the share of mined pairs is
capped. With two networks, both must have mined a pair. Pairs that a guard removes are counted.

Features of a frozen network are known before training, so pairs can be mined once: those on which two views
of the videos agree (`agree`), if they agree more often than chance explains.

Nothing here has a gradient. Statistics exclude the diagonal, which is positive by definition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from provico.errors import ConfigError

LEAST_BEYOND_CHANCE = 0.3
"""Pairs on which views agree are used if at least this share of them is not explained by chance."""
_PAIRS_DRAWN = 200_000
_SIMILARITIES_AT_ONCE = 2**24


@dataclass(frozen=True)
class MinedPairs:
    """The positive pairs of a batch, and how they were found. Counts are of ordered pairs with i != j."""

    positive: Bool[Tensor, "videos videos"]
    threshold: float | None
    """tau, or None in the first stage, where only i = j is positive."""
    num_below_threshold: int = 0
    num_cut_not_mutual: int = 0
    num_cut_over_cap: int = 0
    num_cut_not_agreed: int = 0

    @property
    def num_mined(self) -> int:
        """The number of positive pairs with i != j."""
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
        """Share of the mined pairs whose labels are equal; nan if none were mined."""
        return self.num_mined_same_label / self.num_mined if self.num_mined else float("nan")

    @property
    def recall(self) -> float:
        """Share of the pairs with equal labels that were mined; nan if there are none."""
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
    max_share: float | None = 0.2,
    among: Float[Tensor, "videos all"] | None = None,
) -> MinedPairs:
    """The positive pairs of a batch.

    `threshold` is tau, or `adaptive` for the mean of the `self_distances` (eq. A9). None turns a guard off,
    which is the printed method: `mutual_top` requires each video of a pair to be among the m nearest of the
    other; `max_share` keeps the closest pairs up to that share of all pairs.
    `among` gives the distances of each video to all videos among which its nearest are counted, infinity to
    itself; by default these are the other videos of the batch.
    """
    num_videos = len(distances)
    diagonal = torch.eye(num_videos, dtype=torch.bool, device=distances.device)
    if threshold == "adaptive":
        if self_distances is None:
            raise ConfigError("The adaptive threshold is the mean self-distance. Pass `self_distances` too.")
        tau = float(self_distances.mean())
    else:
        tau = float(threshold)

    mined = (distances < tau) & ~diagonal
    num_below = int(mined.sum())
    if mutual_top is not None:
        others = distances.masked_fill(diagonal, torch.inf) if among is None else among
        near = distances <= _reach(others, mutual_top)
        mined = mined & near & near.T
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
    """The pairs that all of them contain; counts come from the first one."""
    first, *others = pairs
    positive = first.positive
    for other in others:
        positive = positive & other.positive
    num_lost = int(first.positive.sum()) - int(positive.sum())
    return replace(first, positive=positive, num_cut_not_agreed=first.num_cut_not_agreed + num_lost)


@dataclass(frozen=True)
class AgreedPairs:
    """The pairs on which two views of the videos agree, and how reliable they are."""

    pairs: Int[Tensor, "pairs"]
    """first * num_videos + second of each pair, sorted; contains both orders of a pair."""
    num_videos: int
    beyond_chance: float
    """Share of the pairs that chance does not explain: a lower estimate of their precision."""
    correlation: float
    """Correlation of the similarities in both views, over all pairs."""

    @property
    def are_trusted(self) -> bool:
        """Whether the pairs should be used."""
        return self.beyond_chance >= LEAST_BEYOND_CHANCE

    @property
    def standard_errors(self) -> float:
        """By how many standard errors the number of agreements exceeds that expected by chance."""
        found = len(self.pairs) / 2
        by_chance = (1 - self.beyond_chance) * found
        return (found - by_chance) / math.sqrt(max(1.0, by_chance))

    def among(self, indices: Int[Tensor, "videos"]) -> MinedPairs:
        """The pairs of a batch."""
        diagonal = torch.eye(len(indices), dtype=torch.bool, device=indices.device)
        codes = (indices.unsqueeze(1) * self.num_videos + indices).to(self.pairs)
        place = torch.searchsorted(self.pairs, codes).clamp(max=len(self.pairs) - 1)
        mined = ((self.pairs[place] == codes).to(indices.device)) & ~diagonal
        return MinedPairs(mined | diagonal, threshold=torch.inf, num_below_threshold=int(mined.sum()))


@torch.no_grad()
def agree(
    views: Sequence[Float[Tensor, "videos axes"]],
    recordings: Int[Tensor, "videos"],
    *,
    num_nearest: int,
    seed: int = 0,
) -> AgreedPairs | None:
    """The pairs of different recordings that are mutual neighbours in two views; None for a single view.

    views: unit vectors of the same videos. Of several views, the two least similar ones are used: views that
        make the same mistakes confirm each other's mistakes.
    num_nearest: a pair must be among this many nearest neighbours of both videos, in both views.

    The expected number of agreements by chance exceeds that of independent draws, since two views of a scene
    are correlated. It follows from the correlation over all pairs and the share of pairs that each view
    selects, assuming that both similarities are jointly normal.
    """
    if len(views) < 2:
        return None
    num_videos = len(recordings)
    scores = _sampled_similarities(views, recordings, seed)
    if scores.shape[1] < 2:
        return None
    correlations = torch.corrcoef(_normal_scores(scores))
    first, second = min(
        ((a, b) for b in range(len(views)) for a in range(b)), key=lambda two: float(correlations[two])
    )
    chosen = [_mutual_neighbours(views[view], recordings, num_nearest) for view in (first, second)]
    both = chosen[0][torch.isin(chosen[0], chosen[1])]
    sizes = torch.bincount(torch.unique(recordings, return_inverse=True)[1])
    num_pairs = num_videos**2 - int(sizes.square().sum())
    correlation = float(correlations[first, second])
    share_a, share_b = (len(pairs) / num_pairs for pairs in chosen)
    by_chance = _chosen_twice(share_a, share_b, correlation) * num_pairs
    return AgreedPairs(
        pairs=both,
        num_videos=num_videos,
        beyond_chance=max(0.0, 1 - by_chance / len(both)) if len(both) else 0.0,
        correlation=correlation,
    )


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
    """The distance of each video to its `num_nearest`-th nearest neighbour."""
    nearest = distances.topk(min(num_nearest, distances.shape[1]), dim=1, largest=False)
    return nearest.values[:, -1:]


def _closest(
    distances: Float[Tensor, "videos videos"], mined: Bool[Tensor, "videos videos"], *, limit: int
) -> Bool[Tensor, "videos videos"]:
    """At most `limit` of the mined pairs, the closest; ties at the limit are all dropped."""
    candidates = distances[mined]
    if len(candidates) <= limit:
        return mined
    # Strictly below the first excess pair: ties, such as (i, j) and (j, i), are kept or dropped together.
    bar = candidates.kthvalue(limit + 1).values
    return mined & (distances < bar)


def _sampled_similarities(
    views: Sequence[Float[Tensor, "videos axes"]], recordings: Int[Tensor, "videos"], seed: int
) -> Float[Tensor, "views pairs"]:
    """The similarities of random pairs of different recordings."""
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randint(len(recordings), (2, _PAIRS_DRAWN), generator=generator)
    differ = recordings[a] != recordings[b]
    a, b = a[differ], b[differ]
    return torch.stack([(view[a] * view[b]).sum(dim=1) for view in views]).double()


def _normal_scores(values: Float[Tensor, "views pairs"]) -> Float[Tensor, "views pairs"]:
    """Normal quantiles with the ranks of the values."""
    ranks = values.argsort(dim=1).argsort(dim=1)
    scores: Tensor = torch.special.ndtri((ranks + 0.5) / values.shape[1])
    return scores


def _mutual_neighbours(
    directions: Float[Tensor, "videos axes"], recordings: Int[Tensor, "videos"], num_nearest: int
) -> Int[Tensor, "pairs"]:
    """Pairs in which each video is among the other's nearest videos of other recordings."""
    num_videos = len(directions)
    num_nearest = min(num_nearest, num_videos - 1)
    found = []
    for rows in torch.split(torch.arange(num_videos), max(1, _SIMILARITIES_AT_ONCE // num_videos)):
        similarity = directions[rows] @ directions.T
        similarity = similarity.masked_fill(recordings[rows].unsqueeze(1) == recordings, -torch.inf)
        nearest = similarity.topk(num_nearest, dim=1)
        codes = rows.unsqueeze(1) * num_videos + nearest.indices
        found.append(codes[nearest.values > -torch.inf])
    codes = torch.cat(found).sort().values
    reverse = codes % num_videos * num_videos + codes // num_videos
    return codes[torch.isin(codes, reverse)]


def _chosen_twice(share_a: float, share_b: float, correlation: float) -> float:
    """Probability that two normal variables of this correlation both lie in their upper shares."""
    if min(share_a, share_b) <= 0:
        return 0.0
    low, limit = (
        float(torch.special.ndtri(torch.tensor(1 - share).double())) for share in (share_a, share_b)
    )
    correlation = min(correlation, 1 - 1e-6)
    x = torch.linspace(low, low + 12, 4001).double()
    density = torch.exp(-0.5 * x.square()) / (2 * torch.pi) ** 0.5
    above = torch.special.ndtr((correlation * x - limit) / (1 - correlation**2) ** 0.5)
    return float(torch.trapezoid(density * above, x))
