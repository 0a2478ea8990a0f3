"""How much memory decoding may take: the one home of its limits.

A few kilobytes of a hostile file can ask for gigabytes: by pictures that refer to sixteen others, by hundreds
of streams, by a line of pixels that is scaled to the usual height. What a decoder asks for beyond its limit
it does not get, the file is refused with a `VideoMemoryError`, and the rest goes on.

The system limits whole processes, so only those that are ours are limited: child processes, the workers of
loaders, and commands. In the program of somebody else another thread may need the memory at the same time, so
there `limited` only names the file for which there was none.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from provico.errors import UnreadableVideoError, VideoMemoryError

GIGABYTE = 2**30
DECODING_BYTES = 2 * GIGABYTE
"""What decoding one file may take besides what its process has already."""
MAX_BUFFER_BYTES = GIGABYTE
"""What the pictures may take that a decoder has in hand, as far as the header says how large they are."""
MAX_PIXELS = 16384 * 8192
"""Larger pictures are refused whatever the header says."""
MAX_ASPECT = 32
"""How many times the shorter side of a picture the longer one may be."""
MAX_STREAMS = 256
"""Each stream of a file takes a decoder, to find out what it holds."""
MAX_TIMELINE_CLIPS = 24 * 60 * 60
"""Clips of one video in an index: those of a day."""


class _Process:
    """What is known of this process."""

    is_ours = False
    lock = threading.Lock()
    num_files = 0
    """How many are decoded now, in whatever threads."""
    soft_before = resource.RLIM_INFINITY


def limit_this_process() -> None:
    """Let the limit of `limited` hold here: in a process that is ours."""
    _Process.is_ours = sys.platform == "linux"  # elsewhere it is not known what a process has


@contextmanager
def limited(path: str | Path, *, more_bytes: int = 0) -> Iterator[None]:
    """Decode one file in bounded memory; VideoMemoryError if that does not suffice.

    more_bytes: what the caller wants to have of it at the end.
    """
    is_limited = _Process.is_ours
    if is_limited:
        _take(DECODING_BYTES + more_bytes)
    try:
        yield
    except MemoryError:
        raise takes_too_much(path) from None
    finally:
        if is_limited:
            _give_back()


def takes_too_much(path: str | Path) -> VideoMemoryError:
    """The error for a file that would take more memory than there is for it."""
    return VideoMemoryError(path, "decoding it takes more memory than this process may take.")


def check_shape(path: str | Path, width: int, height: int) -> None:
    """Refuse pictures that would be huge when their shorter side has a usual size."""
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise UnreadableVideoError(
            path,
            f"its pictures have {width} x {height} pixels, but the longer side may be at most {MAX_ASPECT} "
            "times the shorter one.",
        )


def memory_left() -> float:
    """How many bytes this process may still take; infinite where it has no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return float("inf") if soft == resource.RLIM_INFINITY else soft - data_bytes()


def limit_to(num_bytes: int) -> None:
    """Let this process have no more: what is allocated beyond fails, as on a machine that has no more."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (_least(num_bytes, hard), hard))


def data_bytes() -> int:
    """What this process has written to or may write to; 0 where the system does not say."""
    return _pages(5)


def resident_bytes() -> int:
    """What this process has in memory; 0 where the system does not say."""
    return _pages(1)


def _take(num_bytes: int) -> None:
    with _Process.lock:
        soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = data_bytes() + num_bytes
        if _Process.num_files:
            wanted = max(wanted, soft)  # what another thread decodes keeps its own
        else:
            _Process.soft_before = soft
        _Process.num_files += 1
        limit_to(_least(wanted, _Process.soft_before))


def _give_back() -> None:
    with _Process.lock:
        _Process.num_files -= 1
        if not _Process.num_files:
            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            resource.setrlimit(resource.RLIMIT_DATA, (_Process.soft_before, hard))


def _least(num_bytes: int, limit: int) -> int:
    return num_bytes if limit == resource.RLIM_INFINITY else min(num_bytes, limit)


def _pages(column: int) -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[column]) * resource.getpagesize()
    except OSError:  # this is not Linux
        return 0


def _after_fork() -> None:
    """Whatever the parent's threads were doing, they are not here."""
    _Process.lock = threading.Lock()
    if _Process.num_files:
        _Process.num_files = 1
        _give_back()


os.register_at_fork(after_in_child=_after_fork)
