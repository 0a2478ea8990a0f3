"""Rows that were read before are not read again: asking an engine for ten rows takes longer than ranking.

A version of an index never changes, so what was read of it stays true. Memory is bounded: what was not asked
for the longest time goes first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from provico.search.store.video_store import Rows, VideoStore

MAX_BYTES = 2**26

Key = tuple[tuple[str, ...], int]


class RowCache:
    """The rows of one version of a store; for any thread."""

    def __init__(self, store: VideoStore, *, max_bytes: int = MAX_BYTES) -> None:
        self._store, self._max_bytes = store, max_bytes
        self._rows: OrderedDict[Key, dict[str, Any]] = OrderedDict()
        self._num_bytes = 0
        self._lock = threading.Lock()

    def read(self, names: Sequence[str], numbers: Sequence[int]) -> Rows:
        """As `VideoStore.read`."""
        names = tuple(names)
        known = self._recall(names, numbers)
        missing = sorted(set(numbers) - known.keys())
        if missing:
            found = self._store.read(names, missing)
            fresh = {
                number: {name: found[name][place] for name in names} for place, number in enumerate(missing)
            }
            self._remember(names, fresh)
            known |= fresh
        elif not known:
            return self._store.read(names, numbers)  # of nothing, in the types that the store gives
        return {name: _column([known[number][name] for number in numbers]) for name in names}

    def _recall(self, names: tuple[str, ...], numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
        with self._lock:
            known = {number: self._rows[names, number] for number in numbers if (names, number) in self._rows}
            for number in known:
                self._rows.move_to_end((names, number))
        return known

    def _remember(self, names: tuple[str, ...], rows: dict[int, dict[str, Any]]) -> None:
        with self._lock:
            for number, row in rows.items():
                if (names, number) not in self._rows:  # another thread may have been as fast
                    self._rows[names, number] = row
                    self._num_bytes += _num_bytes(row)
            while self._num_bytes > self._max_bytes:
                _, row = self._rows.popitem(last=False)
                self._num_bytes -= _num_bytes(row)


def _column(values: list[Any]) -> Any:
    return np.stack(values) if isinstance(values[0], np.ndarray | np.generic) else values


def _num_bytes(row: dict[str, Any]) -> int:
    return sum(value.nbytes if hasattr(value, "nbytes") else len(value or "") for value in row.values())
