"""Columns of a whole index within reach, without taking the memory for them.

Large ones lie in a file without a name, which goes with the process however that ends. The system keeps in
memory what is looked at, as long as there is room. Where no file can be written, they are in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provico.files import home_folder, private_folder
from provico.search.store.video_store import Column, Rows, VideoStore

IN_MEMORY = 2**26
"""Up to so many bytes (64 MB) are simply read."""
ROWS_AT_ONCE = 2**14


def mapped(store: VideoStore, names: Sequence[str], columns: Mapping[str, Column]) -> dict[str, NDArray[Any]]:
    """These columns of numbers, of all rows."""
    num = len(store.ids)
    num_bytes = num * sum(columns[name].size * columns[name].dtype.itemsize for name in names)
    if num_bytes > IN_MEMORY:
        try:
            return _in_files(store, names, columns, num)
        except OSError:  # no room, or no right to write
            pass
    rows: Rows = store.read(names)
    return {name: rows[name] for name in names}


def _in_files(
    store: VideoStore, names: Sequence[str], columns: Mapping[str, Column], num: int
) -> dict[str, NDArray[Any]]:
    with ExitStack() as stack:
        folder = private_folder(home_folder())
        files = {name: stack.enter_context(tempfile.TemporaryFile(dir=folder)) for name in names}
        for first in range(0, num, ROWS_AT_ONCE):
            rows = store.read(names, range(first, min(first + ROWS_AT_ONCE, num)))
            for name, file in files.items():
                file.write(np.ascontiguousarray(rows[name], columns[name].dtype).data)
        for file in files.values():
            file.flush()
        # Copied when they are written to, which nobody does: torch wants no arrays that are read only.
        return {
            name: np.memmap(file, columns[name].dtype, mode="c", shape=(num, *columns[name].shape))
            for name, file in files.items()
        }
