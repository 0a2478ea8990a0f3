"""Sets that are drawn anew by group: how far a number would move with other videos.

Whole groups are drawn, not videos: those of one group succeed or fail together, and intervals that took them
for independent would be too narrow. A video without a group is one by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray


def group_numbers(groups: Sequence[str | None]) -> NDArray[np.int64]:
    """The number of each video's group, in the order in which groups appear."""
    numbers: dict[int | str, int] = {}
    return np.array(
        [
            numbers.setdefault(place if group is None else group, len(numbers))
            for place, group in enumerate(groups)
        ],
        np.int64,
    )


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
    member = group_numbers(groups)
    sizes = np.bincount(member)
    totals = np.stack([np.bincount(member, weights=row) for row in values])
    rng = np.random.default_rng(seed)
    for _ in range(num_resamples):
        drawn = draw_groups(len(sizes), rng)
        seeds = rng.integers(num_seeds, size=num_seeds)  # of a single one nothing is drawn
        yield float(totals[seeds][:, drawn].sum() / (num_seeds * sizes[drawn].sum()))


def interval(redrawn: Sequence[float], level: float) -> tuple[float, float]:
    """Between which two numbers a share `level` of them lies."""
    low, high = np.quantile(redrawn, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
