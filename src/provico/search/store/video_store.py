"""What an index keeps of each video, and what an engine must do to keep it.

An engine is chosen by what it survives, not by how it searches: rows are committed some at a time, all or
none of them, and who has opened a store reads one version of it until they open it again. Search itself works
on what `LoadedVideos` loads, so that every engine gives the same answers. `StorePlace` knows which
there are.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Protocol

import numpy as np

from provico.search.exact.clouds import Spread

TEXT = ("id", "path", "label", "group", "subset", "preview", "content_hash")
"""Columns of words; label, group and subset may be absent. `preview` is the name of a file of the index."""
BLOBS = ("thumbnail",)
"""Columns of bytes."""

Rows = dict[str, Any]
"""Some videos: for each column a list of words, None or bytes, or an array with a row for each video; for
ragged columns a list of arrays."""


class Column:
    """The kind of numbers in a column, and the shape that each video has of them.

    is_ragged: of such an array each video has any number, in an array with one more axis.
    """

    def __init__(self, dtype: type[np.generic], *shape: int, is_ragged: bool = False) -> None:
        self.dtype = np.dtype(dtype)
        self.shape, self.is_ragged = shape, is_ragged

    @property
    def size(self) -> int:
        """How many numbers a video has, each time."""
        return int(np.prod(self.shape, dtype=np.int64))


def number_columns(*, dim: int, num_clips: int, words_dim: int | None) -> dict[str, Column]:
    """The columns of numbers; docs/search.md says what they mean."""
    words = {} if words_dim is None else {"clip_words": Column(np.float16, words_dim, is_ragged=True)}
    return words | {
        "num_bytes": Column(np.int64),
        "modified_ns": Column(np.int64),
        "duration_seconds": Column(np.float64),
        "uncertainty": Column(np.float32),
        "disagreement": Column(np.float32),
        "mean": Column(np.float32, dim),
        "log_var": Column(np.float32, dim),
        "start_seconds": Column(np.float64, num_clips),
        "end_seconds": Column(np.float64, num_clips),
        "clip_mean": Column(np.float32, num_clips, dim),
        "clip_log_var": Column(np.float32, num_clips, dim),
        # In float64, since the certificate of exact search rests on them.
        "sample_mean": Column(np.float64, dim),
        "sample_spread": Column(np.float64, len(fields(Spread))),
        # Of long videos only: all their clips, and the parts that can be found by themselves.
        "timeline_seconds": Column(np.float64, 2, is_ragged=True),
        "timeline_mean": Column(np.float32, dim, is_ragged=True),
        "timeline_log_var": Column(np.float32, dim, is_ragged=True),
        "segment_sample_mean": Column(np.float64, dim, is_ragged=True),
        "segment_sample_spread": Column(np.float64, len(fields(Spread)), is_ragged=True),
    }


class VideoStore(Protocol):
    """Rows by id. What is read is the version that was the newest when it was opened."""

    @property
    def version(self) -> int:
        """The version that is read; it grows with every change."""
        ...

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all rows, in order. A row is named by its index in it, in this version."""
        ...

    def read(self, names: Sequence[str], rows: Sequence[int] | None = None) -> Rows:
        """These columns of some rows, in this order; of all rows if none are given."""
        ...

    def write(self, rows: Rows) -> None:
        """Add rows with all columns, in place of those with the same ids: all of them or none.

        When it returns, a kill of this process or any other no longer loses them.
        """
        ...

    def remove(self, ids: Sequence[str]) -> None:
        """Remove rows: all of them or none. Ids that are not there are no error."""
        ...

    def tidy(self) -> None:
        """Make reading fast again after many changes; nothing that can be read changes."""
        ...

    def close(self) -> None:
        """Let go of what the engine holds for it, such as a connection."""
        ...


MAX_BYTES = 2**26

Key = tuple[tuple[str, ...], int]


class RowCache:
    """Rows that were read before are not read again; for any thread.

    Asking an engine for ten rows takes longer than ranking. A version of an index never changes, so what was
    read of it stays true. Memory is bounded: what was not asked for the longest time goes first.
    """

    def __init__(self, store: VideoStore) -> None:
        self._store = store
        self._rows: OrderedDict[Key, dict[str, Any]] = OrderedDict()
        self._listed: set[str] = set()
        self._num_bytes = 0
        self._lock = threading.Lock()

    def read(self, names: Sequence[str], rows: Sequence[int]) -> Rows:
        """As `VideoStore.read`."""
        names = tuple(names)
        known = self._recall(names, rows)
        missing = sorted(set(rows) - known.keys())
        if missing:
            found = self._store.read(names, missing)
            self._listed.update(name for name in names if isinstance(found[name], list))
            fresh = {row: {name: found[name][index] for name in names} for index, row in enumerate(missing)}
            self._remember(names, fresh)
            known |= fresh
        elif not known:
            return self._store.read(names, rows)  # of nothing, in the types that the store gives
        return {name: self._column(name, [known[row][name] for row in rows]) for name in names}

    def _column(self, name: str, values: list[Any]) -> Any:
        return values if name in self._listed else np.stack(values)

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
            while self._num_bytes > MAX_BYTES:
                _, values = self._rows.popitem(last=False)
                self._num_bytes -= _num_bytes(values)


def _num_bytes(values: dict[str, Any]) -> int:
    return sum(value.nbytes if hasattr(value, "nbytes") else len(value or "") for value in values.values())
