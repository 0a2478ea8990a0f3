"""An index's rows in LanceDB: an embedded engine whose every commit is a new version of a table on disk.

A commit appears by one rename, so a kill leaves the version before it or the version after it. In an object
store such as S3 it appears by one conditional write.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provico.errors import VideoIndexError
from provico.extras import require
from provico.search.store.video_store import BLOBS, TEXT, Column, Rows

KEEP_VERSIONS = timedelta(days=1)
"""For how long a reader can stay with a version that is no longer the newest."""
_CLIENT = "lance_namespace_urllib3_client"
_IMPORTING = threading.Lock()
_ITS_PACKAGES = ("lancedb", "lance_namespace", _CLIENT)
IDS_AT_ONCE = 1000
"""How many ids a condition names."""


class LanceStore:
    """A table at its newest version; `create` makes it, the constructor opens it.

    address: a folder, or a place in an object store such as s3://bucket/folder, whose keys and endpoint are
        taken from the environment (AWS_ACCESS_KEY_ID and so on).
    """

    def __init__(self, address: Path | str, table: str, columns: dict[str, Column]) -> None:
        self._address, self._name, self._columns = address, table, columns
        with _explained(address):
            self._table = self._newest()
            self._version = int(self._table.version)
            self._table.checkout(self._version)  # or it might go on to newer ones by itself
            found, wanted = self._table.schema, _schema(columns)
            if not found.equals(wanted):
                raise VideoIndexError(
                    f"The rows in {address} have other columns than index.json says, so that one of the two "
                    "was changed. Copy the index again, or rebuild it with `provico index`."
                )

    @classmethod
    def create(cls, address: Path | str, table: str, columns: dict[str, Column]) -> LanceStore:
        """An empty table."""
        with _explained(address):
            _connect(address).create_table(table, schema=_schema(columns))
        return cls(address, table, columns)

    @property
    def version(self) -> int:
        """The version that is read."""
        return self._version

    @cached_property
    def _rows(self) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        """Ids in order, and what the engine calls their rows."""
        with _explained(self._address):
            found = self._table.search().select(["id"]).with_row_id(True).to_arrow()
        names = found["id"].to_pylist()
        order = sorted(range(len(names)), key=names.__getitem__)
        return tuple(names[index] for index in order), found["_rowid"].to_numpy()[np.array(order, np.int64)]

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all rows, in order."""
        return self._rows[0]

    def read(self, names: Sequence[str], rows: Sequence[int] | None = None) -> Rows:
        """These columns of some rows, or of all."""
        wanted = self._rows[1] if rows is None else self._rows[1][np.array(rows, np.int64)]
        with _explained(self._address):
            if rows is None:
                query = self._table.search().select(list(names)).with_row_id(True)
            else:
                query = self._table.take_row_ids(np.unique(wanted).tolist()).select(list(names)).with_row_id()
            found = query.to_arrow()
        # The engine promises no order.
        given = found["_rowid"].to_numpy()
        order = given.argsort()
        indices = order[np.searchsorted(given, wanted, sorter=order)] if len(wanted) else order[:0]
        found = found.take(indices).combine_chunks()
        return {name: self._values(name, found[name]) for name in names}

    def write(self, rows: Rows) -> None:
        """Add rows, in place of those with the same ids."""
        import pyarrow as pa

        schema = _schema(self._columns)
        arrays = [_array(rows[field.name], self._columns.get(field.name), field.type) for field in schema]
        with _explained(self._address):
            (
                self._newest()
                .merge_insert("id")
                .when_matched_update_all()
                .when_not_matched_insert_all()
                .execute(pa.table(arrays, schema=schema))
            )

    def remove(self, ids: Sequence[str]) -> None:
        """Remove rows."""
        quoted = ["'" + name.replace("'", "''") + "'" for name in ids]
        if quoted:
            # One condition and so one commit, in lists that the parser of conditions does not choke on.
            parts = [quoted[first : first + IDS_AT_ONCE] for first in range(0, len(quoted), IDS_AT_ONCE)]
            with _explained(self._address):
                self._newest().delete(" OR ".join(f"id IN ({', '.join(part)})" for part in parts))

    def tidy(self) -> None:
        """Join the many small files of many commits, and forget versions of long ago."""
        with _explained(self._address):
            self._newest().optimize(cleanup_older_than=KEEP_VERSIONS)

    def close(self) -> None:
        """There is nothing to let go of."""

    def _newest(self) -> Any:
        if isinstance(self._address, Path) and not self._address.is_dir():
            # To connect would make an empty one.
            raise VideoIndexError(f"{self._address} is gone. Copy the index again, or rebuild it.")
        return _connect(self._address).open_table(self._name)

    def _values(self, name: str, values: Any) -> Any:
        if name not in self._columns:
            return values.to_pylist()
        column = self._columns[name]
        if column.is_ragged:
            return [
                np.array(one.values.to_numpy(), column.dtype).reshape(-1, *column.shape) for one in values
            ]
        chunks = [
            (chunk.flatten() if column.shape else chunk).to_numpy(zero_copy_only=False)
            for chunk in values.chunks
        ]
        joined = chunks[0] if len(chunks) == 1 else np.concatenate([np.empty(0, column.dtype), *chunks])
        return np.array(joined, column.dtype).reshape(len(values), *column.shape)


