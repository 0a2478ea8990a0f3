"""The cache of facts about video files: frame indexes, thumbnails, prepared copies, features.

Entries are keyed by path, size and modification time, so a replaced file is simply unknown. All of it is in
one SQLite file, which survives a kill at any moment and can be used by many processes at once. It is in
`PROVICO_HOME`, or by default in the user's cache folder, never among the videos. It can be deleted: a damaged
file is moved away and rebuilt, and so are damaged entries.
"""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
import weakref
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from provico.data.frames.frame_index import FrameIndex
from provico.data.frames.thumbnail import make_thumbnail
from provico.data.frames.video import KeptFrames, index_video
from provico.errors import ConfigError, UnreadableVideoError
from provico.files import Lock, home_folder, private_folder

Result = TypeVar("Result")
log = logging.getLogger("provico.data")

_SCHEMA = """
create table if not exists videos (
    path blob primary key, size integer not null, modified integer not null, frame_index blob, failure text
);
create table if not exists prepared (
    path blob not null, short_side integer not null, size integer not null, modified integer not null,
    store text not null, file blob not null, primary key (path, short_side)
);
create table if not exists thumbnails (
    path blob primary key, size integer not null, modified integer not null, jpeg blob not null
);
create table if not exists features (
    path blob not null, maker text not null, size integer not null, modified integer not null,
    num_clips integer not null, numbers blob not null, primary key (path, maker)
);
"""

_COLUMNS = {
    "videos": "path size modified frame_index failure",
    "prepared": "path short_side size modified store file",
    "thumbnails": "path size modified jpeg",
    "features": "path maker size modified num_clips numbers",
}


@dataclass(frozen=True)
class PreparedCopy:
    """The path of a video's prepared frames, and the kind of store (a name of `STORES`)."""

    store: str
    file: Path


