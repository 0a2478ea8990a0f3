"""Metrics by their definitions; those of health are held in training/test_health.py."""

from __future__ import annotations

import doctest
import itertools
import math
import statistics
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from provico import metrics
from provico.metrics import aurc, excess_aurc, r_auroc, risk_coverage

from .test_architecture import imported

doubts = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=25)
queries = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=5)


def by_definition(doubt: list[float], correct: list[bool]) -> list[float]:
    """The mean risk at each coverage over all orders of increasing doubt."""
    orders = [
        order
        for order in itertools.permutations(range(len(doubt)))
        if all(doubt[a] <= doubt[b] for a, b in itertools.pairwise(order))
    ]
    return [
        statistics.mean(sum(not correct[place] for place in order[:count]) / count for order in orders)
        for count in range(1, len(doubt) + 1)
    ]


@given(queries)
def test_curve_and_area_are_those_of_all_orders(found: list[tuple[int, bool]]) -> None:
    doubt, correct = [float(d) for d, _ in found], [c for _, c in found]
    expected = by_definition(doubt, correct)
    given = torch.tensor(doubt), torch.tensor(correct)
    assert risk_coverage(*given).tolist() == pytest.approx(expected)
    assert aurc(*given) == pytest.approx(statistics.mean(expected))


@given(queries)
def test_no_doubt_is_below_the_least(found: list[tuple[int, bool]]) -> None:
    correct = torch.tensor([c for _, c in found])
    least = min(
        statistics.mean(order[:count].count(False) / count for count in range(1, len(order) + 1))
        for order in itertools.permutations(correct.tolist())
    )
    doubt = torch.tensor([float(d) for d, _ in found])
    assert excess_aurc(doubt, correct) == pytest.approx(aurc(doubt, correct) - least)
    assert excess_aurc(doubt, correct) >= -1e-12


def test_perfect_doubt_has_no_excess_and_no_doubt_the_share_of_errors() -> None:
    correct = torch.tensor([True, False, True, True, False])
    assert excess_aurc((~correct).double(), correct) == 0
    assert aurc(torch.zeros(5), correct) == pytest.approx(0.4)
    assert float(risk_coverage(torch.rand(5), correct)[-1]) == pytest.approx(0.4)


def test_only_the_order_of_doubt_counts() -> None:
    generator = torch.Generator().manual_seed(0)
    doubt = torch.rand(50, generator=generator)
    correct = torch.rand(50, generator=generator) < 0.6
    assert aurc(doubt, correct) == aurc(torch.exp(9 * doubt), correct)


def test_nan_and_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="must not be nan"):
        risk_coverage(torch.tensor([float("nan")]), torch.tensor([True]))
    with pytest.raises(ValueError, match="at least one query"):
        risk_coverage(torch.empty(0), torch.empty(0, dtype=torch.bool))


@given(doubts)
def test_auroc_is_the_share_of_pairs_in_the_right_order(rows):
    doubt = torch.tensor([float(value) for value, _ in rows])
    correct = torch.tensor([right for _, right in rows])
    pairs = [(d - e) for d, wrong in rows if not wrong for e, right in rows if right]
    area = r_auroc(doubt, correct)
    if not pairs:
        assert math.isnan(area)
        return
    assert area == pytest.approx(sum(1.0 if gap > 0 else 0.5 * (gap == 0) for gap in pairs) / len(pairs))
    assert r_auroc(-doubt, correct) == pytest.approx(1 - area)
    assert r_auroc(doubt.exp(), correct) == pytest.approx(area), "only the order counts"


def test_auroc_refuses_nan():
    with pytest.raises(ValueError, match="must not be nan"):
        r_auroc(torch.tensor([0.0, torch.nan]), torch.tensor([True, False]))


rates = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@given(rates, st.floats(0.001, 1))
def test_false_matches_are_counted(claimed: list[float], rate: float) -> None:
    found = metrics.false_match_calibration(torch.tensor(claimed, dtype=torch.float64), rates=(rate,))
    assert found[rate] == pytest.approx(sum(one <= rate for one in claimed) / len(claimed) / rate)


def test_rates_of_matches_by_chance_are_right() -> None:
    claimed = torch.rand(200_000, generator=torch.Generator().manual_seed(0))
    assert all(0.85 < ratio < 1.15 for ratio in metrics.false_match_calibration(claimed).values())
    with pytest.raises(ValueError, match="between 0 and 1"):
        metrics.false_match_calibration(torch.tensor([1.5]))


def test_examples_run_as_they_stand_and_need_nothing_else() -> None:
    found = doctest.testmod(metrics)
    assert found.failed == 0
    assert found.attempted >= 9
    assert not any(name.startswith("provico") for name in imported(Path(metrics.__file__), at_top=False))
