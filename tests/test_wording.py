"""Shares count what is really lower, and words never promise more than the numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provico.wording import clock, hard_to_make_out, share_below, sure

NUMBERS = st.lists(st.integers(0, 9).map(float), min_size=1, max_size=30)


@given(NUMBERS, st.integers(-1, 10).map(float))
def test_a_share_is_of_the_others(collection: list[float], stranger: float) -> None:
    for value, share in zip(collection, share_below(collection, of=collection), strict=True):
        others = len(collection) - 1
        assert share == pytest.approx(sum(one < value for one in collection) / max(1, others))
    if stranger not in collection:
        below = sum(one < stranger for one in collection) / len(collection)
        assert share_below(stranger, of=collection) == pytest.approx(below)


def test_the_units_do_not_matter() -> None:
    values = np.random.default_rng(0).lognormal(size=50)
    np.testing.assert_array_equal(share_below(values, of=values), share_below(7 * values, of=7 * values))


def test_words_follow_the_numbers() -> None:
    assert hard_to_make_out(0.984).endswith("less certain than 98 % of the others")
    assert hard_to_make_out(1.0).endswith("less certain than all others")
    assert [sure(p) for p in (0.5, 0.994, 0.9999, 1.0)] == [
        "50 % sure",
        "99 % sure",
        ">99 % sure",
        "100 % sure",
    ]
    assert [clock(seconds) for seconds in (7.6, 65, 7209)] == ["0:08", "1:05", "2:00:09"]
