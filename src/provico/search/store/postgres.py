"""An index's rows in PostgreSQL with pgvector: one server that many machines read, and one at a time writes.

A row is never changed. A version adds rows and ends others, in one transaction:

    state     the newest version, and the key of the next row
    videos    all columns of a row, by key; of the versions from `since` to before `until`
    places    what search needs of a row, small and apart, so that a scan reads little else:
              [mean of its samples, sqrt(V)] for stage 1, and how the samples lie about their mean

So a reader stays with its version without holding a transaction open. Rows that have ended are deleted after
a day. The server's own log makes a commit safe from kills and power failures.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from provico.errors import ConfigError, VideoIndexError
from provico.search.exact.clouds import Spread
from provico.search.store.server import connect, explained
from provico.search.store.video_store import BLOBS, TEXT, Column, Rows

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

KEEP_VERSIONS = timedelta(days=1)
"""For how long a reader can stay with a version that is no longer the newest."""
ROWS_AT_ONCE = 1000
"""How many rows the server sends together."""
LOCK_SECONDS = 3
"""How long to wait for a writer that may be gone: the server notices a killed one a moment later."""
LARGEST_DIM = 15_999
"""pgvector's vectors have up to 16,000 coordinates, one of which is sqrt(V)."""
LARGEST_INLINE_DIM = 1500
"""Longer vectors do not fit into a page of the server beside the rest, and are kept apart."""
SPREAD = tuple(part.name for part in fields(Spread))
"""Columns of `places`."""
_TYPES = {"int64": "bigint", "float32": "real", "float64": "double precision"}
_ID_ORDER = 'id collate "C"'  # by code points, as Python sorts


