"""Files on disk: written whole, locked between processes, and recognised when they have changed.

replacing      a name to write a file or a folder to, which then appears whole; `replace_text`,
               `replace_bytes` and `replace_rows` use it
Lock           keeps processes apart
appending      one writer at a time adds lines, of JSON with `appending_json`; `whole_lines` reads them, and
               `History` replays them, undo included
Signature      size and time of a file: a quick test of whether it has changed
home_folder    where ProViCo keeps what it remembers between runs
disk_problem   what to tell a user whose disk is full, or may not be written to
content_hash   the bytes of a file: the same file under another name
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
    """Write a text file, which appears whole."""
    with replacing(path) as partial:
        # File names need not be text; this is how Python itself writes such names.
        partial.write_text(text, encoding="utf-8", errors="surrogateescape", newline="")


def replace_bytes(path: Path, content: bytes) -> None:
    """Write a file of bytes, which appears whole."""
    with replacing(path) as partial:
        partial.write_bytes(content)


def replace_rows(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a csv file with these columns of the rows, which appears whole."""
    with (
        replacing(path) as partial,
        partial.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
    ):
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def home_folder() -> Path:
    """Where ProViCo keeps what it remembers between runs."""
    chosen = os.environ.get("PROVICO_HOME")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "provico"


def private_folder(path: Path) -> Path:
    """Make a folder, if it is not there, that only this user can look into, as its videos may be private."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


_DISK_ERRORS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO),
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ENODEV),
}


def is_disk_full(error: Exception) -> bool:
    """Whether an error says that there is no room left; engines in other languages say it in words."""
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return getattr(error, "errno", None) in full or any(os.strerror(one) in str(error) for one in full)


def disk_problem(error: Exception) -> str | None:
    """What to tell a user if a file could not be written or read for a reason of the disk; else None."""
    if not is_disk_full(error) and getattr(error, "errno", None) not in _DISK_ERRORS:
        return None
    name = getattr(error, "filename", None)
    reason = getattr(error, "strerror", None) or os.strerror(errno.ENOSPC)
    what = "A file" if name is None else os.fsdecode(name)
    way_out = "Make room" if is_disk_full(error) else "Give yourself the right to use it"
    return (
        f"{what} cannot be written or read ({reason}). {way_out}, or choose another place, then give the "
        "same command again: what is complete is kept."
    )


@contextmanager
def replacing(path: Path, *, scratch: Path | None = None) -> Iterator[Path]:
    """A name to write a file or a folder to, which moves to `path` at the end and is removed on an error.

    A reader finds what was there or what is new, never half of it, also after a kill or a power failure. A
    folder takes the place of no folder or of an empty one.

    Args:
        path: the name in the end.
        scratch: a folder on the same disk for the unfinished file, which the caller clears after a kill; the
            folder of `path` if not given.
    """
    # Unique, since two processes may write one path at once. The suffix stays: it tells FFmpeg the container.
    token = f"{os.getpid()}-{secrets.token_hex(4)}"
    partial = (scratch or path.parent) / f".{path.stem}.{token}.partial{path.suffix}"
    try:
        yield partial
        publish(partial, path)
    finally:
        _remove(partial)


def publish(partial: Path, path: Path) -> None:
    """Give a file or a folder its name, once all of it is on disk."""
    for written in (*partial.rglob("*"), partial):
        sync(written)
    partial.replace(path)
    sync(path.parent)  # without this a power failure could forget the new name


def sync(path: Path) -> None:
    """Wait until the disk has what was written to a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_partial(path: Path) -> bool:
    """Whether `replacing` made this name: such a file is being written, or was left by a kill."""
    return path.name.startswith(".") and ".partial" in path.name


