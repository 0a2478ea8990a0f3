"""The file format of prepared copies of videos, for all stores.

    frames | table | header (JSON) | sizes of these three | magic

The description comes last because an mp4 must begin as one, and because the sizes of JPEGs are known only
when all frames are written. The table belongs to the store: it says where the frames are. Nothing in such
a file can run code when it is read.

A file appears under its name when it is complete and on disk, never before; on opening, its size must agree
with its description. Together this makes a kill at any moment, a full disk and a bad copy harmless.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from provico.data.frames.frame_index import FrameIndex
from provico.data.frames.picture import resized_shape
from provico.data.memory import MAX_PIXELS
from provico.errors import ChangedVideoError, ConfigError, UnreadableVideoError
from provico.files import Lock, private_folder, remove_partials
from provico.typed_json import build

_VERSION = 1
_MAGIC = b"PVFRAMES"
_SIZES = struct.Struct("<QQI8s")  # bytes of frames, table and header, then the magic
_LOOK_BACK = 1024  # bytes read from the end of a file; the header has a few hundred
_NAME_ON_DISK = {"frames_hash": "content_hash"}  # as format 1 has always called it


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a prepared copy says about itself."""

    store: str
    num_frames: int
    height: int
    width: int
    short_side: int
    """The size that was asked for: height or width, whichever is shorter."""
    frames_per_second: float
    frames_hash: str
    """`FrameIndex.frames_hash` of the video that this is a copy of."""
    version: int = _VERSION

    @classmethod
    def of(cls, index: FrameIndex, *, store: str, short_side: int) -> Header:
        """The header that a copy of this video must have."""
        height, width = resized_shape(index.facts.height, index.facts.width, short_side)
        return cls(
            store=store,
            num_frames=index.num_frames,
            height=height,
            width=width,
            short_side=short_side,
            frames_per_second=index.facts.frames_per_second,
            frames_hash=index.frames_hash,
        )

    @property
    def num_pixels(self) -> int:
        """Of all frames together."""
        return self.num_frames * self.height * self.width


@dataclass(frozen=True)
class FrameFile:
    """An open prepared copy."""

    path: Path
    descriptor: int
    header: Header
    frames_bytes: int
    """How many bytes the frames take; the table follows."""
    table_bytes: int

    def read(self, start: int, num_bytes: int) -> bytes:
        """By one positioned read."""
        data = os.pread(self.descriptor, num_bytes, start)
        if len(data) != num_bytes:
            raise damaged(self.path, f"it ends {num_bytes - len(data)} bytes too early")
        return data

    def read_into(self, buffer: NDArray[np.uint8], start: int) -> None:
        """Read these bytes into memory of the caller."""
        num_read = os.preadv(self.descriptor, [buffer.data], start)
        if num_read != buffer.nbytes:
            raise damaged(self.path, f"it ends {buffer.nbytes - num_read} bytes too early")

    def announce(self, start: int, num_bytes: int) -> None:
        """Have these bytes fetched from disk in one go before they are read bit by bit."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self.descriptor, start, num_bytes, os.POSIX_FADV_WILLNEED)


@contextmanager
def open_frame_file(path: Path) -> Iterator[FrameFile]:
    """Open a prepared copy and check that it is one."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise UnreadableVideoError(path, f"this prepared copy cannot be opened ({error.strerror}).") from None
    try:
        size = os.fstat(descriptor).st_size
        end = os.pread(descriptor, _LOOK_BACK, max(0, size - _LOOK_BACK))
        if len(end) < _SIZES.size or not end.endswith(_MAGIC):
            raise damaged(path, "it does not end as such a file must")
        frames_bytes, table_bytes, header_bytes, _ = _SIZES.unpack_from(end, len(end) - _SIZES.size)
        expected = frames_bytes + table_bytes + header_bytes + _SIZES.size
        if size != expected:
            raise damaged(path, f"it should have {expected} bytes, but has {size}")
        try:
            header = _parsed(end[-header_bytes - _SIZES.size : -_SIZES.size])
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise damaged(path, f"its description makes no sense ({error})") from None
        if header.version != _VERSION:
            raise damaged(path, f"it has format {header.version}, but this program reads format {_VERSION}")
        yield FrameFile(path, descriptor, header, frames_bytes, table_bytes)
    finally:
        os.close(descriptor)


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Make the folder and clear it of what a killed process has left half written.

    A lock, which ends with its process however that dies, tells whether others are writing here just now;
    their files are then left alone.
    """
    try:
        private_folder(folder)
        lock = Lock(folder / ".lock", of="handle")
    except OSError as error:
        raise ConfigError(f"Prepared frames cannot be written to {folder} ({error.strerror}).") from error
    with lock:
        with suppress(OSError):  # some file systems have no locks
            if lock.take(wait=False):
                remove_partials(folder)
            lock.take(is_shared=True)
        yield


def description(header: Header, *, frames_bytes: int, table: bytes = b"") -> bytes:
    """All that follows the frames."""
    named = {_NAME_ON_DISK.get(name, name): value for name, value in asdict(header).items()}
    fields = json.dumps(named, separators=(",", ":")).encode()
    return table + fields + _SIZES.pack(frames_bytes, len(table), len(fields), _MAGIC)


def _parsed(fields: bytes) -> Header:
    names = {name: field for field, name in _NAME_ON_DISK.items()}
    header = build(Header, {names.get(name, name): value for name, value in json.loads(fields).items()})
    size = header.width * header.height
    if min(header.num_frames, header.width, header.height) < 1 or size > MAX_PIXELS:
        raise ValueError(f"it says {header.num_frames} frames of {header.width} x {header.height} pixels")
    return header


def damaged(path: Path, finding: str) -> ChangedVideoError:
    """The error for a file that cannot be what `prepare` wrote."""
    return ChangedVideoError(
        path, f"this is not a complete prepared copy: {finding}. Delete it and run `provico prepare` again."
    )
