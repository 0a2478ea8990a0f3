"""Risk control: exact tails, and a promise that is broken as seldom as it says, on data with known errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom

from provico.errors import ConfigError
from provico.probability.risk_control import (
    DELTA,
    Levels,
    RiskControl,
    binomial_tail,
    control_risk,
    fewest_judgements,
)

LEVELS = Levels.of(torch.linspace(0.0005, 0.9995, 1000, dtype=torch.float64))
TRIALS = 200


@pytest.mark.parametrize("count", [1, 2, 7, 29, 60, 300, 3000])
@pytest.mark.parametrize("rate", [0.001, 0.05, 0.1, 0.5, 0.99])
def test_the_tail_is_that_of_the_binomial_distribution(count: int, rate: float) -> None:
    for wrong in sorted({0, 1, count // 10, count // 2, count}):
        if wrong <= count:
            found = binomial_tail(wrong, count, rate)
            assert found == pytest.approx(binom.cdf(wrong, count, rate), rel=1e-8, abs=1e-300)


@pytest.mark.parametrize("max_error", [0.01, 0.05, 0.1, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("delta", [0.05, 0.045, 0.0045])
def test_fewest_judgements_just_suffice(max_error: float, delta: float) -> None:
    fewest = fewest_judgements(max_error, delta)
    assert binom.cdf(0, fewest, max_error) <= delta
    assert fewest == 1 or binom.cdf(0, fewest - 1, max_error) > delta


@pytest.mark.parametrize("max_error", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_an_impossible_share_is_refused_by_the_name_of_its_flag(max_error: float) -> None:
    with pytest.raises(ConfigError, match="--max-error"):
        fewest_judgements(max_error)


def drawn(
    rng: np.random.Generator, num_recordings: int, slope: float, sizes: tuple[int, ...]
) -> RiskControl | None:
    """Recordings whose confidence u is uniform and whose queries all err together, with 2 slope (1 - u).

    Above a threshold t the error rate is then slope * (1 - t).
    """
    confidence = rng.random(num_recordings)
    is_wrong = rng.random(num_recordings) < np.clip(2 * slope * (1 - confidence), 0, 1)
    size = rng.choice(sizes, num_recordings)
    return control_risk(
        torch.from_numpy(np.repeat(confidence, size)),
        torch.from_numpy(np.repeat(is_wrong, size)),
        np.repeat(np.arange(num_recordings), size).tolist(),
        levels=LEVELS,
        max_error=0.1,
    )


@pytest.mark.parametrize("sizes", [(1,), (1, 1, 2, 12)], ids=["single", "clusters"])
@pytest.mark.parametrize("slope", [0.101, 0.15])
@pytest.mark.parametrize("num_recordings", [30, 60, 150])
def test_the_promise_is_broken_at_most_as_often_as_it_may(
    num_recordings: int, slope: float, sizes: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(0)
    found = [drawn(rng, num_recordings, slope, sizes) for _ in range(TRIALS)]
    broken = sum(one is not None and slope * (1 - one.threshold) > 0.1 for one in found)
    # So many or more would be seen with probability 1e-3 if delta were kept exactly.
    assert broken <= binom.isf(1e-3, TRIALS, DELTA)


def test_a_bound_that_forgets_recordings_would_break_it() -> None:
    """The law above can fail: with each query its own recording it does."""
    rng = np.random.default_rng(0)
    broken = 0
    for _ in range(TRIALS):
        wrong = np.repeat(rng.random(15) < 0.12, 20)
        found = control_risk(
            torch.from_numpy(rng.random(300)),
            torch.from_numpy(wrong),
            list(range(300)),
            levels=LEVELS,
            max_error=0.1,
        )
        broken += found is not None and found.share > 0.9
    assert broken > binom.isf(1e-3, TRIALS, DELTA)


def test_more_judgements_answer_more() -> None:
    rng = np.random.default_rng(1)
    coverage = []
    for num_recordings in (40, 100, 300, 1000):
        found = [drawn(rng, num_recordings, 0.15, (1,)) for _ in range(30)]
        coverage.append(np.mean([0.0 if one is None else one.share for one in found]))
    assert coverage == sorted(coverage)
    assert coverage[-1] > 0.4  # two thirds could be answered if all were known


def test_allowing_more_errors_never_answers_less() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        confidence = torch.from_numpy(rng.random(150))
        is_wrong = torch.from_numpy(rng.random(150)) < 0.4 * (1 - confidence)
        recordings = rng.integers(0, 120, 150).tolist()
        shares = []
        # From one level on, so that all walk down the same thresholds.
        few = Levels(LEVELS.thresholds[10:], LEVELS.shares[10:])
        for max_error in (0.05, 0.1, 0.15, 0.2, 0.3, 0.5):
            found = control_risk(confidence, is_wrong, recordings, levels=few, max_error=max_error)
            shares.append(0.0 if found is None else found.share)
        assert shares == sorted(shares)


def test_what_is_found_is_what_the_tail_allows() -> None:
    confidence = torch.linspace(0, 1, 100, dtype=torch.float64)
    is_wrong = torch.zeros(100, dtype=torch.bool)
    is_wrong[:15] = True
    found = control_risk(confidence, is_wrong, list(range(100)), levels=LEVELS, max_error=0.1)
    assert found is not None
    assert binom.cdf(found.num_wrong, found.num_recordings, 0.1) <= DELTA
    assert found.num_recordings == int((confidence >= found.threshold).sum())
    assert found.num_wrong == int(is_wrong[confidence >= found.threshold].sum())
    assert 0.75 <= found.share <= 0.9


def test_copies_of_a_judgement_change_nothing() -> None:
    rng = np.random.default_rng(3)
    confidence = torch.from_numpy(rng.random(80))
    is_wrong = confidence < 0.02
    once = control_risk(confidence, is_wrong, list(range(80)), levels=LEVELS, max_error=0.1)
    thrice = control_risk(
        confidence.repeat(3), is_wrong.repeat(3), [*range(80)] * 3, levels=LEVELS, max_error=0.1
    )
    assert once == thrice
    assert once is not None


def test_too_few_judgements_promise_nothing() -> None:
    for num in (0, 1, 28):
        confidence, is_wrong = torch.ones(num).double(), torch.zeros(num, dtype=torch.bool)
        assert control_risk(confidence, is_wrong, list(range(num)), levels=LEVELS, max_error=0.1) is None
    confidence, is_wrong = torch.ones(29).double(), torch.zeros(29, dtype=torch.bool)
    assert control_risk(confidence, is_wrong, list(range(29)), levels=LEVELS, max_error=0.1) is not None


def test_levels_are_quantiles_and_end_with_the_least() -> None:
    confidence = torch.tensor([3.0, 1.0, 2.0, 2.0, 5.0]).double()
    levels = Levels.of(confidence, num_levels=5)
    assert levels.thresholds.tolist() == [5.0, 3.0, 2.0, 1.0]
    assert levels.shares.tolist() == [0.2, 0.4, 0.8, 1.0]
    with pytest.raises(ValueError, match="descend"):
        Levels(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 1.0]))
