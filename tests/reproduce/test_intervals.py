"""Intervals against their definitions and against scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from provico.reproduce.intervals import Estimate, over_groups, over_runs, rank_correlation

numbers = st.floats(-100, 100, allow_nan=False).map(lambda value: round(value, 3))


def test_what_never_varies_has_no_interval():
    assert over_groups(np.full((3, 10), 2.5), ["a"] * 5 + ["b"] * 5) == Estimate(2.5, 2.5, 2.5)


def test_the_value_is_the_plain_mean():
    table = np.random.default_rng(0).normal(size=(2, 9))
    assert over_groups(table, list("aabbbcccc")).value == pytest.approx(table.mean())


def test_copies_of_a_video_in_its_group_add_no_certainty():
    rng = np.random.default_rng(0)
    values = rng.normal(size=30)
    names = [f"group {number}" for number in range(30)]
    alone = over_groups(values, names)
    copied = over_groups(np.repeat(values, 8), np.repeat(names, 8).tolist())
    assert (copied.low, copied.high) == pytest.approx((alone.low, alone.high))
    independent = over_groups(np.repeat(values, 8), [str(number) for number in range(240)])
    assert independent.high - independent.low < 0.6 * (alone.high - alone.low)


def test_the_luck_of_training_widens_the_interval():
    luck = np.array([[-1.0], [0.0], [1.0]]) + np.zeros((3, 40))
    names = [str(number) for number in range(40)]
    assert over_groups(luck[1], names) == Estimate(0.0, 0.0, 0.0)
    assert over_groups(luck, names).low < -0.3


def test_intervals_hold_the_truth_about_as_often_as_they_say(monkeypatch):
    monkeypatch.setattr("provico.reproduce.intervals.NUM_RESAMPLES", 400)
    rng = np.random.default_rng(1)
    names = [str(number // 2) for number in range(80)]
    hits = 0
    for _ in range(60):
        values = np.repeat(rng.normal(1.0, 2.0, size=40), 2)
        estimate = over_groups(values, names)
        hits += estimate.low <= 1.0 <= estimate.high
    assert 50 <= hits <= 60  # 57 expected


def test_results_and_groups_must_be_as_many():
    with pytest.raises(ValueError, match="3 results and 2 groups"):
        over_groups([1.0, 2.0, 3.0], ["a", "b"])


@given(st.lists(numbers, min_size=2, max_size=20))
def test_over_runs_is_students_interval(values):
    estimate = over_runs(values)
    mean, error = np.mean(values), stats.sem(values)
    half = stats.t.ppf(0.975, len(values) - 1) * error
    assert estimate.value == pytest.approx(mean, abs=1e-9)
    # The quantiles have four digits.
    assert mean - estimate.low == pytest.approx(half, rel=1e-3, abs=1e-9)
    assert estimate.high - mean == pytest.approx(half, rel=1e-3, abs=1e-9)


def test_one_run_has_no_interval():
    assert over_runs([3.0]) is None
    assert over_runs([]) is None


@given(st.lists(st.tuples(numbers, numbers), min_size=3, max_size=20))
def test_rank_correlation_is_spearmans(pairs):
    first, second = zip(*pairs, strict=True)
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert np.isnan(rank_correlation(first, second))
    else:
        assert rank_correlation(first, second) == pytest.approx(stats.spearmanr(first, second)[0], abs=1e-9)
