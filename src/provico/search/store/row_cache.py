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

    def read(self, names: Sequence[str], rows: Sequence[int]) -> Rows:
        """As `VideoStore.read`."""
        names = tuple(names)
        known = self._recall(names, rows)
        missing = sorted(set(rows) - known.keys())
        if missing:
            found = self._store.read(names, missing)
            fresh = {row: {name: found[name][index] for name in names} for index, row in enumerate(missing)}
            self._remember(names, fresh)
            known |= fresh
        elif not known:
            return self._store.read(names, rows)  # of nothing, in the types that the store gives
        return {name: _column([known[row][name] for row in rows]) for name in names}

    def _recall(self, names: tuple[str, ...], rows: Sequence[int]) -> dict[int, dict[str, Any]]:
        with self._lock:
            known = {row: self._rows[names, row] for row in rows if (names, row) in self._rows}
            for row in known:
                self._rows.move_to_end((names, row))
        return known

    def _remember(self, names: tuple[str, ...], fresh: dict[int, dict[str, Any]]) -> None:
        with self._lock:
            for row, values in fresh.items():
                if (names, row) not in self._rows:  # another thread may have been as fast
                    self._rows[names, row] = values
                    self._num_bytes += _num_bytes(values)
            while self._num_bytes > self._max_bytes:
                _, values = self._rows.popitem(last=False)
                self._num_bytes -= _num_bytes(values)


def _column(values: list[Any]) -> Any:
    return np.stack(values) if isinstance(values[0], np.ndarray | np.generic) else values


def _num_bytes(values: dict[str, Any]) -> int:
    return sum(value.nbytes if hasattr(value, "nbytes") else len(value or "") for value in values.values())
