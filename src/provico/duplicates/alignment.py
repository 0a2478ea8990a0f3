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
COLUMNS_AT_ONCE = 64
"""Lines that are summed together."""


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


def best_lines(
    cells: Array,
    *,
    step: float,
    other_step: float,
    min_cells: int,
    least: float = 0.0,
    speeds: Sequence[float] = SPEEDS,
) -> list[Line]:
    """The pieces of lines with the largest sum, of all and at equal speed, if above `least` and long enough.

    step, other_step: seconds from cell to cell of the first and of the second video.
    """
    if not all(_can_gain(cells.max(axis=axis), min_cells if axis else 1, least) for axis in (1, 0)):
        return []
    search = _Search(cells, step, other_step, min_cells, max(speeds))
    # What equal speed reaches, which most copies have, leaves little to look at for the others.
    equal = search.best([1.0], least) if 1.0 in speeds else None
    others = [speed for speed in speeds if speed != 1.0]
    best = search.best(others, max(least, equal.score if equal else 0.0)) if others else None
    return [line for line in (best, equal) if line is not None]


class _Search:
    """Lines through one matrix, at any speed and offset."""

    def __init__(
        self, cells: Array, step: float, other_step: float, min_cells: int, max_speed: float
    ) -> None:
        self._num, self._num_others = cells.shape
        self._step, self._other_step, self._min_cells = step, other_step, min_cells
        # Space on both sides of each row, so that a row that is moved by its place on the line is one slice.
        space = self._num_others + math.ceil(max_speed * step / other_step * self._num) + 1
        padded = np.full((self._num, self._num_others + 2 * space), OUTSIDE, np.float32)
        padded[:, space : space + self._num_others] = cells
        self._flat, self._row_starts = padded.ravel(), np.arange(self._num) * padded.shape[1] + space
        self._gainful = np.maximum(self._flat, 0)
        self._rounding = 2.0**-22 * self._num**2

    def best(self, speeds: Sequence[float], least: float) -> Line | None:
        """The best line at one of these speeds; None if its sum is not above `least`."""
        slopes = np.array(speeds) * self._step / self._other_step
        lowest = -(slopes * self._num).astype(np.int64)
        # Where a line of each slope, with its lowest offset, is in each row.
        starts = self._row_starts + np.round(slopes[:, None] * np.arange(self._num)).astype(np.int64)
        starts += lowest[:, None]
        # No piece of a line gains more than all of its cells above zero do.
        most = [
            sliding_window_view(self._gainful, self._num_others - low)[start].sum(axis=0) + self._rounding
            for low, start in zip(lowest.tolist(), starts, strict=True)
        ]
        lengths = np.array([len(some) for some in most])
        which = np.repeat(np.arange(len(most)), lengths)
        shifts = np.arange(len(which)) - np.repeat(lengths.cumsum() - lengths, lengths)
        bounds = np.concatenate(most)
        order = np.flatnonzero(bounds > least)
        order = order[np.argsort(-bounds[order], kind="stable")]
        found: Line | None = None
        # The most promising first: what they reach leaves little to look at.
        for first in range(0, len(order), COLUMNS_AT_ONCE):
            some = order[first : first + COLUMNS_AT_ONCE]
            if bounds[some[0]] <= least:
                break
            columns = starts[which[some]].T + shifts[some]
            found = self._longest(slopes[which[some]], columns, least) or found
            least = max(least, found.score if found else 0.0)
        return found

    def _longest(self, slopes: NDArray[np.float64], starts: NDArray[np.int64], least: float) -> Line | None:
        """The best piece of some lines that is long enough; None if its sum is not above `least`."""
        sums = np.zeros((self._num + 1, len(slopes)), np.float32)
        np.cumsum(self._flat[starts], axis=0, out=sums[1:])
        gains = sums - np.minimum.accumulate(sums, axis=0)
        lasts = gains.argmax(axis=0)
        scores = gains[lasts, np.arange(len(slopes))]
        for column in np.argsort(-scores, kind="stable"):
            if scores[column] <= least:
                break
            last = int(lasts[column])
            first = int(sums[: last + 1, column].argmin())
            if last - first >= self._min_cells:
                offset = starts[0, column] - self._row_starts[0]
                ends = [(slopes[column] * place + offset) * self._other_step for place in (first, last)]
                return Line(float(scores[column]), first * self._step, last * self._step, *ends)
        return None


def _can_gain(best: Array, min_cells: int, least: float) -> bool:
    """Whether so many neighbours have a sum above `least`, were each row to have the best of its cells."""
    if len(best) < min_cells:
        return False
    sums = np.concatenate([[0.0], np.cumsum(best, dtype=np.float64)])
    gains = sums[min_cells:] - np.minimum.accumulate(sums[: len(sums) - min_cells])
    return bool((gains > least).any())