def _connect(address: Path | str) -> Any:
    require("search", what="An index in LanceDB")
    with _IMPORTING:
        lancedb = _import_lancedb()
    # Loaders fork workers, which read videos and never touch the store.
    warnings.filterwarnings("ignore", "lancedb fork support", RuntimeWarning)
    return lancedb.connect(address)


def _import_lancedb() -> Any:
    """lancedb, without what takes most of its time, and nothing here uses.

    That is the client of a web service, of which its namespaces take the models, but not the calls, which the
    client's `__init__` makes; and before Python 3.12 what its methods override, looked up in its byte code.
    """
    if "lancedb" not in sys.modules and _CLIENT not in sys.modules:
        found = importlib.util.find_spec(_CLIENT)
        if found is not None and found.submodule_search_locations:
            package = ModuleType(_CLIENT)
            package.__spec__, package.__path__ = found, list(found.submodule_search_locations)
            stand_ins = {_CLIENT: package}
            if "overrides" not in sys.modules:
                unchecked = ModuleType("overrides")
                unchecked.override, unchecked.EnforceOverrides = _as_it_is, object  # type: ignore[attr-defined]
                stand_ins["overrides"] = unchecked
            sys.modules.update(stand_ins)
            try:
                return importlib.import_module("lancedb")
            except (ImportError, AttributeError):  # of another version, which needs them
                for name in [name for name in sys.modules if name.partition(".")[0] in _ITS_PACKAGES]:
                    del sys.modules[name]
            finally:
                for name in stand_ins:
                    sys.modules.pop(name, None)
    return importlib.import_module("lancedb")


def _as_it_is(method: Any) -> Any:
    return method


def _schema(columns: dict[str, Column]) -> Any:
    import pyarrow as pa

    words = [pa.field(name, pa.string()) for name in TEXT]
    numbers = [pa.field(name, _kind(column)) for name, column in columns.items()]
    return pa.schema([*words, *numbers, *(pa.field(name, pa.binary()) for name in BLOBS)])


def _kind(column: Column) -> Any:
    import pyarrow as pa

    kind = pa.from_numpy_dtype(column.dtype)
    if column.is_ragged:
        return pa.large_list(kind)  # a day of clips, 64 times, is more than 32 bits can count
    return pa.list_(kind, column.size) if column.shape else kind


def _array(values: Any, column: Column | None, kind: Any) -> Any:
    import pyarrow as pa

    if column is not None and column.is_ragged:
        # One chunk for each row, which is not copied: a day of clips is hundreds of megabytes.
        flat = (np.ascontiguousarray(one, column.dtype).ravel() for one in values)
        return pa.chunked_array(
            [pa.LargeListArray.from_arrays(pa.array([0, len(one)], pa.int64()), one) for one in flat], kind
        )
    if column is None or not column.shape:
        return pa.array(values, kind)
    flat = pa.array(np.ascontiguousarray(values, column.dtype).ravel())
    return pa.FixedSizeListArray.from_arrays(flat, type=kind)


@contextmanager
def _explained(address: Path | str) -> Iterator[None]:
    """What the engine cannot do is the user's to mend, as far as anyone's: a full disk, a damaged file."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        raise VideoIndexError(
            f"The index's rows in {address} cannot be read or written ({error}). What was committed is kept. "
            "If it was opened more than a day ago and has been changed since, open it again; else look for a "
            "full disk, missing files, or a server that cannot be reached."
        ) from error
