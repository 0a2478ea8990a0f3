"""Confidence intervals of scores.

Intervals are bootstrapped by group. Whole groups are resampled, not videos: results within a group are
correlated, and intervals that ignore this would be too narrow. A video without a group is a group of its own.
Training runs vary too, so with several seeds, seeds are resampled as well.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from provico.probability.reliability import group_indices

NUM_RESAMPLES = 2000
_DRAWN_AT_ONCE = 2**18
"""Resampled groups per block, which bounds the memory."""
_ENDS = (0.025, 0.975)
_DETECTABLE = (1.960 + 0.842) / (2 * 1.960)
"""The detectable effect as a share of an interval's width, for a test at 5 % with a power of 80 %."""

_T_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179)
"""97.5 % quantiles of Student's t with 1, 2, ... degrees of freedom."""


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of_share(cls, correct: Tensor, groups: Sequence[str | None]) -> Estimate:
        """The share of True, with a bootstrap interval over groups."""
        means = redrawn_means(correct.double().numpy()[None], groups, num_resamples=NUM_RESAMPLES)
        return cls(float(correct.double().mean()), *interval([*means]))

    @classmethod
    def of_redrawn(cls, value: float, redrawn: Sequence[float]) -> Estimate:
        """An estimate from the values on resampled sets; nan values are ignored."""
        known = [one for one in redrawn if one == one]
        return cls(value, *(interval(known) if known else (math.nan, math.nan)))

    @property
    def is_above_zero(self) -> bool:
        """Whether the whole interval is above zero."""
        return self.low > 0

    @property
    def is_below_zero(self) -> bool:
        """Whether the whole interval is below zero."""
        return self.high < 0

    @property
    def detectable(self) -> float:
        """The smallest effect whose interval, of this width, is above zero in 80 % of all tests."""
        return _DETECTABLE * (self.high - self.low)

    @property
    def percent(self) -> Estimate:
        """The estimate in per cent."""
        return Estimate(100 * self.value, 100 * self.low, 100 * self.high)

    def __format__(self, spec: str) -> str:
        """All three values in this format: `f"{estimate:.1f}"` is 81.2 [76.0, 85.9]."""
        spec = spec or ".3g"
        return f"{self.value:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"

    def __str__(self) -> str:
        return format(self)


def check_groups(num_results: int, groups: Sequence[str | None]) -> None:
    """Raise ValueError unless there are results with one group each."""
    if num_results != len(groups) or not num_results:
        raise ValueError(
            f"There are {num_results} results, but {len(groups)} groups were given. Give one for each result."
        )


def draw_groups(num_groups: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Resample groups with replacement."""
    return rng.integers(num_groups, size=num_groups)


def redrawn_means(
    values: NDArray[np.float64], groups: Sequence[str | None], *, num_resamples: int, seed: int = 0
) -> Iterator[float]:
    """Bootstrap means of `values` [seeds, videos], with groups of videos and seeds resampled."""
    num_seeds, num_videos = values.shape
    check_groups(num_videos, groups)
    member = group_indices(groups, len(groups)).numpy()
    sizes = np.bincount(member)
    totals = np.stack([np.bincount(member, weights=row) for row in values])
    rng = np.random.default_rng(seed)
    if num_seeds == 1:  # vectorised, with the same random numbers as the loop below
        for start in range(0, num_resamples, at_once := max(1, _DRAWN_AT_ONCE // len(sizes))):
            drawn = rng.integers(len(sizes), size=(min(at_once, num_resamples - start), len(sizes)))
            yield from (totals[0, drawn].sum(axis=1) / sizes[drawn].sum(axis=1)).tolist()
        return
    for _ in range(num_resamples):
        drawn = draw_groups(len(sizes), rng)
        seeds = rng.integers(num_seeds, size=num_seeds)  # consumes no random numbers for a single seed
        yield float(totals[seeds][:, drawn].sum() / (num_seeds * sizes[drawn].sum()))


def interval(redrawn: Sequence[float]) -> tuple[float, float]:
    """The central 95 % interval of values."""
    low, high = np.quantile(redrawn, _ENDS)
    return float(low), float(high)


def redrawn_sets(
    groups: Sequence[str | None], *, num_resamples: int, seed: int = 0
) -> list[Int[Tensor, "some"]]:
    """The videos of groups that are resampled with replacement, as indices."""
    member = group_indices(groups, len(groups)).numpy()
    num_groups = int(member.max()) + 1
    parts = [torch.from_numpy(np.flatnonzero(member == number)) for number in range(num_groups)]
    rng = np.random.default_rng(seed)
    return [
        torch.cat([parts[number] for number in draw_groups(num_groups, rng)]) for _ in range(num_resamples)
    ]


def over_groups(values: ArrayLike, groups: Sequence[str]) -> Estimate:
    """The mean of `values` [seeds, videos], with a bootstrap interval over groups of videos and seeds.

    Pass differences of two variants for a paired comparison: difficulties of videos or splits that both share
    then cancel.
    """
    table = np.atleast_2d(np.asarray(values, np.float64))
    check_groups(table.shape[1], groups)
    order = np.argsort(np.asarray(groups), kind="stable")  # so that groups are resampled by name
    means = redrawn_means(table[:, order], [groups[video] for video in order], num_resamples=NUM_RESAMPLES)
    return Estimate(float(table.mean()), *interval([*means]))


def over_runs(values: Sequence[float]) -> Estimate | None:
    """The mean of one value per run, with Student's interval; None for fewer than two runs."""
    if len(values) < 2:
        return None
    degrees = len(values) - 1
    if degrees <= len(_T_QUANTILES):
        quantile = _T_QUANTILES[degrees - 1]
    else:  # beyond the table, the first terms of its expansion about the normal quantile
        quantile = 1.95996 + 2.37227 / degrees + 2.8225 / degrees**2
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    middle = statistics.fmean(values)
    return Estimate(middle, middle - half, middle + half)
