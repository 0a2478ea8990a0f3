"""A line that was drawn into a matrix is found again, with its ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provico.duplicates.alignment import SPEEDS, best_lines

STEP = 0.1


def drawn(num: int, num_others: int, *, speed: float, start: float, end: float, offset: float):
    """-0.3 with noise everywhere, 0.4 along t' = speed t + offset from start to end, less beside it."""
    cells = np.random.default_rng(0).normal(-0.3, 0.1, size=(num, num_others)).astype(np.float32)
    rows, columns = np.mgrid[:num, :num_others] * STEP
    beside = np.abs(columns - (speed * rows + offset)) / STEP
    on_line = (rows >= start) & (rows < end) & (beside < 2)
    cells[on_line] = (0.4 - 0.3 * beside)[on_line]
    return cells


@settings(max_examples=25)
@given(
    speed=st.sampled_from([0.5, 0.794, 1.0, 1.26, 2.0]),
    start=st.floats(0, 3),
    length=st.floats(3, 5),
    offset=st.floats(0, 4),
)
def test_a_line_is_found_with_its_ends(speed, start, length, offset):
    cells = drawn(80, 220, speed=speed, start=start, end=start + length, offset=offset)
    line = best_lines(cells, step=STEP, other_step=STEP, min_cells=5)[0]
    assert line.start == pytest.approx(start, abs=0.4)
    assert line.end == pytest.approx(start + length, abs=0.4)
    times = np.array([start, start + length / 2, start + length])
    assert line.other(times) == pytest.approx(speed * times + offset, abs=0.3)


def test_steps_may_differ():
    cells = drawn(80, 220, speed=1.0, start=1.0, end=6.0, offset=2.0)
    line = best_lines(cells[:, ::2], step=STEP, other_step=2 * STEP, min_cells=5)[0]
    assert line.other_start - line.start == pytest.approx(2.0, abs=0.2)


def test_nothing_above_zero_is_no_line():
    assert not best_lines(np.full((50, 50), -0.1, np.float32), step=STEP, other_step=STEP, min_cells=5)


def test_short_lines_do_not_count():
    cells = drawn(80, 80, speed=1.0, start=2.0, end=2.6, offset=0.0)
    assert not best_lines(cells, step=STEP, other_step=STEP, min_cells=10)


@pytest.mark.parametrize("seed", range(12))
def test_no_line_is_better_than_the_best(seed):
    """Against a loop over all speeds, offsets and pieces; most of them are dismissed without a look."""
    generator = np.random.default_rng(seed)
    cells = generator.normal(-0.2, 0.4, (18, 25)).clip(-1, 1).astype(np.float32)
    if seed % 2:
        cells[np.arange(12), np.arange(12) + seed] = 0.8
    best = 0.0
    for speed in SPEEDS:
        for offset in range(-int(speed * 18), 25):
            places = np.round(speed * np.arange(18)).astype(int) + offset
            inside = (places >= 0) & (places < 25)
            along = np.where(inside, cells[np.arange(18), places.clip(0, 24)], -1.0)
            sums = np.concatenate([[0.0], along.cumsum()])
            best = max(best, float((sums - np.minimum.accumulate(sums)).max()))
    found = best_lines(cells, step=0.1, other_step=0.1, min_cells=1)
    assert found[0].score == pytest.approx(best, abs=1e-4)
    assert found[0] == best_lines(cells, step=0.1, other_step=0.1, min_cells=1, least=best - 0.01)[0]
    assert not best_lines(cells, step=0.1, other_step=0.1, min_cells=1, least=best + 0.01)