class Library:
    """Frame indexes, prepared copies and features of all video files seen so far."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or home_folder()
        self._connection: sqlite3.Connection | None = None
        self._kept: tuple[tuple[bytes, int, int], KeptFrames] | None = None

    def index(self, path: str | Path, *, keep: bool = False) -> FrameIndex:
        """The frame index of the current file: from the cache, or by decoding the file once.

        keep: if the file must be decoded, keep its frames until the next call, and its thumbnail.
        """
        self._kept = None
        known = self.recall(path)
        if known is None:
            frames = KeptFrames() if keep else None
            try:
                known = index_video(path, keep=frames)
            except UnreadableVideoError as error:
                self.remember(path, error)
                raise
            self.remember(path, known)
            if frames is not None and frames.frames:
                self._kept = _identity(path), frames
                self.remember_thumbnail(path, make_thumbnail(path, index=known, kept=frames))
        if isinstance(known, UnreadableVideoError):
            raise known
        return known

    def kept(self, path: str | Path) -> KeptFrames | None:
        """The frames of the current file, if it was the last one that was decoded."""
        return self._kept[1] if self._kept is not None and self._kept[0] == _identity(path) else None

    def thumbnail(self, path: str | Path) -> bytes | None:
        """The thumbnail of the current file, if it was made when the file was indexed."""
        row = self._row(
            "select jpeg from thumbnails where path = ? and size = ? and modified = ?", _identity(path)
        )
        return row[0] if row is not None and isinstance(row[0], bytes) else None

    def remember_thumbnail(self, path: str | Path, jpeg: bytes) -> None:
        """Store the thumbnail of a file."""
        self._write("insert or replace into thumbnails values (?, ?, ?, ?)", (*_identity(path), jpeg))

    def recall(self, path: str | Path) -> FrameIndex | UnreadableVideoError | None:
        """The cached index or failure of the current file; None if unknown."""
        key, size, modified = _identity(path)
        row = self._row(
            "select frame_index, failure from videos where path = ? and size = ? and modified = ?",
            (key, size, modified),
        )
        if row is None:
            return None
        data, failure = row
        if data is None:
            return UnreadableVideoError(path, str(failure))
        try:
            return FrameIndex.from_bytes(data)
        except (TypeError, ValueError, AttributeError):  # damaged: to be recomputed
            return None

    def remember(self, path: str | Path, known: FrameIndex | UnreadableVideoError) -> None:
        """Store the index of a file, or its failure."""
        data = known.to_bytes() if isinstance(known, FrameIndex) else None
        failure = known.reason if isinstance(known, UnreadableVideoError) else None
        values = (*_identity(path), data, failure)
        self._write("insert or replace into videos values (?, ?, ?, ?, ?)", values)

    def prepared(self, path: str | Path, *, short_side: int) -> PreparedCopy | None:
        """The prepared copy of the current file at this frame size, if there is one."""
        key, size, modified = _identity(path)
        row = self._row(
            "select store, file from prepared"
            " where path = ? and short_side = ? and size = ? and modified = ?",
            (key, short_side, size, modified),
        )
        if row is None:
            return None
        try:
            copy = PreparedCopy(store=row[0], file=Path(os.fsdecode(row[1])))
            return copy if copy.file.is_file() else None
        except (TypeError, ValueError, OSError):  # damaged
            return None

    def remember_prepared(self, path: str | Path, copy: PreparedCopy, *, short_side: int) -> None:
        """Store the path of a file's prepared copy; the latest one per frame size counts."""
        key, size, modified = _identity(path)
        file = os.fsencode(copy.file.resolve())
        self._write(
            "insert or replace into prepared values (?, ?, ?, ?, ?, ?)",
            (key, short_side, size, modified, copy.store, file),
        )

    def features(self, path: str | Path, *, maker: str) -> NDArray[np.float32] | None:
        """Cached features of the file's clips "clips feature"; `maker` identifies network and clips."""
        key, size, modified = _identity(path)
        row = self._row(
            "select num_clips, numbers from features"
            " where path = ? and maker = ? and size = ? and modified = ?",
            (key, maker, size, modified),
        )
        if row is None:
            return None
        try:
            found = np.frombuffer(row[1], np.float32).reshape(row[0], -1)
        except (TypeError, ValueError):  # damaged: to be recomputed
            return None
        return found if found.size and np.isfinite(found).all() else None

    def remember_features(self, path: str | Path, features: NDArray[np.float32], *, maker: str) -> None:
        """Store the features of a file's clips, replacing those of an earlier file by the same maker."""
        key, size, modified = _identity(path)
        numbers = np.ascontiguousarray(features, np.float32).tobytes()
        self._write(
            "insert or replace into features values (?, ?, ?, ?, ?, ?)",
            (key, maker, size, modified, len(features), numbers),
        )

    def _row(self, query: str, values: tuple[object, ...]) -> tuple[Any, ...] | None:
        def ask(connection: sqlite3.Connection) -> tuple[Any, ...] | None:
            row: tuple[Any, ...] | None = connection.execute(query, values).fetchone()
            return row

        return self._do(ask)

    def _write(self, query: str, values: tuple[object, ...]) -> None:
        def write(connection: sqlite3.Connection) -> None:
            with connection:
                connection.execute(query, values)

        self._do(write)

    def _do(self, action: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run an action on the database, or on a new one if it is damaged."""
        for is_last in (False, True):
            try:
                return action(self._connect())
            except sqlite3.ProgrammingError:
                raise  # a bug
            except sqlite3.DatabaseError as error:
                if is_last or not _is_damage(error):
                    raise self._unusable(error) from error
                self._set_aside(error)
        raise AssertionError

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                private_folder(self.folder)
                connection = sqlite3.connect(self._path, timeout=60)
            except (OSError, sqlite3.OperationalError) as error:
                raise self._unusable(error) from error
            connection.executescript(_SCHEMA)
            self._connection = connection
            _CONNECTED.add(self)
        return self._connection

    @property
    def _path(self) -> Path:
        return self.folder / "library.sqlite"

    def _set_aside(self, error: sqlite3.DatabaseError) -> None:
        """Rename a damaged file: its content can be recomputed."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        try:
            with Lock(self.folder / ".library.lock", of="handle") as lock:
                lock.take()
                if _is_whole(self._path):
                    return  # another process has made a new one meanwhile
                aside = self.folder / f"library.damaged-{secrets.token_hex(4)}.sqlite"
                self._path.rename(aside)
                for ending in ("-journal", "-wal", "-shm"):  # they would be used for the new database
                    self._path.with_name(f"{self._path.name}{ending}").unlink(missing_ok=True)
        except OSError as problem:
            raise self._unusable(problem) from error
        log.warning(
            "The cache of facts about video files was damaged (%s). It was moved to %s, which can be "
            "removed, and files are read again.",
            error,
            aside,
        )

    def _unusable(self, error: Exception) -> ConfigError:
        return ConfigError(
            f"ProViCo caches facts about video files in {self.folder}, but that folder cannot be "
            f"used ({error}). Set the environment variable PROVICO_HOME to a folder you can write to."
        )

    def __getstate__(self) -> dict[str, Path]:
        return {"folder": self.folder}

    def __setstate__(self, state: dict[str, Path]) -> None:
        self.folder, self._connection, self._kept = state["folder"], None, None


_CONNECTED: weakref.WeakSet[Library] = weakref.WeakSet()
_INHERITED: list[sqlite3.Connection | None] = []


def _leave_to_the_parent() -> None:
    """Loaders fork their workers, and SQLite forbids children to use or close inherited connections."""
    for library in _CONNECTED:
        _INHERITED.append(library._connection)
        library._connection = None
    _CONNECTED.clear()


os.register_at_fork(after_in_child=_leave_to_the_parent)


_CIRCUMSTANCES = ("locked", "busy", "readonly", "unable to open", "full", "disk I/O", "interrupted")
"""Messages of SQLite errors that are not caused by a damaged file."""


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    return not any(words in str(error) for words in _CIRCUMSTANCES)


def _is_whole(path: Path) -> bool:
    """Whether this is a complete library; a missing file counts as one."""
    if not path.exists():
        return True
    try:
        with closing(sqlite3.connect(path, timeout=60)) as connection:
            connection.executescript(_SCHEMA)
            for table, columns in _COLUMNS.items():
                found = [row[1] for row in connection.execute(f"pragma table_info({table})")]
                if found != columns.split():
                    return False
            return bool(connection.execute("pragma quick_check(1)").fetchone() == ("ok",))
    except sqlite3.DatabaseError as error:
        return not _is_damage(error)


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
    """The path with links resolved; cached, since it is slow and loaders repeat files."""
    return os.fsencode(path.resolve())
