"""Intervals cover as often as they say; against their definitions and against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from provico.evaluation import statistics
from provico.evaluation.statistics import Estimate, over_groups, over_runs, redrawn_sets

numbers = st.floats(-100, 100, allow_nan=False).map(lambda value: round(value, 3))


def test_the_interval_covers_the_truth_as_often_as_it_says(monkeypatch: pytest.MonkeyPatch):
    """Groups of four that succeed or fail together: 0.95 of the intervals hold, those of videos do not."""
    monkeypatch.setattr(statistics, "NUM_RESAMPLES", 200)
    generator = torch.Generator().manual_seed(0)
    groups = [f"g{number // 4}" for number in range(160)]
    covered = {"groups": 0, "videos": 0}
    for _ in range(200):
        correct = (torch.rand(40, generator=generator) < 0.7).repeat_interleave(4)
        for name, given_groups in (("groups", groups), ("videos", [None] * 160)):
            found = Estimate.of_share(correct, given_groups)
            covered[name] += found.low <= 0.7 <= found.high
    assert covered["groups"] >= 180
    assert covered["videos"] <= 150


def test_the_interval_of_independent_videos_is_the_binomial_one():
    correct = torch.arange(400) % 4 > 0
    found = Estimate.of_share(correct, [None] * 400)
    assert (found.low + found.high) / 2 == pytest.approx(0.75, abs=0.005)
    assert found.high - found.low == pytest.approx(2 * 1.96 * math.sqrt(0.75 * 0.25 / 400), rel=0.1)
    assert Estimate.of_share(correct, [None] * 400) == found, "the seed decides"


def test_sets_that_are_drawn_at_once_are_those_drawn_one_by_one(monkeypatch: pytest.MonkeyPatch):
    values, member = np.random.default_rng(0).normal(size=(1, 12)), np.arange(12) // 3
    rng = np.random.default_rng(5)
    expected = []
    for _ in range(10):
        drawn = [place for group in rng.integers(4, size=4) for place in np.flatnonzero(member == group)]
        expected.append(values[0, drawn].mean())
    for at_once in (statistics._DRAWN_AT_ONCE, 12, 1):
        monkeypatch.setattr(statistics, "_DRAWN_AT_ONCE", at_once)
        found = statistics.redrawn_means(
            values, [f"g{number}" for number in member], num_resamples=10, seed=5
        )
        assert list(found) == pytest.approx(expected)


def test_one_group_or_certain_results_leave_no_range():
    assert Estimate.of_share(torch.tensor([True, False]), ["a", "a"]) == Estimate(0.5, 0.5, 0.5)
    assert Estimate.of_share(torch.ones(5, dtype=torch.bool), [None] * 5) == Estimate(1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="3 results, but 2 groups"):
        Estimate.of_share(torch.ones(3), ["a", "b"])


def test_an_estimate_is_written_as_asked():
    assert Estimate.of_share(torch.tensor([True, True, False, True]), ["a", "a", "b", "c"]).value == 0.75
    assert f"{Estimate(0.5, 0.25, 0.75).percent:.1f}" == "50.0 [25.0, 75.0]"


def test_whole_groups_are_redrawn() -> None:
    groups = ["a", "a", "b", None, "b", "c"]
    sets = redrawn_sets(groups, num_resamples=200, seed=1)
    for rows in sets:
        counts = torch.bincount(rows, minlength=6).tolist()
        assert counts[0] == counts[1]
        assert counts[2] == counts[4]
        assert counts[0] + counts[2] + counts[3] + counts[5] == 4
    assert len({tuple(rows.tolist()) for rows in sets}) > 20
    again = redrawn_sets(groups, num_resamples=200, seed=1)
    assert all(torch.equal(one, other) for one, other in zip(sets, again, strict=True))


def test_an_interval_leaves_out_what_cannot_be_said() -> None:
    assert Estimate.of_redrawn(0.5, [float("nan"), 0.25, 0.25]) == Estimate(0.5, 0.25, 0.25)
    assert f"{Estimate.of_redrawn(0.5, []):.3f}" == "0.500 [nan, nan]"


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
    monkeypatch.setattr("provico.evaluation.statistics.NUM_RESAMPLES", 400)
    rng = np.random.default_rng(1)
    names = [str(number // 2) for number in range(80)]
    hits = 0
    for _ in range(60):
        values = np.repeat(rng.normal(1.0, 2.0, size=40), 2)
        estimate = over_groups(values, names)
        hits += estimate.low <= 1.0 <= estimate.high
    assert 50 <= hits <= 60  # 57 expected


def test_results_and_groups_must_be_as_many():
    with pytest.raises(ValueError, match="3 results, but 2 groups"):
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
