"""How sure a score is, and how well doubt predicts errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True)
class Share:
    """A share of videos, and between which two numbers it falls when the videos are redrawn by group."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, correct: Tensor, groups: Sequence[str | None]) -> Share:
        """The share of what is true, with its 95 % interval."""
        return cls(float(correct.double().mean()), *bootstrap_interval(correct, groups))

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} [{100 * self.low:.1f}, {100 * self.high:.1f}]"


def error_auroc(doubt: Float[Tensor, "queries"], correct: Bool[Tensor, "queries"]) -> float:
    """How well doubt predicts errors: the chance that a wrong query has more doubt than a right one.

    1/2 is no better than guessing, and equal doubts count as 1/2; nan if all queries are right or all wrong.
    """
    if doubt.shape != correct.shape or bool(doubt.isnan().any()):
        raise ValueError("There must be one number of doubt, not nan, for each query.")
    num_right = int(correct.sum())
    num_wrong = len(correct) - num_right
    if num_right == 0 or num_wrong == 0:
        return float("nan")
    # Equal doubts share the mean of the ranks that they take up together (Mann and Whitney).
    _, value, count = torch.unique(doubt, return_inverse=True, return_counts=True)
    rank = (count.cumsum(0).double() - (count.double() - 1) / 2)[value]
    return float((rank[~correct].sum() - num_wrong * (num_wrong + 1) / 2) / (num_right * num_wrong))


def bootstrap_interval(
    correct: Tensor,
    groups: Sequence[str | None],
    *,
    num_resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    """Between which two numbers the mean of `correct` falls in a share `level` of all redrawn sets.

    Whole groups are drawn anew, not videos: those of one group succeed or fail together, and intervals that
    took them for independent would be too narrow. A video without a group is one by itself.
    """
    if len(correct) != len(groups) or not len(groups):
        raise ValueError(f"There are {len(correct)} results and {len(groups)} groups, not one each.")
    numbers: dict[int | str, int] = {}
    member = [
        numbers.setdefault(place if group is None else group, len(numbers))
        for place, group in enumerate(groups)
    ]
    sizes = np.bincount(member)
    totals = np.bincount(member, weights=correct.double().numpy())
    rng = np.random.default_rng(seed)
    means = []
    for _ in range(num_resamples):
        drawn = rng.integers(len(sizes), size=len(sizes))
        means.append(totals[drawn].sum() / sizes[drawn].sum())
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
