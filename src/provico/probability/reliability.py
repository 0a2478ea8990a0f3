"""Reliability of probabilities: of the events with a stated 80 %, 80 % should occur.

Pairs are sorted into bins by their probability; each bin compares the mean probability with the observed
share. Bins of equal width cover the whole scale, and bins of equal count are equally precise.
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

_NORMAL_QUANTILE = 1.959963984540054  # 95 % of a normal distribution lie within this many deviations


@dataclass(frozen=True)
class ReliabilityBin:
    """Pairs of similar probability."""

    low: float
    high: float
    """Bounds of the probabilities in the bin."""
    num_pairs: int
    mean_probability: float
    """The mean of the stated probabilities."""
    share: float
    """The observed share ..."""
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
    """Stated probability and observed share of each bin that is not empty, in ascending order.

    groups: pairs of one group have correlated outcomes, so they carry less information than independent ones;
        intervals are widened accordingly.
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
    """Mean difference of stated probability and observed share over the bins, weighted by their pairs."""
    found = reliability(probability, is_match, num_bins=num_bins, bins=bins)
    gaps = (one.num_pairs * abs(one.mean_probability - one.share) for one in found)
    return sum(gaps) / len(is_match)


def wilson_interval(share: float, count: float) -> tuple[float, float]:
    """The 95 % confidence interval of a share, by Wilson's score; always within 0 to 1."""
    square = _NORMAL_QUANTILE**2 / count
    middle = (share + square / 2) / (1 + square)
    half = math.sqrt(square * share * (1 - share) + square**2 / 4) / (1 + square)
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def effective_count(came_true: Float[Tensor, "pairs"], group_of: Int[Tensor, "pairs"]) -> float:
    """Effective sample size: the number of independent pairs as informative as these, which form groups.

    It is the number of pairs that would have the observed variance of the sums over groups. It is at most the
    number of pairs, and equals the number of groups if all pairs have the same outcome.
    """
    share = came_true.mean()
    _, member = torch.unique(group_of, return_inverse=True)
    sums = torch.zeros(int(member.max()) + 1, dtype=torch.float64).index_add(0, member, came_true - share)
    variance = float(sums.square().sum()) / len(came_true) ** 2
    if float(share) in (0.0, 1.0) or variance == 0:
        return float(len(sums))
    return min(float(len(came_true)), float(share * (1 - share)) / variance)


def group_indices(groups: Sequence[Hashable] | None, num: int) -> Int[Tensor, "pairs"]:
    """The index of each group, in order of appearance; each None is a group of its own."""
    if groups is None:
        return torch.arange(num)
    if len(groups) != num:
        raise ValueError(
            f"There are {num} pairs, but {len(groups)} groups were given. Give one for each pair."
        )
    index_of: dict[tuple[bool, Hashable], int] = {}
    keys = ((group is None, index if group is None else group) for index, group in enumerate(groups))
    return torch.tensor([index_of.setdefault(key, len(index_of)) for key in keys], dtype=torch.int64)


def _checked(probability: Tensor, is_match: Tensor) -> Float[Tensor, "pairs"]:
    if probability.shape != is_match.shape or probability.ndim != 1 or not len(probability):
        raise ValueError(
            f"There are probabilities of shape {tuple(probability.shape)} for {tuple(is_match.shape)} pairs, "
            "but each pair needs one, and at least one pair is needed."
        )
    probability = probability.detach().double()
    if not bool(((probability >= 0) & (probability <= 1)).all()):
        raise ValueError("Probabilities must lie between 0 and 1, but some do not.")
    return probability


def _binned(
    probability: Float[Tensor, "pairs"], num_bins: int, bins: Bins
) -> tuple[Float[Tensor, "edges"], Int[Tensor, "pairs"]]:
    """The edges of the bins, and the bin of each pair; equal probabilities share a bin."""
    if num_bins < 1:
        raise ConfigError(f"The number of bins is {num_bins}, but it must be at least 1.")
    steps = torch.linspace(0, 1, num_bins + 1, dtype=torch.float64)
    edges = steps if bins == "width" else torch.unique(torch.quantile(probability, steps))
    if len(edges) == 1:  # all equal
        edges = torch.cat([edges, edges])
    bin_of = torch.bucketize(probability, edges[1:-1].contiguous(), right=True)
    return edges, bin_of
