"""How sure a score is.

Intervals come from sets that are drawn anew by group. Whole groups are drawn, not videos: those of one group
succeed or fail together, and intervals that took them for independent would be too narrow. A video without a
group is one by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from provico.probability.reliability import group_indices

_DRAWN_AT_ONCE = 2**18
"""Groups, so that a large set needs no more memory than a small one."""


def check_groups(num_results: int, groups: Sequence[str | None]) -> None:
    """Refuse results without a group each, and no results at all."""
    if num_results != len(groups) or not num_results:
        raise ValueError(f"There are {num_results} results and {len(groups)} groups, not one each.")


def draw_groups(num_groups: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """As many groups as there are, with repetition."""
    return rng.integers(num_groups, size=num_groups)


def redrawn_means(
    values: NDArray[np.float64], groups: Sequence[str | None], *, num_resamples: int, seed: int = 0
) -> Iterator[float]:
    """The mean of `values` [seeds, videos] over groups of videos and seeds, both drawn anew each time."""
    num_seeds, num_videos = values.shape
    check_groups(num_videos, groups)
    member = group_indices(groups, len(groups)).numpy()
    sizes = np.bincount(member)
    totals = np.stack([np.bincount(member, weights=row) for row in values])
    rng = np.random.default_rng(seed)
    if num_seeds == 1:  # of which nothing is drawn: many sets at once, from the same numbers as one by one
        for start in range(0, num_resamples, at_once := max(1, _DRAWN_AT_ONCE // len(sizes))):
            drawn = rng.integers(len(sizes), size=(min(at_once, num_resamples - start), len(sizes)))
            yield from (totals[0, drawn].sum(axis=1) / sizes[drawn].sum(axis=1)).tolist()
        return
    for _ in range(num_resamples):
        drawn = draw_groups(len(sizes), rng)
        seeds = rng.integers(num_seeds, size=num_seeds)  # of a single one nothing is drawn
        yield float(totals[seeds][:, drawn].sum() / (num_seeds * sizes[drawn].sum()))


def interval(redrawn: Sequence[float], level: float) -> tuple[float, float]:
    """Between which two numbers a share `level` of them lies."""
    low, high = np.quantile(redrawn, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


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


def bootstrap_interval(
    correct: Tensor,
    groups: Sequence[str | None],
    *,
    num_resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    """Between which two numbers the mean of `correct` falls in a share `level` of sets redrawn by group."""
    values = correct.double().numpy()[None]
    return interval(list(redrawn_means(values, groups, num_resamples=num_resamples, seed=seed)), level)


@dataclass(frozen=True)
class Interval:
    """A number, and between which two it falls in 95 % of redrawn sets."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, redrawn: Sequence[float]) -> Interval:
        """From the values on redrawn sets; those that are nan, where nothing can be said, are left out."""
        known = [one for one in redrawn if one == one]
        if not known:
            return cls(value, float("nan"), float("nan"))
        low, high = np.quantile(known, [0.025, 0.975])
        return cls(value, float(low), float(high))

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def redrawn_sets(
    groups: Sequence[str | None], *, num_resamples: int, seed: int = 0
) -> list[Int[Tensor, "some"]]:
    """Numbers of the videos of as many groups as there are, drawn with repetition."""
    member = group_indices(groups, len(groups)).numpy()
    num_groups = int(member.max()) + 1
    parts = [torch.from_numpy(np.flatnonzero(member == number)) for number in range(num_groups)]
    rng = np.random.default_rng(seed)
    return [
        torch.cat([parts[number] for number in draw_groups(num_groups, rng)]) for _ in range(num_resamples)
    ]
