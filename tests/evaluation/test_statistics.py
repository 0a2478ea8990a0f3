"""Intervals cover as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from provico.evaluation import statistics
from provico.evaluation.statistics import Interval, Share, bootstrap_interval, redrawn_sets


def test_the_interval_covers_the_truth_as_often_as_it_says():
    """Groups of four that succeed or fail together: 0.95 of the intervals hold, those of videos do not."""
    generator = torch.Generator().manual_seed(0)
    groups = [f"g{number // 4}" for number in range(160)]
    covered = {"groups": 0, "videos": 0}
    for _ in range(200):
        correct = (torch.rand(40, generator=generator) < 0.7).repeat_interleave(4)
        for name, given_groups in (("groups", groups), ("videos", [None] * 160)):
            low, high = bootstrap_interval(correct, given_groups, num_resamples=200)
            covered[name] += low <= 0.7 <= high
    assert covered["groups"] >= 180
    assert covered["videos"] <= 150


def test_the_interval_of_independent_videos_is_the_binomial_one():
    correct = torch.arange(400) % 4 > 0
    low, high = bootstrap_interval(correct, [None] * 400)
    assert (low + high) / 2 == pytest.approx(0.75, abs=0.005)
    assert high - low == pytest.approx(2 * 1.96 * math.sqrt(0.75 * 0.25 / 400), rel=0.1)
    assert bootstrap_interval(correct, [None] * 400) == (low, high), "the seed decides"
    narrow = bootstrap_interval(correct, [None] * 400, level=0.5)
    assert low < narrow[0] < narrow[1] < high


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
    assert bootstrap_interval(torch.tensor([True, False]), ["a", "a"]) == (0.5, 0.5)
    assert bootstrap_interval(torch.ones(5, dtype=torch.bool), [None] * 5) == (1.0, 1.0)
    with pytest.raises(ValueError, match="3 results and 2 groups"):
        bootstrap_interval(torch.ones(3), ["a", "b"])


def test_a_share_is_its_mean_and_its_interval():
    correct = torch.tensor([True, True, False, True])
    share = Share.of(correct, ["a", "a", "b", "c"])
    assert share.value == 0.75
    assert (share.low, share.high) == bootstrap_interval(correct, ["a", "a", "b", "c"])
    assert str(Share(0.5, 0.25, 0.75)) == "50.0 [25.0, 75.0]"


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
    assert Interval.of(0.5, [float("nan"), 0.25, 0.25]) == Interval(0.5, 0.25, 0.25)
    assert str(Interval.of(0.5, [])) == "0.500 [nan, nan]"
