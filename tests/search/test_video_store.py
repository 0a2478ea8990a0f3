"""Rows from memory are those of the store, and memory is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provico.search.store import video_store
from provico.search.store.video_store import RowCache


class Store:
    """Twenty rows of each type; counts what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def read(self, names: Sequence[str], rows: Sequence[int]) -> dict[str, Any]:
        self.asked += rows
        rows = {
            "id": [f"v{number}" for number in rows],
            "label": [None if number % 2 else "a" for number in rows],
            "mean": np.array([[number, number + 0.5] for number in rows], np.float32).reshape(-1, 2),
            "num_bytes": np.array(rows, np.int64),
        }
        return {name: rows[name] for name in names}


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert type(found[name]) is type(values)
        np.testing.assert_array_equal(found[name], values)
        assert getattr(found[name], "dtype", None) == getattr(values, "dtype", None)


NAMES = st.lists(st.sampled_from(["id", "label", "mean", "num_bytes"]), min_size=1, unique=True)
NUMBERS = st.lists(st.integers(0, 19), max_size=8)


@given(st.lists(st.tuples(NAMES, NUMBERS), max_size=12), st.integers(0, 200))
def test_answers_are_those_of_the_store(questions: list[Any], max_bytes: int) -> None:
    cache = RowCache(Store())  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(video_store, "MAX_BYTES", max_bytes)
        for names, rows in questions:
            assert_same(cache.read(names, rows), Store().read(names, rows))
            assert cache._num_bytes <= max_bytes


def test_nothing_is_read_twice_unless_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    cache = RowCache(store)  # type: ignore[arg-type]
    for rows in ([3, 1, 3], [1, 2], [2, 3, 1]):
        cache.read(("id", "mean"), rows)
    assert store.asked == [1, 3, 2]
    monkeypatch.setattr(video_store, "MAX_BYTES", 20)  # room for two rows of ten bytes
    small = RowCache(store)  # type: ignore[arg-type]
    store.asked.clear()
    for number in (1, 2, 1, 3, 1, 2):  # 2 was not asked for the longest when 3 came
        small.read(("id", "mean"), [number])
    assert store.asked == [1, 2, 3, 2]
