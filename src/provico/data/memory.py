"""Memory limits of decoding.

A few kilobytes of a hostile file can request gigabytes: by pictures that refer to sixteen others, by hundreds
of streams, or by a line of pixels that is scaled to the usual height. Requests of a decoder beyond its limit
fail, the file is refused with a `VideoMemoryError`, and the rest continues.

The system limits whole processes, so only our own are limited: child processes, the workers of loaders, and
commands. In somebody else's program another thread may need the memory at the same time, so there `limited`
only names the file for which memory ran out.
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
"""Memory that decoding one file may use beyond that of its process."""
MAX_BUFFER_BYTES = GIGABYTE
"""Memory for a decoder's pictures, as far as the header states their size."""
MAX_PIXELS = 16384 * 8192
"""Larger pictures are refused whatever the header says."""
MAX_ASPECT = 32
"""Maximum ratio of the longer to the shorter side of a picture."""
MAX_STREAMS = 256
"""Maximum number of streams; each needs a decoder to be probed."""
MAX_TIMELINE_CLIPS = 24 * 60 * 60
"""Maximum number of clips of one video in an index: those of a day."""


class _Process:
    """The state of this process."""

    is_ours = False
    lock = threading.Lock()
    num_files = 0
    """Files that are currently decoded, in all threads."""
    soft_before = resource.RLIM_INFINITY


def limit_this_process() -> None:
    """Enable the limit of `limited` in this process, which must be our own."""
    _Process.is_ours = sys.platform == "linux"  # elsewhere the memory of a process is unknown


@contextmanager
def limited(path: str | Path, *, more_bytes: int = 0) -> Iterator[None]:
    """Decode one file in bounded memory; VideoMemoryError if that does not suffice.

    more_bytes: memory for the result of the caller.
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
    """The error for a file that needs more memory than allowed."""
    return VideoMemoryError(path, "decoding it takes more memory than this process may take.")


def check_shape(path: str | Path, width: int, height: int) -> None:
    """Refuse pictures that would be huge after scaling their shorter side."""
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise UnreadableVideoError(
            path,
            f"its pictures have {width} x {height} pixels, but the longer side may be at most {MAX_ASPECT} "
            "times the shorter one.",
        )


def memory_left() -> float:
    """Bytes that this process may still allocate; infinite without a limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return float("inf") if soft == resource.RLIM_INFINITY else soft - data_bytes()


def limit_to(num_bytes: int) -> None:
    """Limit the memory of this process: further allocations fail."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (_least(num_bytes, hard), hard))


def data_bytes() -> int:
    """Size of the writable memory of this process; 0 if unknown."""
    return _pages(5)


def resident_bytes() -> int:
    """Resident memory of this process; 0 if unknown."""
    return _pages(1)


def _take(num_bytes: int) -> None:
    with _Process.lock:
        soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = data_bytes() + num_bytes
        if _Process.num_files:
            wanted = max(wanted, soft)  # other threads keep their share
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
    """Reset the state: the parent's threads do not exist in a fork."""
    _Process.lock = threading.Lock()
    if _Process.num_files:
        _Process.num_files = 1
        _give_back()


os.register_at_fork(after_in_child=_after_fork)
