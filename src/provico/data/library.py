"""What is remembered about video files between runs: frame indexes, prepared copies, features.

All are keyed by path, size and modification time, so a file that was replaced is simply unknown. One
SQLite file holds it all: it survives a kill at any moment, and many processes can use it at once. It
lies in `PROVICO_HOME`, or in the user's cache folder where that is not set, never among the videos.
"""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provico.data.frames.frame_index import FrameIndex
from provico.data.frames.video import index_video
from provico.defaults import TIMEOUT_SECONDS
from provico.errors import ConfigError, UnreadableVideoError

_SCHEMA = """
create table if not exists videos (
    path blob primary key, size integer not null, modified integer not null, frame_index blob, failure text
);
create table if not exists prepared (
    path blob not null, short_side integer not null, size integer not null, modified integer not null,
    store text not null, file blob not null, primary key (path, short_side)
);
create table if not exists features (
    path blob not null, maker text not null, size integer not null, modified integer not null,
    num_clips integer not null, numbers blob not null, primary key (path, maker)
);
"""


def home_folder() -> Path:
    """Where ProViCo keeps what it remembers between runs."""
    chosen = os.environ.get("PROVICO_HOME")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "provico"


@dataclass(frozen=True)
class PreparedCopy:
    """Where the prepared frames of a video lie, and in which kind of store (see `cache.STORES`)."""

    store: str
    file: Path


class Library:
    """Frame indexes, prepared copies and features of every video file met so far."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or home_folder()
        self._connection: sqlite3.Connection | None = None

    def index(self, path: str | Path, *, timeout_seconds: float = TIMEOUT_SECONDS) -> FrameIndex:
        """The frame index of the file as it is now: remembered, or made by decoding it once."""
        known = self.recall(path)
        if known is None:
            try:
                known = index_video(path, timeout_seconds=timeout_seconds)
            except UnreadableVideoError as error:
                self.remember(path, error)
                raise
            self.remember(path, known)
        if isinstance(known, UnreadableVideoError):
            raise known
        return known

    def recall(self, path: str | Path) -> FrameIndex | UnreadableVideoError | None:
        """What is remembered of the file as it is now; None if nothing is."""
        key, size, modified = _identity(path)
        row = self._row(
            "select frame_index, failure from videos where path = ? and size = ? and modified = ?",
            (key, size, modified),
        )
        if row is None:
            return None
        data, failure = row
        return UnreadableVideoError(path, failure) if data is None else FrameIndex.from_bytes(data)

    def remember(self, path: str | Path, known: FrameIndex | UnreadableVideoError) -> None:
        """Keep the index of a file, or that it cannot be read."""
        data = known.to_bytes() if isinstance(known, FrameIndex) else None
        failure = known.reason if isinstance(known, UnreadableVideoError) else None
        values = (*_identity(path), data, failure)
        with self._writing() as connection:
            connection.execute("insert or replace into videos values (?, ?, ?, ?, ?)", values)

    def prepared(self, path: str | Path, *, short_side: int) -> PreparedCopy | None:
        """The prepared copy of the file as it is now, at this frame size, if there is one."""
        key, size, modified = _identity(path)
        row = self._row(
            "select store, file from prepared"
            " where path = ? and short_side = ? and size = ? and modified = ?",
            (key, short_side, size, modified),
        )
        if row is None:
            return None
        copy = PreparedCopy(store=row[0], file=Path(os.fsdecode(row[1])))
        return copy if copy.file.exists() else None

    def remember_prepared(self, path: str | Path, copy: PreparedCopy, *, short_side: int) -> None:
        """Keep where the prepared copy of a file lies; one copy per frame size, the latest counts."""
        key, size, modified = _identity(path)
        file = os.fsencode(copy.file.resolve())
        with self._writing() as connection:
            connection.execute(
                "insert or replace into prepared values (?, ?, ?, ?, ?, ?)",
                (key, short_side, size, modified, copy.store, file),
            )

    def features(self, path: str | Path, *, maker: str) -> NDArray[np.float32] | None:
        """What a frozen network made of the file's clips "clips feature"; `maker` names network and clips."""
        key, size, modified = _identity(path)
        row = self._row(
            "select num_clips, numbers from features"
            " where path = ? and maker = ? and size = ? and modified = ?",
            (key, maker, size, modified),
        )
        return None if row is None else np.frombuffer(row[1], np.float32).reshape(row[0], -1)

    def remember_features(self, path: str | Path, features: NDArray[np.float32], *, maker: str) -> None:
        """Keep the features of a file's clips; what the same maker made of an earlier file is replaced."""
        key, size, modified = _identity(path)
        numbers = np.ascontiguousarray(features, np.float32).tobytes()
        with self._writing() as connection:
            connection.execute(
                "insert or replace into features values (?, ?, ?, ?, ?, ?)",
                (key, maker, size, modified, len(features), numbers),
            )

    def _row(self, query: str, values: tuple[object, ...]) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._connect().execute(query, values).fetchone()
        return row

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._connect() as connection:
                yield connection
        except sqlite3.OperationalError as error:
            raise self._unusable(error) from error

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                connection = sqlite3.connect(self.folder / "library.sqlite", timeout=60)
                connection.executescript(_SCHEMA)
            except (OSError, sqlite3.OperationalError) as error:
                raise self._unusable(error) from error
            self._connection = connection
            _CONNECTED.add(self)
        return self._connection

    def _unusable(self, error: Exception) -> ConfigError:
        return ConfigError(
            f"ProViCo keeps what it learns about video files in {self.folder}, but that folder cannot be "
            f"used ({error}). Set the environment variable PROVICO_HOME to a folder you can write to."
        )

    def __getstate__(self) -> dict[str, Path]:
        return {"folder": self.folder}

    def __setstate__(self, state: dict[str, Path]) -> None:
        self.folder, self._connection = state["folder"], None


_CONNECTED: weakref.WeakSet[Library] = weakref.WeakSet()
_INHERITED: list[sqlite3.Connection | None] = []


def _leave_to_the_parent() -> None:
    """Loaders fork their workers, and SQLite allows a child neither to use nor to close what it inherits."""
    for library in _CONNECTED:
        _INHERITED.append(library._connection)
        library._connection = None
    _CONNECTED.clear()


os.register_at_fork(after_in_child=_leave_to_the_parent)


def _identity(path: str | Path) -> tuple[bytes, int, int]:
    """Absolute path (as bytes: file names need not be text), size and time of change."""
    path = Path(path)
    try:
        status = path.stat()
    except OSError as error:
        raise UnreadableVideoError(path, f"there is no such file ({error.strerror}).") from None
    return _real_name(path), status.st_size, status.st_mtime_ns


@lru_cache(maxsize=2**16)
def _real_name(path: Path) -> bytes:
    """With links followed: slower than all else here, and loaders ask for the same files again and again."""
    return os.fsencode(path.resolve())
