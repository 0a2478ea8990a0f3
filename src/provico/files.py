"""Files on disk: atomic writes, locks between processes, and detection of changes.

replacing      a temporary path for a file or a folder, which then appears at once; `replace_text`,
               `replace_bytes` and `replace_rows` use it
Lock           a lock between processes
appending      one writer at a time appends lines, of JSON with `appending_json`; `whole_lines` reads them
               and `History` replays them, undo and renamed keys included
Signature      size and time of a file: a quick test of whether it has changed
home_folder    the folder for what ProViCo keeps between runs
disk_problem   the message for a full disk or a missing permission
content_hash   recognises a file under another name by its bytes
"""

from __future__ import annotations

import csv
import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import struct
import time
import zipfile
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Generic, Literal, NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)
Said = TypeVar("Said")

# ----------------------------------------------------------------------------------------------------
# Writing


def replace_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as partial:
        # File names may hold undecodable bytes; Python represents them as surrogates.
        partial.write_text(text, encoding="utf-8", errors="surrogateescape", newline="")


def replace_bytes(path: Path, content: bytes) -> None:
    """Write bytes to a file atomically."""
    with replacing(path) as partial:
        partial.write_bytes(content)


def replace_rows(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write these columns of the rows to a csv file atomically."""
    with (
        replacing(path) as partial,
        partial.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
    ):
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def home_folder() -> Path:
    """The folder for what ProViCo keeps between runs."""
    chosen = os.environ.get("PROVICO_HOME")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "provico"


def private_folder(path: Path) -> Path:
    """Create a folder that only this user can read, since its videos may be private."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


_DISK_ERRORS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO),
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ENODEV),
}


def is_disk_full(error: Exception) -> bool:
    """Whether an error says that the disk is full; native libraries say so only in the message."""
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return getattr(error, "errno", None) in full or any(os.strerror(one) in str(error) for one in full)


def disk_problem(error: Exception) -> str | None:
    """The message for an error that the disk caused; None for other errors."""
    if not is_disk_full(error) and getattr(error, "errno", None) not in _DISK_ERRORS:
        return None
    name = getattr(error, "filename", None)
    reason = getattr(error, "strerror", None) or os.strerror(errno.ENOSPC)
    what = "A file" if name is None else os.fsdecode(name)
    way_out = "Make room" if is_disk_full(error) else "Change its permissions"
    return (
        f"{what} cannot be written or read ({reason}). {way_out}, or choose another place, then run the same "
        "command again: finished work is kept."
    )


