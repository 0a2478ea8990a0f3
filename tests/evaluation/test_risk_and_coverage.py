"""Risk and coverage by their definition."""

from __future__ import annotations

import itertools
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from provico.evaluation.statistics import Interval, aurc, excess_aurc, redrawn_sets, risk_coverage

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
    with pytest.raises(ValueError, match="not nan"):
        risk_coverage(torch.tensor([float("nan")]), torch.tensor([True]))
    with pytest.raises(ValueError, match="at least one query"):
        risk_coverage(torch.empty(0), torch.empty(0, dtype=torch.bool))


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
