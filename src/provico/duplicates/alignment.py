"""When in one video is a moment of the other? A straight line in time, found in a matrix of likenesses.

Cell (i, j) says how much moment i of the first looks like moment j of the second, above zero if more than
chance would have it. Footage that was copied is a line t' = speed * t + offset through the matrix, or a piece
of one. For each speed and offset the piece with the largest sum is found by prefix sums (Kadane), so that
parts that only one of the two videos has are left out by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Array = NDArray[np.float32]

SPEEDS = tuple(float(speed) for speed in np.round(np.geomspace(0.5, 2.0, 25), 3))
"""Steps of 6 %: what lies between is found by `refined`."""
OUTSIDE = -1.0
"""What it costs to leave the matrix."""


@dataclass(frozen=True)
class Line:
    """A piece of a line: the first video from `start` to `end`, the second from `other_start` on."""

    score: float
    start: float
    end: float
    other_start: float
    other_end: float

    @property
    def speed(self) -> float:
        """Seconds of the second video for each second of the first."""
        return (self.other_end - self.other_start) / max(self.end - self.start, 1e-9)

    def other(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """The times in the second video of times in the first."""
        return self.other_start + self.speed * (seconds - self.start)

    def moved(self, start_by: float, end_by: float) -> Line:
        """With its ends moved in the second video."""
        return Line(self.score, self.start, self.end, self.other_start + start_by, self.other_end + end_by)


def best_line(
    cells: Array,
    *,
    step: float,
    other_step: float,
    min_cells: int,
    speeds: Sequence[float] = SPEEDS,
) -> Line | None:
    """The piece of a line with the largest sum; None if none is above zero and long enough.

    step, other_step: seconds from cell to cell of the first and of the second video.
    """
    num, num_others = cells.shape
    if not all(_can_gain(cells.max(axis=axis), min_cells if axis else 1) for axis in (1, 0)):
        return None
    # Space on both sides of each row, so that a row that is moved by its place on the line is one slice.
    space = num_others + math.ceil(max(speeds) * step / other_step * num) + 1
    padded = np.full((num, num_others + 2 * space), OUTSIDE, np.float32)
    padded[:, space : space + num_others] = cells
    flat, row_starts = padded.ravel(), np.arange(num) * padded.shape[1] + space
    gainful = np.maximum(flat, 0)
    rounding = 2.0**-22 * num**2

    def best_at(speed: float, least: float) -> Line | None:
        slope = speed * step / other_step
        offsets = np.arange(-int(slope * num), num_others)
        starts = row_starts + np.round(slope * np.arange(num)).astype(np.int64) + offsets[0]
        # No piece of a line gains more than all of its cells above zero do.
        most = sliding_window_view(gainful, len(offsets))[starts].sum(axis=0)
        columns = np.flatnonzero(most + rounding >= least)
        if len(columns) == 0:
            return None
        sums = np.zeros((num + 1, len(columns)), np.float32)
        np.cumsum(flat[starts[:, None] + columns], axis=0, out=sums[1:])
        gains = sums - np.minimum.accumulate(sums, axis=0)
        last, column = divmod(int(gains.argmax()), len(columns))
        first = int(sums[: last + 1, column].argmin())
        if last - first < min_cells:
            return None
        offset = offsets[columns[column]]
        others = [(slope * place + offset) * other_step for place in (first, last)]
        return Line(float(gains[last, column]), first * step, last * step, *others)

    # What equal speed reaches, which most copies have, leaves little to look at for the others.
    equal = best_at(1.0, 0.0) if len(speeds) > 1 else None
    least = equal.score if equal is not None and 1.0 in speeds else 0.0
    best = None
    for speed in speeds:
        found = best_at(speed, max(least, best.score if best else 0.0))
        if found is not None and found.score > (best.score if best else 0.0):
            best = found
    return best


def _can_gain(best: Array, min_cells: int) -> bool:
    """Whether so many neighbours have a sum above zero, were each row to have the best of its cells."""
    if len(best) < min_cells:
        return False
    sums = np.concatenate([[0.0], np.cumsum(best, dtype=np.float64)])
    return bool((sums[min_cells:] > np.minimum.accumulate(sums[: len(sums) - min_cells])).any())