@contextmanager
def replacing(path: Path, *, scratch: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path for a file or a folder, which moves to `path` unless there is an error.

    Readers see either the old content or the new, even after a kill or a power failure. A folder replaces
    only an empty folder or none.

    Args:
        path: the final path.
        scratch: a folder on the same disk for the unfinished file, which the caller cleans up after a kill;
            the folder of `path` if not given.
    """
    # Unique, since two processes may write to one path. The suffix is kept: FFmpeg infers the container.
    token = f"{os.getpid()}-{secrets.token_hex(4)}"
    partial = (scratch or path.parent) / f".{path.stem}.{token}.partial{path.suffix}"
    try:
        yield partial
        publish(partial, path)
    finally:
        _remove(partial)


def publish(partial: Path, path: Path) -> None:
    """Sync a file or a folder to disk, then move it to its final path."""
    for written in (*partial.rglob("*"), partial):
        sync(written)
    partial.replace(path)
    sync(path.parent)  # without this a power failure could lose the new name


def sync(path: Path) -> None:
    """Flush a file's content, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_partial(path: Path) -> bool:
    """Whether a name comes from `replacing`: the file is being written, or was left by a kill."""
    return path.name.startswith(".") and ".partial" in path.name


def remove_partials(folder: Path) -> None:
    """Remove temporary files of killed writers, recursively. The caller makes sure that nobody writes."""
    for path in [*folder.rglob(".*.partial*")]:
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


# ----------------------------------------------------------------------------------------------------
# Locks


class Lock:
    """A lock on a file, which is created if needed. It is released with the context or with the process.

    There are two kinds, which do not exclude each other. Use only one of them for a file:

    - of a *process* (`lockf`): forked processes do not inherit it. Child processes that read outlive a killed
      parent by some seconds; with the other kind they would still hold its lock. It does not exclude threads
      of the process, and closing any other handle of the file releases it, so lock a file that nobody reads.
    - of a *handle* (`flock`): also excludes threads of the process, and the locked file can be read, but
      forked processes share it.
    """

    def __init__(self, path: Path, *, of: Literal["process", "handle"]) -> None:
        self.file = path.open("ab+")
        self._call = fcntl.lockf if of == "process" else fcntl.flock

    def take(self, *, is_shared: bool = False, wait: bool = True) -> bool:
        """Take the lock, or switch between exclusive and shared; False if held by others and not `wait`."""
        operation = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
        try:
            self._call(self.file, operation if wait else operation | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            if wait:
                raise
            return False
        return True

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()


# ----------------------------------------------------------------------------------------------------
# Appending


@contextmanager
def appending(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for appending, for one thread or process at a time, and sync it to disk at the end."""
    with Lock(path, of="handle") as lock:
        lock.take()
        lock.file.seek(0)
        yield lock.file
        lock.file.flush()
        sync(path)
        sync(path.parent)


@contextmanager
def appending_json(path: Path) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Yield a function that appends a line of JSON with the time; removes a truncated last line first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with appending(path) as file:
        file.truncate(file.read().rfind(b"\n") + 1)

        def write(line: Mapping[str, Any]) -> None:
            file.write(json.dumps({**line, "time": stamp()}).encode() + b"\n")

        yield write


def whole_lines(path: Path) -> list[str]:
    """The lines of such a file without a truncated last one; empty if there is no file."""
    try:
        content = path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return []
    # Not splitlines: it also breaks at characters that a file name may contain.
    return content.split("\n")[:-1]


def stamp() -> str:
    """The current time in the format of the logs: 2026-01-31T12:00:00Z."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclass
class History(Generic[Key, Said]):
    """A replay of the lines of a file: the last value of each key counts, and a line may undo it."""

    order: list[Key] = field(default_factory=list)
    """The keys of all values that were not undone, in order."""
    changed: dict[Key, int] = field(default_factory=dict)
    """The last line that changed each key."""
    _stacks: dict[Key, list[Said]] = field(default_factory=dict)

    @property
    def current(self) -> dict[Key, Said]:
        """The current value of each key that has one."""
        return {key: stack[-1] for key, stack in self._stacks.items() if stack}

    def add(self, key: Key, said: Said, *, line: int) -> None:
        """Add a value of a key."""
        self.changed[key] = line
        self._stacks.setdefault(key, []).append(said)
        self.order.append(key)

    def undo(self, key: Key, *, line: int) -> None:
        """Undo the last value of a key, if it has one."""
        self.changed[key] = line
        if self._stacks.get(key):
            self._stacks[key].pop()
            # The undone one is always the last of its key.
            del self.order[len(self.order) - 1 - self.order[::-1].index(key)]

    def rename(self, renamed: Callable[[Key], Key], again: Callable[[Key, Said], Said], *, line: int) -> None:
        """Let what was said of keys hold for others from now on, all at once.

        again: the same said of another key.
        """
        moved = {key: new for key in self._stacks if (new := renamed(key)) != key}
        self.changed |= dict.fromkeys((*moved, *moved.values()), line)
        taken = [(new, [again(new, one) for one in self._stacks.pop(key)]) for key, new in moved.items()]
        for new, stack in taken:
            # Before what came, since of a video that was there before nobody speaks any more.
            self._stacks.setdefault(new, []).extend(stack)
        self.order = [moved.get(key, key) for key in self.order]


# ----------------------------------------------------------------------------------------------------
# Detecting changes


class Signature(NamedTuple):
    """Size and modification time of a file: if both are equal, the file counts as unchanged."""

    num_bytes: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path) -> Signature:
        """The current signature of the file; -1 and -1 if there is none."""
        try:
            status = path.stat()
        except OSError:
            return cls(-1, -1)
        return cls(status.st_size, status.st_mtime_ns)


ARCHIVE_ERRORS = (
    *(OSError, EOFError, KeyError, TypeError, ValueError, RuntimeError, NotImplementedError, MemoryError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)
"""Errors that reading a damaged .npz, which is a zip file, may raise."""

WHOLE_UP_TO = 2**24
"""Files up to this many bytes (16 MB) are hashed whole."""
NUM_BLOCKS, BLOCK_BYTES = 16, 2**20
"""Larger files are hashed by their size and this many blocks, spread evenly over the file."""


def content_hash(path: Path) -> str:
    """BLAKE2b hash of a file's bytes, or of the size and some blocks of a large file.

    Two large files of one size that differ only between the blocks have the same hash. No video encoder
    writes such a pair, but a flipped bit on a disk goes unnoticed.
    """
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        size = path.stat().st_size
        if size <= WHOLE_UP_TO:
            digest.update(file.read())
        else:
            digest.update(f"{size} ".encode())
            for number in range(NUM_BLOCKS):
                file.seek(number * (size - BLOCK_BYTES) // (NUM_BLOCKS - 1))
                digest.update(file.read(BLOCK_BYTES))
    return digest.hexdigest()
