"""Do probabilities keep their word? Of what was said to be 80 % probable, 80 % should come true.

Pairs are sorted into bins by the probability that was given to them; in each, what was promised on average is
held against the share that came true. Bins of equal width show the whole scale, and bins of equal count
are each as well known as the others.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from provico.errors import ConfigError

Bins = Literal["width", "count"]
"""Bins of equal width from 0 to 1, or with equally many pairs in each."""

_NORMAL_QUANTILE = 1.959963984540054  # 95 % of a normal distribution lie within so many deviations


@dataclass(frozen=True)
class ReliabilityBin:
    """Some pairs of about the same probability."""

    low: float
    high: float
    """The probabilities that belong to it."""
    num_pairs: int
    mean_probability: float
    """What was promised."""
    share: float
    """What came true ..."""
    share_low: float
    share_high: float
    """... and its 95 % interval."""


def reliability(
    probability: Float[Tensor, "pairs"],
    is_match: Bool[Tensor, "pairs"],
    *,
    num_bins: int = 10,
    bins: Bins = "width",
    groups: Sequence[Hashable] | None = None,
) -> tuple[ReliabilityBin, ...]:
    """What was promised and what came true, for each bin with any pair in it, the least probable first.

    groups: pairs of one group come true together, so they tell less than as many independent ones; intervals
        are widened accordingly.
    """
    probability = _checked(probability, is_match)
    edges, bin_of = _binned(probability, num_bins, bins)
    group_of = group_indices(groups, len(is_match))
    found = []
    for number in torch.unique(bin_of).tolist():
        inside = bin_of == number
        came_true = is_match[inside].double()
        share, count = float(came_true.mean()), int(inside.sum())
        low, high = wilson_interval(share, effective_count(came_true, group_of[inside]))
        found.append(
            ReliabilityBin(
                low=float(edges[number]),
                high=float(edges[number + 1]),
                num_pairs=count,
                mean_probability=float(probability[inside].mean()),
                share=share,
                share_low=low,
                share_high=high,
            )
        )
    return tuple(found)


def expected_calibration_error(
    probability: Float[Tensor, "pairs"],
    is_match: Bool[Tensor, "pairs"],
    *,
    num_bins: int = 15,
    bins: Bins = "count",
) -> float:
    """How far what was promised lies from what came true, averaged over the bins by their pairs."""
    found = reliability(probability, is_match, num_bins=num_bins, bins=bins)
    gaps = (one.num_pairs * abs(one.mean_probability - one.share) for one in found)
    return sum(gaps) / len(is_match)


def wilson_interval(share: float, count: float) -> tuple[float, float]:
    """Between which two numbers the true share lies with 95 %, by Wilson's score; never outside 0 to 1."""
    square = _NORMAL_QUANTILE**2 / count
    middle = (share + square / 2) / (1 + square)
    half = math.sqrt(square * share * (1 - share) + square**2 / 4) / (1 + square)
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def effective_count(came_true: Float[Tensor, "pairs"], group_of: Int[Tensor, "pairs"]) -> float:
    """How many independent pairs would tell as much about the share as these, which come in groups.

    That many would have the variance which the sums over groups show; at most there are the pairs themselves,
    and where no pair differs from another, the groups.
    """
    share = came_true.mean()
    _, member = torch.unique(group_of, return_inverse=True)
    sums = torch.zeros(int(member.max()) + 1, dtype=torch.float64).index_add(0, member, came_true - share)
    variance = float(sums.square().sum()) / len(came_true) ** 2
    if float(share) in (0.0, 1.0) or variance == 0:
        return float(len(sums))
    return min(float(len(came_true)), float(share * (1 - share)) / variance)


def group_indices(groups: Sequence[Hashable] | None, num: int) -> Int[Tensor, "pairs"]:
    """The index of each group, in order of appearance; what has no group (None) is one by itself."""
    if groups is None:
        return torch.arange(num)
    if len(groups) != num:
        raise ValueError(f"There are {num} pairs and {len(groups)} groups, not one each.")
    index_of: dict[tuple[bool, Hashable], int] = {}
    keys = ((group is None, index if group is None else group) for index, group in enumerate(groups))
    return torch.tensor([index_of.setdefault(key, len(index_of)) for key in keys], dtype=torch.int64)


def _checked(probability: Tensor, is_match: Tensor) -> Float[Tensor, "pairs"]:
    if probability.shape != is_match.shape or probability.ndim != 1 or not len(probability):
        raise ValueError(
            f"There are probabilities of shape {tuple(probability.shape)} for {tuple(is_match.shape)} pairs, "
            "but one for each pair is needed, and at least one pair."
        )
    probability = probability.detach().double()
    if not bool(((probability >= 0) & (probability <= 1)).all()):
        raise ValueError("A probability lies between 0 and 1, but some of those given do not.")
    return probability


def _binned(
    probability: Float[Tensor, "pairs"], num_bins: int, bins: Bins
) -> tuple[Float[Tensor, "edges"], Int[Tensor, "pairs"]]:
    """The edges of the bins, and the bin of each pair; equal probabilities are never parted."""
    if num_bins < 1:
        raise ConfigError(f"The number of bins is {num_bins}, but it must be at least 1.")
    steps = torch.linspace(0, 1, num_bins + 1, dtype=torch.float64)
    edges = steps if bins == "width" else torch.unique(torch.quantile(probability, steps))
    if len(edges) == 1:  # all the same
        edges = torch.cat([edges, edges])
    bin_of = torch.bucketize(probability, edges[1:-1].contiguous(), right=True)
    return edges, bin_of
