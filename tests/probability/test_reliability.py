"""Reliability by its definition: what was promised against what came true."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from torch import Tensor

from provico.errors import ConfigError
from provico.probability import expected_calibration_error, reliability
from provico.probability.reliability import effective_count, wilson_interval

seeds = st.integers(0, 2**31)


def drawn(seed: int, count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    truth = torch.rand(count, generator=generator, dtype=torch.float64)
    return truth, torch.rand(count, generator=generator, dtype=torch.float64) < truth


@given(seed=seeds, num_bins=st.integers(1, 12))
def test_bins_of_equal_width_by_a_loop(seed: int, num_bins: int) -> None:
    probability, is_match = drawn(seed, 100)
    found = {round(one.low * num_bins): one for one in reliability(probability, is_match, num_bins=num_bins)}
    error = 0.0
    for number in range(num_bins):
        inside = [
            (p, bool(m))
            for p, m in zip(probability.tolist(), is_match, strict=True)
            if number / num_bins <= p < (number + 1) / num_bins
        ]
        assert (number in found) == bool(inside)
        if inside:
            promised = sum(p for p, _ in inside) / len(inside)
            share = sum(m for _, m in inside) / len(inside)
            assert found[number].num_pairs == len(inside)
            assert found[number].mean_probability == pytest.approx(promised)
            assert found[number].share == pytest.approx(share)
            error += len(inside) / 100 * abs(promised - share)
    computed = expected_calibration_error(probability, is_match, num_bins=num_bins, bins="width")
    assert computed == pytest.approx(error)


@given(seed=seeds)
def test_bins_of_equal_count_have_equal_counts(seed: int) -> None:
    probability, is_match = drawn(seed, 120)
    counts = [one.num_pairs for one in reliability(probability, is_match, num_bins=10, bins="count")]
    assert sum(counts) == 120
    assert max(counts) - min(counts) <= 1


def test_equal_probabilities_are_never_parted() -> None:
    (only,) = reliability(torch.full((50,), 0.3), torch.arange(50) < 10, num_bins=10, bins="count")
    assert (only.num_pairs, only.share) == (50, 0.2)


def test_the_ends_belong_to_the_outer_bins() -> None:
    found = reliability(torch.tensor([0.0, 1.0]), torch.tensor([False, True]), num_bins=4)
    assert [(one.low, one.high) for one in found] == [(0.0, 0.25), (0.75, 1.0)]


def test_true_probabilities_have_no_error_and_wrong_ones_have_theirs() -> None:
    probability, is_match = drawn(0, 100_000)
    assert expected_calibration_error(probability, is_match) < 0.01
    # What is said to be p comes true with p, so saying 1 is wrong by 1 - p, half on average.
    sure = torch.ones_like(probability)
    assert expected_calibration_error(sure, is_match) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(("right", "count"), [(0, 7), (3, 10), (10, 10), (40, 100)])
def test_intervals_are_those_of_scipy(right: int, count: int) -> None:
    expected = binomtest(right, count).proportion_ci(0.95, method="wilson")
    low, high = wilson_interval(right / count, float(count))
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_intervals_hold_what_they_promise() -> None:
    """Of 300 sets drawn with a known share, about 95 % of the intervals have it inside."""
    generator = torch.Generator().manual_seed(0)
    inside = 0
    for _ in range(300):
        (one,) = reliability(
            torch.full((80,), 0.3), torch.rand(80, generator=generator) < 0.3, num_bins=1, bins="width"
        )
        inside += one.share_low <= 0.3 <= one.share_high
    assert inside >= 275


def test_copies_tell_nothing_new() -> None:
    probability, is_match = drawn(1, 60)
    copies = [probability.repeat_interleave(9), is_match.repeat_interleave(9)]
    groups = [number for number in range(60) for _ in range(9)]
    (alone,) = reliability(probability, is_match, num_bins=1)
    (grouped,) = reliability(*copies, num_bins=1, groups=groups)
    (mixed,) = reliability(*copies, num_bins=1)
    assert (grouped.share_low, grouped.share_high) == pytest.approx((alone.share_low, alone.share_high))
    assert mixed.share_low > grouped.share_low
    everything = torch.ones(18, dtype=torch.float64)
    assert effective_count(everything, torch.arange(18) // 9) == 2


def test_wrong_input_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one pair"):
        reliability(torch.rand(0), torch.zeros(0, dtype=torch.bool))
    with pytest.raises(ValueError, match="between 0 and 1"):
        reliability(torch.tensor([1.5]), torch.tensor([True]))
    with pytest.raises(ConfigError, match="bins is 0"):
        reliability(torch.tensor([0.5]), torch.tensor([True]), num_bins=0)