class PostgresStore:
    """The rows of an index at their newest version; `create` makes the tables, the constructor opens them.

    address: postgresql://user@host/database without a password, which libpq finds in PGPASSWORD or ~/.pgpass.
    schema: of the tables of this index.
    to_write: keep out other writers until it is closed.
    """

    def __init__(
        self, address: str, schema: str, columns: dict[str, Column], *, to_write: bool = False
    ) -> None:
        self._address, self._schema, self._columns, self._to_write = address, schema, columns, to_write
        self._lock = threading.RLock()  # a connection has one transaction, whoever uses it
        self._connection = self._connected()
        with self._explained():
            if to_write:
                self._keep_others_out()
            found = self._connection.execute(self.statement("select version from {}.state")).fetchone()
            assert found is not None
            self._version: int = found[0]

    @classmethod
    def create(cls, address: str, schema: str, columns: dict[str, Column], *, about: str) -> None:
        """Empty tables, with what the index says of itself."""
        dim = columns["mean"].size
        if dim > LARGEST_DIM:
            raise ConfigError(f"The embedding has {dim} coordinates, but pgvector takes up to {LARGEST_DIM}.")
        words = [f'"{name}" text' for name in TEXT]
        numbers = [
            f'"{name}" {"bytea" if column.shape else _TYPES[column.dtype.name]} not null'
            for name, column in columns.items()
        ]
        blobs = [f'"{name}" bytea not null' for name in BLOBS]
        spread = ", ".join(f'"{name}" double precision not null' for name in SPREAD)
        storage = "plain" if dim < LARGEST_INLINE_DIM else "external"
        script = f"""
            create extension if not exists vector;
            create schema {schema};
            create table {schema}.state (version bigint not null, next_key bigint not null);
            insert into {schema}.state values (1, 1);
            create table {schema}.videos (
                key bigint primary key, since bigint not null, until bigint, ended timestamptz,
                {", ".join([*words, *numbers, *blobs])}
            );
            create unique index on {schema}.videos ({_ID_ORDER}) where until is null;
            create index on {schema}.videos (path);
            create index on {schema}.videos (ended) where ended is not null;
            create table {schema}.places (
                key bigint primary key references {schema}.videos on delete cascade,
                since bigint not null, until bigint, place vector({dim + 1}) not null, {spread}
            );
            alter table {schema}.places alter column place set storage {storage};
        """
        connection = connect(address)
        try:
            with explained(address), connection.transaction():
                connection.execute(script.encode())
                _describe(connection, schema, about)
        finally:
            connection.close()

    @property
    def version(self) -> int:
        """The version that is read."""
        return self._version

    @cached_property
    def _rows(self) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        """Ids in order, and the keys of their rows."""
        with self.reading() as connection:
            found = connection.execute(
                self.statement(
                    f"select id, key from {{}}.videos where {self.is_there()} order by {_ID_ORDER}"
                )
            ).fetchall()
        return tuple(row[0] for row in found), np.array([row[1] for row in found], np.int64)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all rows, in order."""
        return self._rows[0]

    def read(self, names: Sequence[str], rows: Sequence[int] | None = None) -> Rows:
        """These columns of some rows, or of all."""
        keys = self._rows[1]
        return self.read_keys(names, keys if rows is None else keys[np.array(rows, np.int64)])

    def read_keys(self, names: Sequence[str], keys: NDArray[np.int64]) -> Rows:
        """These columns of the rows with these keys, in this order."""
        indices: dict[int, list[int]] = {}
        for index, key in enumerate(keys.tolist()):
            indices.setdefault(key, []).append(index)
        rows: Rows = {
            name: np.empty((len(keys), *column.shape), column.dtype)
            if (column := self._columns.get(name)) and not column.is_ragged
            else [None] * len(keys)
            for name in names
        }
        num_found = 0
        wanted = ", ".join(f'"{name}"' for name in names)
        query = self.statement(f"select key, {wanted} from {{}}.videos where key = any(%s)")
        few = len(indices) <= ROWS_AT_ONCE
        for key, *values in (self.fetch if few else self.stream)(query, [list(indices)]):
            for name, value in zip(names, values, strict=True):
                known = self._value(name, value)
                for index in indices[key]:
                    rows[name][index] = known
            num_found += 1
        if num_found != len(indices):
            raise VideoIndexError(
                f"{len(indices) - num_found:,} rows of version {self._version} of the index are gone: "
                "it was opened more than a day ago, and has been changed since. Open it again."
            )
        return rows

    def write(self, rows: Rows) -> None:
        """Add rows, in place of those with the same ids."""
        names = [*TEXT, *self._columns, *BLOBS]
        marks = ", ".join(["%b"] * (len(names) + 2))
        quoted = ", ".join(f'"{name}"' for name in names)
        into_videos = self.statement(f"insert into {{}}.videos (key, since, {quoted}) values ({marks})")
        into_places = self.statement(
            f"insert into {{}}.places (key, since, place, {', '.join(SPREAD)}) "
            f"values ({', '.join(['%b'] * (len(SPREAD) + 3))})"
        )
        with self._changing(rows["id"]) as (version, first_key):
            keys = range(first_key, first_key + len(rows["id"]))
            columns = [self._sent(name, rows[name]) for name in names]
            cursor = self._connection.cursor()
            cursor.executemany(
                into_videos, [(key, version, *row) for key, *row in zip(keys, *columns, strict=True)]
            )
            spread = np.asarray(rows["sample_spread"], np.float64)
            places = place_vectors(np.asarray(rows["sample_mean"]), spread[:, SPREAD.index("mean_square")])
            cursor.executemany(
                into_places,
                [
                    (key, version, place, *row)
                    for key, place, row in zip(keys, places, spread.tolist(), strict=True)
                ],
            )

    def remove(self, ids: Sequence[str]) -> None:
        """Remove rows."""
        if len(ids):
            with self._changing(ids):
                pass

    def tidy(self) -> None:
        """Delete rows that ended long ago, and let the server count what is left, for its plans."""
        with self._explained():
            self._connection.execute(
                self.statement("delete from {}.videos where ended < now() - %s"), [KEEP_VERSIONS]
            )
            for table in ("videos", "places"):
                self._connection.execute(self.statement(f"vacuum (analyze) {{}}.{table}"))

    def close(self) -> None:
        """Let go of the connection, and of the lock of a writer."""
        self._connection.close()

    def is_there(self, table: str = "") -> str:
        """The condition for a row to be of this version."""
        return f"{table}since <= {self._version} and ({table}until is null or {table}until > {self._version})"

    @contextmanager
    def reading(self) -> Iterator[psycopg.Connection[Any]]:
        """The connection for oneself; one that was lost is made anew, except that of a writer."""
        with self._lock, self._explained():
            if not self._to_write and not self._is_alive():
                self._connection = self._connected()
            yield self._connection

    def fetch(self, query: sql.Composed, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Some rows, all at once."""
        with self.reading() as connection, connection.cursor(binary=True) as cursor:
            return cursor.execute(query, values).fetchall()

    def stream(self, query: sql.Composed, values: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """Rows as the server sends them, some at a time; the connection is taken until the last."""
        with (
            self.reading() as connection,
            connection.transaction(),
            connection.cursor(name="rows", binary=True) as cursor,
        ):
            cursor.itersize = ROWS_AT_ONCE
            cursor.execute(query, values)
            yield from cursor

    @contextmanager
    def _changing(self, ids: Sequence[str]) -> Iterator[tuple[int, int]]:
        """A transaction that ends these rows and makes a new version; gives its number, and a free key."""
        with self._lock, self._explained(), self._connection.transaction():
            # Whoever has this row has all others wait until the end of the transaction.
            found = self._connection.execute(
                self.statement("select version + 1, next_key from {}.state for update")
            ).fetchone()
            assert found is not None
            version, first_key = found
            ended = self._connection.execute(
                self.statement(
                    "update {}.videos set until = %s, ended = now() where id = any(%s) and until is null "
                    "returning key"
                ),
                [version, list(ids)],
            ).fetchall()
            self._connection.execute(
                self.statement("update {}.places set until = %s where key = any(%s)"),
                [version, [key for (key,) in ended]],
            )
            yield version, first_key
            self._connection.execute(
                self.statement("update {}.state set version = %s, next_key = next_key + %s"),
                [version, len(ids)],
            )

    def _is_alive(self) -> bool:
        from psycopg import OperationalError

        try:
            self._connection.execute("select 1")
        except OperationalError:
            return False
        return True

    def _connected(self) -> psycopg.Connection[Any]:
        connection = connect(self._address)
        weakref.finalize(self, _close, connection, os.getpid())
        return connection

    def _keep_others_out(self) -> None:
        """A lock that ends with the connection, however that ends; all writes go through the same one."""
        from psycopg.errors import LockNotAvailable

        try:
            self._connection.execute(f"set lock_timeout = '{LOCK_SECONDS}s'")
            self._connection.execute("select pg_advisory_lock(hashtextextended(%s, 0))", [self._schema])
            self._connection.execute("set lock_timeout = 0")
        except LockNotAvailable:
            self._connection.close()
            raise VideoIndexError(
                "The index is being written by another process or machine. Wait until this is finished."
            ) from None

    def statement(self, text: str) -> sql.Composed:
        """A statement in which each {} is the schema of the index."""
        from psycopg import sql

        return sql.SQL(text).format(*[sql.Identifier(self._schema)] * text.count("{}"))

    def _explained(self) -> Any:
        return explained(self._address)

    def _value(self, name: str, value: Any) -> Any:
        column = self._columns.get(name)
        if column is None or not column.shape:
            return value
        known = np.frombuffer(value, column.dtype.newbyteorder("<"))
        if column.is_ragged:
            return known.astype(column.dtype).reshape(-1, *column.shape)
        return known.reshape(column.shape)

    def _sent(self, name: str, values: Any) -> list[Any]:
        column = self._columns.get(name)
        if column is None:
            return list(values)
        if column.is_ragged:
            return [np.asarray(one, column.dtype.newbyteorder("<")).tobytes() for one in values]
        array = np.asarray(values, column.dtype)
        return (
            [row.tobytes() for row in array.astype(array.dtype.newbyteorder("<"))]
            if column.shape
            else array.tolist()
        )


def _describe(connection: psycopg.Connection[Any], schema: str, about: str) -> None:
    from psycopg import sql

    comment = sql.SQL("comment on schema {} is {}")
    connection.execute(comment.format(sql.Identifier(schema), sql.Literal(about)))


def place_vectors(mean: NDArray[np.float64], mean_square: NDArray[np.float64]) -> list[NDArray[np.float32]]:
    """What stage 1 looks at: the mean of a video's samples, and sqrt(V) as one more coordinate."""
    return list(np.concatenate([mean, np.sqrt(mean_square)[:, None]], axis=1).astype(np.float32))


def _close(connection: psycopg.Connection[Any], pid: int) -> None:
    if os.getpid() == pid:  # a forked reader of videos must not end the connection that it inherited
        connection.close()