def remove_partials(folder: Path) -> None:
    """Remove what killed writers left in a folder and below. The caller knows that nobody writes there."""
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
    """A lock on a file, which is created if need be. It ends with the context or with the process.

    There are two kinds, which do not see each other. Choose one for each file:

    - of a *process* (`lockf`): processes forked meanwhile do not have it. Reading processes outlive a killed
      parent for some seconds; with the other kind they would hold on to its lock. It does not keep threads
      apart, and closing any other handle of the file releases it, so lock a file that nobody reads.
    - of a *handle* (`flock`): keeps threads of one process apart too, and allows to read the locked file, but
      forked processes share it.
    """

    def __init__(self, path: Path, *, of: Literal["process", "handle"]) -> None:
        self.file = path.open("ab+")
        self._call = fcntl.lockf if of == "process" else fcntl.flock

    def take(self, *, is_shared: bool = False, wait: bool = True) -> bool:
        """Take the lock, or change between exclusive and shared. Without waiting, False if others hold it."""
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
    """A file for one writer at a time, thread or process, whose lines are on the disk at the end."""
    with Lock(path, of="handle") as lock:
        lock.take()
        lock.file.seek(0)
        yield lock.file
        lock.file.flush()
        sync(path)
        sync(path.parent)


@contextmanager
def appending_json(path: Path) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """What writes a line of JSON, with the time. A line that a crash cut short is removed first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with appending(path) as file:
        file.truncate(file.read().rfind(b"\n") + 1)

        def write(line: Mapping[str, Any]) -> None:
            file.write(json.dumps({**line, "time": stamp()}).encode() + b"\n")

        yield write


def whole_lines(path: Path) -> list[str]:
    """The lines of such a file, without one that was cut short; none if there is no file."""
    try:
        content = path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return []
    # Not splitlines, which also breaks at characters that a file name may have.
    return content.split("\n")[:-1]


def stamp() -> str:
    """Now, as logs have it: 2026-01-31T12:00:00Z."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclass
class History(Generic[Key, Said]):
    """What the lines of a file say of each key; the last one holds, and a line may take it back."""

    order: list[Key] = field(default_factory=list)
    """The keys in the order of what was said and not taken back."""
    changed: dict[Key, int] = field(default_factory=dict)
    """The last line about each key."""
    _stacks: dict[Key, list[Said]] = field(default_factory=dict)

    @property
    def current(self) -> dict[Key, Said]:
        """What holds for each key of which anything does."""
        return {key: stack[-1] for key, stack in self._stacks.items() if stack}

    def add(self, key: Key, said: Said, *, line: int) -> None:
        """Say something of a key."""
        self.changed[key] = line
        self._stacks.setdefault(key, []).append(said)
        self.order.append(key)

    def undo(self, key: Key, *, line: int) -> None:
        """Take back what was said last of a key, if anything was."""
        self.changed[key] = line
        if self._stacks.get(key):
            self._stacks[key].pop()
            # The one taken back is always the last of its key.
            del self.order[len(self.order) - 1 - self.order[::-1].index(key)]


# ----------------------------------------------------------------------------------------------------
# Recognising a file


class Signature(NamedTuple):
    """Size and time of a file: if they are what they were, the file is taken to be unchanged."""

    num_bytes: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path) -> Signature:
        """The signature of the file as it is now; -1 and -1 if there is none."""
        try:
            status = path.stat()
        except OSError:
            return cls(-1, -1)
        return cls(status.st_size, status.st_mtime_ns)


ARCHIVE_ERRORS = (
    *(OSError, EOFError, KeyError, TypeError, ValueError, RuntimeError, NotImplementedError, MemoryError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)
"""What reading a damaged .npz may raise, which is a zip file."""

WHOLE_UP_TO = 2**24
"""Files of up to so many bytes (16 MB) are read whole."""
NUM_BLOCKS, BLOCK_BYTES = 16, 2**20
"""Of larger ones the size and so many blocks, spread evenly from the first to the last byte."""


def content_hash(path: Path) -> str:
    """BLAKE2b of a file's bytes; of a large file, of its size and some blocks.

    Two large files of one size that differ only between the blocks are taken for one. No encoder writes such
    a pair, but a bit that flipped on a disk goes unnoticed.
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
