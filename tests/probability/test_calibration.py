"""Calibration recovers probabilities that are known, changes no ranking, and is judged on unseen groups."""

from __future__ import annotations

import dataclasses
import json
import math
from decimal import Decimal, getcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor

from provico.errors import ConfigError
from provico.probability import Calibration, log_odds
from provico.probability.calibration import fit_platt

seeds = st.integers(0, 2**31)


def drawn(
    seed: int, count: int, *, slope: float, intercept: float, other: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Log match probabilities, the true probabilities of a match, and what came of them."""
    generator = torch.Generator().manual_seed(seed)
    odds = -3 + 3 * torch.randn(count, generator=generator, dtype=torch.float64)
    log_p = torch.nn.functional.logsigmoid(odds)
    truth = (slope * log_p - other * torch.nn.functional.logsigmoid(-odds) + intercept).sigmoid()
    return log_p, truth, torch.rand(count, generator=generator, dtype=torch.float64) < truth


def fitted(log_p: Tensor, is_match: Tensor, groups: list[str] | None = None) -> Calibration:
    return Calibration.fit(log_p, is_match, source="labels", pairs="made up", groups=groups)


@pytest.mark.parametrize(
    ("slope", "other", "intercept"),
    [(1.0, 0.0, 0.0), (0.4, 0.0, 1.5), (2.5, 0.0, 9.0), (1.0, 1.0, 0.0), (0.3, 1.5, -1.0), (0.0, 1.0, -2.0)],
)
def test_known_probabilities_are_recovered(slope: float, other: float, intercept: float) -> None:
    log_p, truth, is_match = drawn(0, 40_000, slope=slope, intercept=intercept, other=other)
    found = fitted(log_p, is_match)
    assert found.slope == pytest.approx(slope, rel=0.06, abs=0.05)
    assert found.other_slope == pytest.approx(other, rel=0.1, abs=0.2)
    assert found.intercept == pytest.approx(intercept, rel=0.06, abs=0.2)
    difference = (found.probability(log_p) - truth).abs()
    assert difference.quantile(0.99) < 0.02
    assert difference.max() < 0.07  # where p is nearly one, of which little was drawn
    assert found.after.calibration_error < 0.012
    assert found.prevalence == pytest.approx(float(truth.mean()), abs=0.01)
    best = -(truth * truth.log() + (1 - truth) * (1 - truth).log()).mean()  # the entropy of what was drawn
    assert found.after.log_loss == pytest.approx(float(best), abs=0.005)


def test_what_is_calibrated_already_is_seen_to_be() -> None:
    generator = torch.Generator().manual_seed(1)
    log_p = -8 * torch.rand(40_000, generator=generator, dtype=torch.float64)
    found = fitted(log_p, torch.rand(40_000, generator=generator, dtype=torch.float64) < log_p.exp())
    assert found.before.calibration_error < 0.012
    assert found.before.log_loss <= found.after.log_loss


def test_a_wrong_scale_is_mended() -> None:
    log_p, _, is_match = drawn(2, 10_000, slope=0.5, intercept=3.0)
    found = fitted(log_p, is_match)
    assert found.before.calibration_error > 0.2
    assert found.after.calibration_error < 0.02
    assert found.after.log_loss < found.before.log_loss - 0.2


@given(seed=seeds, slope=st.floats(-2, 3))
def test_is_monotone_and_a_probability(seed: int, slope: float) -> None:
    log_p, _, is_match = drawn(seed, 200, slope=slope, intercept=0.5)
    if not 0 < int(is_match.sum()) < 200:
        return
    found = fitted(log_p, is_match)
    calibrated = found.probability(log_p.sort().values)
    # But for rounding: where the slope is zero, equal numbers may differ in their last bit.
    assert bool((calibrated.diff() >= -1e-15).all())
    assert bool(((calibrated >= 0) & (calibrated <= 1)).all())


@given(seed=seeds)
def test_order_of_pairs_and_units_of_scores_change_nothing(seed: int) -> None:
    log_p, _, is_match = drawn(seed, 300, slope=1.0, intercept=2.0)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(seed))
    slope, intercept = fit_platt(log_p, is_match)
    assert fit_platt(log_p[order], is_match[order]) == pytest.approx((slope, intercept), rel=1e-6)
    # A change of units of the scores is undone by the slope.
    scaled = fit_platt(100 * log_p - 7, is_match)
    assert 100 * scaled[0] == pytest.approx(slope, rel=1e-6)
    assert scaled[1] - 7 * scaled[0] == pytest.approx(intercept, rel=1e-6, abs=1e-6)


@given(seed=seeds, slope=st.floats(-1, 2))
def test_fit_is_the_least_loss_of_all_allowed(seed: int, slope: float) -> None:
    log_p, _, is_match = drawn(seed, 60, slope=slope, intercept=3.0)
    num_matches = int(is_match.sum())
    if not 0 < num_matches < 60:
        return
    target = torch.where(is_match, (num_matches + 1) / (num_matches + 2), 1 / (60 - num_matches + 2))

    def loss(weights: tuple[float, float]) -> float:
        predicted = weights[0] * log_p + weights[1]
        return float((torch.nn.functional.softplus(predicted) - target * predicted).mean())

    other = minimize(loss, (0.1, 0.0), bounds=[(0, None), (None, None)], method="L-BFGS-B")
    assert loss(fit_platt(log_p, is_match)) <= other.fun + 1e-9


def test_pairs_that_a_threshold_parts_have_a_finite_slope() -> None:
    log_p = torch.tensor([-9.0, -8.0, -7.0, -0.1, -0.01, -1e-9], dtype=torch.float64)
    found = fitted(log_p, torch.tensor([False, False, False, True, True, True]))
    assert math.isfinite(found.slope + found.other_slope)
    probabilities = found.probability(log_p)
    assert probabilities[2] < 0.5 < probabilities[3]
    assert probabilities[0] < 0.25 < 0.75 < probabilities[5]
    assert bool(((probabilities > 0) & (probabilities < 1)).all())


def test_scores_that_mislead_are_given_no_weight() -> None:
    log_p, _, is_match = drawn(3, 2000, slope=-1.0, intercept=-3.0)
    found = fitted(log_p, is_match)
    assert found.slope == found.other_slope == 0
    assert float(found.probability(log_p[:1])) == pytest.approx(found.prevalence, abs=1e-3)


def test_equal_scores_give_the_share_of_matches() -> None:
    found = fitted(torch.full((400,), -2.0), torch.arange(400) < 100)
    assert found.slope == 0
    assert float(found.probability(torch.tensor([-2.0]))) == pytest.approx(0.25, abs=0.002)


@pytest.mark.parametrize("log_p", [-630.0, -40.0, -1.0, -0.7, -0.69, -0.1, -1e-3, -1e-9])
def test_log_odds_keep_their_digits(log_p: float) -> None:
    getcontext().prec = 60
    p = Decimal(log_p).exp()
    expected = float((p / (1 - p)).ln())
    assert float(log_odds(torch.tensor(log_p, dtype=torch.float64))) == pytest.approx(expected, rel=1e-12)


def test_log_odds_of_one_are_finite_and_of_float32_too() -> None:
    assert math.isfinite(float(log_odds(torch.tensor(0.0))))
    assert log_odds(torch.tensor([-3.0], dtype=torch.float32)).dtype == torch.float64


@pytest.mark.parametrize("wrong", [[-math.inf, -1.0], [math.nan, -1.0], [0.5, -1.0]])
def test_what_is_no_log_probability_is_refused(wrong: list[float]) -> None:
    for function in (log_odds, fitted(*drawn(6, 50, slope=1.0, intercept=1.0)[::2]).probability):
        with pytest.raises(ValueError, match="log match probability"):
            function(torch.tensor(wrong))


@pytest.mark.parametrize("all_match", [True, False])
def test_one_kind_of_pair_is_not_enough(all_match: bool) -> None:
    with pytest.raises(ConfigError, match="some that match and some that do not"):
        fitted(torch.full((5,), -1.0), torch.full((5,), all_match))


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"3 pairs, but 2 groups"):
        fitted(-torch.ones(3), torch.tensor([True, False, True]), groups=["a", "b"])


def test_is_judged_on_groups_that_it_was_not_fitted_to() -> None:
    """In each group all pairs are alike, so a map that had seen the group would know better."""
    log_p, _, is_match = drawn(4, 12, slope=0.0, intercept=0.0)
    copies = 500
    groups = [str(number) for number in range(12) for _ in range(copies)]
    grouped = fitted(log_p.repeat_interleave(copies), is_match.repeat_interleave(copies), groups)
    mixed = fitted(log_p.repeat_interleave(copies), is_match.repeat_interleave(copies))
    assert grouped.num_groups == 12
    assert grouped.slope == mixed.slope
    assert grouped.after.log_loss > mixed.after.log_loss + 0.01


def test_survives_json() -> None:
    log_p, _, is_match = drawn(5, 500, slope=0.7, intercept=1.0)
    found = fitted(log_p, is_match)
    assert Calibration.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    with pytest.raises(TypeError):
        Calibration.from_dict(found.to_dict() | {"slop": 1.0})
    for wrong in ({"slope": -1.0}, {"slope": math.inf}, {"intercept": math.nan}):
        with pytest.raises(ValueError, match="slope"):
            dataclasses.replace(found, **wrong)
