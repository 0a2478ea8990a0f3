"""How sure a number is: intervals over videos, drawn anew by group, and over seeds.

Videos of one recording succeed or fail together, and a training run has luck of its own. So both are redrawn:
whole groups of videos, and whole seeds. With a single seed only the videos are, and a report must say so.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from provico.evaluation.statistics import check_groups, interval, redrawn_means

NUM_RESAMPLES = 2000
LEVEL = 0.95
_DETECTABLE = (1.960 + 0.842) / (2 * 1.960)
"""Of the width of an interval: the normal quantiles of 97.5 % and of a power of 80 %, in standard errors."""

_T_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179)
"""97.5 % quantiles of Student's t with 1, 2, ... degrees of freedom."""


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def is_above_zero(self) -> bool:
        """Whether the whole interval is."""
        return self.low > 0

    @property
    def is_below_zero(self) -> bool:
        """Whether the whole interval is."""
        return self.high < 0

    @property
    def detectable(self) -> float:
        """The smallest effect whose interval of this width lies above zero in 80 % of all tests."""
        return _DETECTABLE * (self.high - self.low)

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def over_groups(values: ArrayLike, groups: Sequence[str]) -> Estimate:
    """The mean of `values` [seeds, videos], with groups of videos and seeds drawn anew.

    Give differences of two variants to compare them pair by pair: what makes a video hard for both, or a
    split hard for both, then cancels.
    """
    table = np.atleast_2d(np.asarray(values, np.float64))
    check_groups(table.shape[1], groups)
    order = np.argsort(np.asarray(groups), kind="stable")  # so that groups are drawn by name
    means = redrawn_means(table[:, order], [groups[video] for video in order], num_resamples=NUM_RESAMPLES)
    return Estimate(float(table.mean()), *interval(list(means), LEVEL))


def over_runs(values: Sequence[float]) -> Estimate | None:
    """The mean of one number a run, with Student's interval; None for fewer than two runs."""
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


def rank_correlation(first: ArrayLike, second: ArrayLike) -> float:
    """Spearman's: 1 where one rises with the other, -1 where it falls; nan where one does not move."""
    ranks = [_ranks(np.asarray(values, np.float64)) for values in (first, second)]
    centred = [rank - rank.mean() for rank in ranks]
    norm = math.sqrt(float(np.square(centred[0]).sum() * np.square(centred[1]).sum()))
    return float((centred[0] * centred[1]).sum() / norm) if norm else math.nan


def _ranks(values: np.ndarray) -> np.ndarray:
    """Equal values share the mean of the ranks that they take up together."""
    _, inverse, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[inverse]
