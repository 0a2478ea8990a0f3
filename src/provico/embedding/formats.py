"""Rows of embeddings as .parquet and as .npz: the columns, and how each format holds them.

Both are written some rows at a time, so that a file may be larger than memory. To add a format: three
functions, and a line in `FORMATS`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

TEXT = ("id", "path", "label", "group", "subset")
"""Columns of words; all but the first two may be empty."""
NUMBERS: dict[str, type[np.generic]] = {
    "num_bytes": np.int64,
    "modified_ns": np.int64,
    "uncertainty": np.float32,
    "disagreement": np.float32,
    "mean": np.float32,
    "log_var": np.float32,
    "start_seconds": np.float64,
    "end_seconds": np.float64,
    "clip_mean": np.float32,
    "clip_log_var": np.float32,
}
"""Columns of numbers, and of which kind."""
COLUMNS = (*TEXT, *NUMBERS)
"""Every column, in order; docs/embeddings.md says what they mean."""

Columns = dict[str, Any]
"""Some rows: for each name a list of words and None, or an array with a row for each video."""

HEADER = "provico"
"""The key of the header in the metadata of a .parquet, and the name of its array in an .npz."""


@dataclass(frozen=True)
class Format:
    """How a file is written and read."""

    write: Callable[[Path, str, Iterable[Columns], int, Path], None]
    """path, header, rows, how many rows, and a folder for files that are needed while writing."""
    read_header: Callable[[Path], str]
    read: Callable[[Path, Sequence[str]], Iterator[Columns]]
    """The columns of these names, some rows at a time."""


# --- parquet -----------------------------------------------------------------------------------------------


def _write_parquet(path: Path, header: str, chunks: Iterable[Columns], num_rows: int, scratch: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def table(columns: Columns) -> Any:
        arrays = {name: pa.array(columns[name], pa.string()) for name in TEXT}
        arrays |= {name: _nested(columns[name].astype(kind)) for name, kind in NUMBERS.items()}
        return pa.table(arrays).replace_schema_metadata({HEADER: header})

    tables = map(table, chunks)
    first = next(tables)
    # Numbers that never repeat gain nothing from a dictionary.
    with pq.ParquetWriter(path, first.schema, compression="zstd", use_dictionary=list(TEXT[2:])) as writer:
        for rows in chain([first], tables):
            writer.write_table(rows)  # a row group each


def _nested(values: NDArray[Any]) -> Any:
    """An array of several axes as lists of fixed size."""
    import pyarrow as pa

    array = pa.array(values.reshape(-1))
    for size in reversed(values.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array


def _read_parquet_header(path: Path) -> str:
    import pyarrow.parquet as pq

    return str(pq.read_schema(path).metadata[HEADER.encode()].decode())


def _read_parquet(path: Path, names: Sequence[str]) -> Iterator[Columns]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            rows = file.read_row_group(number, columns=list(names))
            yield {
                name: rows[name].to_pylist() if name in TEXT else _flat(rows[name].combine_chunks())
                for name in names
            }


def _flat(array: Any) -> NDArray[Any]:
    """The inverse of `_nested`."""
    import pyarrow as pa

    shape = [len(array)]
    while pa.types.is_fixed_size_list(array.type):
        shape.append(array.type.list_size)
        array = array.flatten()
    numbers: NDArray[Any] = array.to_numpy().reshape(shape)
    return numbers


# --- npz ---------------------------------------------------------------------------------------------------


def _write_npz(path: Path, header: str, chunks: Iterable[Columns], num_rows: int, scratch: Path) -> None:
    """Fill one file for each column, then put them together: an .npz is an archive of such files."""
    words: dict[str, list[str]] = {name: [] for name in TEXT}
    numbers: dict[str, NDArray[Any]] = {}
    place = 0
    for columns in chunks:
        for name in TEXT:
            words[name] += [word or "" for word in columns[name]]
        for name, kind in NUMBERS.items():
            rows = columns[name]
            if name not in numbers:
                shape = (num_rows, *rows.shape[1:])
                file = scratch / f"{name}.npy"
                numbers[name] = np.lib.format.open_memmap(file, "w+", np.dtype(kind), shape)
            numbers[name][place : place + len(rows)] = rows
        place += len(columns["id"])
    numbers.clear()  # which writes what is not on disk yet
    for name in TEXT:
        np.save(scratch / f"{name}.npy", np.array(words[name]))
    np.save(scratch / f"{HEADER}.npy", np.array(header))
    with zipfile.ZipFile(path, "w") as archive:
        for name in (HEADER, *COLUMNS):
            archive.write(scratch / f"{name}.npy", f"{name}.npy")
            (scratch / f"{name}.npy").unlink()


def _read_npz_header(path: Path) -> str:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return str(stored[HEADER])


def _read_npz(path: Path, names: Sequence[str]) -> Iterator[Columns]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        yield {
            name: [word or None for word in stored[name].tolist()] if name in TEXT else stored[name]
            for name in names
        }


FORMATS = {
    ".parquet": Format(_write_parquet, _read_parquet_header, _read_parquet),
    ".npz": Format(_write_npz, _read_npz_header, _read_npz),
}
"""Every format by its suffix."""
