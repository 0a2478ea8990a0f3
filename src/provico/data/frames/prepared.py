"""Preparing frames at the training size, which makes loading many times faster.

`prepare` writes one copy per video (see `stores`) and stores its path in the library; `read_clips` reads
frames from the copy if there is one, and from the video itself otherwise, so callers need not know. A killed
run is resumed by starting it again: a copy is complete or absent, and a replaced video has no copy as far as
the library is concerned.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from provico.data.child_process import CallLimits, ItemOutcome
from provico.data.frames.frame_file import Header, description, writing_to
from provico.data.frames.frame_index import FrameIndex
from provico.data.frames.stores import (
    STORES,
    Pixels,
    Store,
    as_crops,
    cut_clips,
    find_store,
    header_of,
    output_for,
    read_copy,
    write_copy,
)
from provico.data.frames.video import iterate_frames, read_frames
from provico.data.isolated import Children, run_isolated
from provico.data.library import Library, PreparedCopy
from provico.data.scan import index_all
from provico.defaults import SHORT_SIDE, STORE, TIMEOUT_SECONDS
from provico.errors import ConfigError, VideoError
from provico.progress import Progress, silent

Result = TypeVar("Result")

_MIN_SHORT_SIDE = 16
_SAMPLED_VIDEOS = 9
_SAMPLED_FRAMES = 32  # in a row, because in an mp4 the size depends on what changes from frame to frame


class HasPath(Protocol):
    """What `prepare` must know of a video."""

    @property
    def path(self) -> Path:
        """The video file."""
        ...


@dataclass(frozen=True, kw_only=True)
class PrepareReport:
    """The result of preparing videos."""

    num_prepared: int
    num_skipped: int
    """Videos that already had a complete copy."""
    failed: tuple[tuple[Path, str], ...]
    """Path and reason."""
    num_bytes: int
    """Size of all copies, new and old."""

    def summary(self) -> dict[str, int | dict[str, str]]:
        """As plain values, for JSON."""
        return {
            "prepared": self.num_prepared,
            "skipped": self.num_skipped,
            "failed": {str(path): reason for path, reason in self.failed},
            "bytes": self.num_bytes,
        }


def prepare(
    videos: Iterable[HasPath],
    *,
    library: Library | None = None,
    folder: Path | None = None,
    store: str = STORE,
    short_side: int = SHORT_SIDE,
    num_workers: int | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    announce: Callable[[str], None] | None = None,
    progress: Progress = silent,
) -> PrepareReport:
    """Write a copy of every video that has none, and register it in the library.

    Args:
        videos: anything with a `path`, such as a catalog.
        library: keeps the frame indexes, and where the copies lie.
        folder: where the copies go; "prepared" beside the library's own file if not given.
        store: one of `STORES`.
        short_side: pixels of the shorter side of the copies.
        num_workers: processes that decode; one per core if not given.
        timeout_seconds: a video fails if no frame of it is decoded for this long.
        announce: told in a sentence how much disk will be needed, before anything is written.
        progress: told how many videos are done, and of how many: first of indexing, then of writing.
    """
    library = library or Library()
    folder = library.folder / "prepared" if folder is None else folder
    hands = _Hands(num_workers or os.cpu_count() or 1, timeout_seconds, Children())
    num_prepared = 0
    with hands.children, ExitStack() as stack:
        headers, failed = _headers(videos, library, store, short_side, hands, progress)
        jobs = [
            _Job(
                path,
                copy_path(folder, path, store, short_side),
                header,
                STORES[store],
                library,
                timeout_seconds,
            )
            for path, header in headers.items()
        ]
        waiting = [job for job in jobs if not _is_done(job)]
        needed = _estimate({job.path: job.header for job in waiting}, library, hands)
        stack.enter_context(writing_to(folder))
        _check_space(needed, folder, num_videos=len(waiting), store=store, announce=announce)
        for num_done, outcome in enumerate(hands.run(_write, waiting), start=len(jobs) - len(waiting) + 1):
            path = outcome.item.path
            if isinstance(outcome.result, bool):
                library.remember_prepared(path, PreparedCopy(store, outcome.item.file), short_side=short_side)
                for other in STORES.keys() - {
                    store
                }:  # the library knows one copy per size: the last one made
                    copy_path(folder, path, other, short_side).unlink(missing_ok=True)
                num_prepared += outcome.result
            else:
                failed[path] = outcome.result or outcome.failure or ""
            progress(num_done, len(jobs))
    complete = [job.file for job in jobs if job.path not in failed]
    return PrepareReport(
        num_prepared=num_prepared,
        num_skipped=len(complete) - num_prepared,
        failed=tuple(failed.items()),
        num_bytes=sum(file.stat().st_size for file in complete),
    )


def read_clips(
    path: str | Path,
    frame_numbers: ArrayLike,
    *,
    index: FrameIndex,
    short_side: int,
    library: Library,
    crops: ArrayLike | None = None,
    out: Pixels | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Pixels:
    """Pixels "clips frames height width 3" for frame numbers "clips frames", from a copy if there is one.

    `crops` gives top, left, height and width for each clip, in frames of this short side. The pixels go
    into `out` if it is given.
    """
    copy = library.prepared(path, short_side=short_side)
    if copy is not None:
        return read_copy(copy.file, frame_numbers, crops=crops, frames_hash=index.frames_hash, out=out)
    pixels = read_frames(
        path,
        frame_numbers,
        index=index,
        short_side=short_side,
        timeout_seconds=timeout_seconds,
        kept=library.kept(path),
    )
    if crops is None and out is None:
        return pixels
    num_clips, _, height, width, _ = pixels.shape
    windows = as_crops(crops, num_clips, height, width)
    out = output_for(pixels.shape[:2], windows, out)
    cut_clips(pixels, windows, out)
    return out


def copy_path(folder: Path, path: Path, store: str, short_side: int) -> Path:
    """Where the copy of a video lies: in one of 256 folders, so that none of them grows too large."""
    name = hashlib.blake2b(os.fsencode(path.resolve()), digest_size=12).hexdigest()
    return folder / name[:2] / f"{name[2:]}-{short_side}{STORES[store].suffix}"


# ----------------------------------------------------------------------------------------------------
# One video


@dataclass(frozen=True)
class _Job:
    path: Path
    file: Path
    header: Header
    store: Store
    """The store itself: a child process does not know those that were added in this one."""
    library: Library
    timeout_seconds: float


def _is_done(job: _Job) -> bool:
    """Whether the library knows a complete copy, of the video as it is now, at the place where it belongs."""
    copy = job.library.prepared(job.path, short_side=job.header.short_side)
    return copy is not None and copy.file == job.file.resolve() and _is_complete(job)


def _is_complete(job: _Job) -> bool:
    try:
        return header_of(job.file) == job.header
    except VideoError:
        return False


def _write(job: _Job) -> bool | str:
    """In a child process: whether a copy was written, or was there; or why there can be none."""
    if _is_complete(job):  # the run before this one was killed before it could tell the library
        return False
    store, short_side = job.header.store, job.header.short_side
    try:
        index = job.library.index(job.path)
        frames = iterate_frames(
            job.path, index=index, short_side=short_side, timeout_seconds=job.timeout_seconds
        )
        header = Header.of(index, store=store, short_side=short_side)
        write_copy(job.file, frames, header, store=job.store)
    except VideoError as error:
        return error.reason
    except OSError as error:
        raise ConfigError(
            f"Prepared frames cannot be written to {job.file} ({error.strerror}). Finished work is kept: "
            "make room or choose another --out, then start again."
        ) from error
    return True


def _bytes_per_pixel(job: _Job) -> float | None:
    """In a child process: measured on some frames from the middle of the video."""
    num_frames = min(job.header.num_frames, _SAMPLED_FRAMES)
    frame_numbers = np.arange(num_frames) + (job.header.num_frames - num_frames) // 2
    try:
        frames = read_frames(
            job.path, frame_numbers, index=job.library.index(job.path), short_side=job.header.short_side
        )
    except VideoError:
        return None
    header = replace(job.header, num_frames=num_frames)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"sample{job.store.suffix}"
        return write_copy(file, frames, header, store=job.store) / header.num_pixels


# ----------------------------------------------------------------------------------------------------
# All videos


@dataclass(frozen=True)
class _Hands:
    """Who does the work, in all its parts."""

    num_workers: int
    timeout_seconds: float
    children: Children

    def run(
        self, function: Callable[[_Job], Result], jobs: Iterable[_Job]
    ) -> Iterator[ItemOutcome[_Job, Result]]:
        return run_isolated(
            function,
            jobs,
            num_workers=self.num_workers,
            limits=CallLimits(silent_seconds=self.timeout_seconds),
            children=self.children,
        )


def _headers(
    videos: Iterable[HasPath],
    library: Library,
    store: str,
    short_side: int,
    hands: _Hands,
    progress: Progress,
) -> tuple[dict[Path, Header], dict[Path, str]]:
    """What the copy of each video must say of itself, and why some can have none."""
    find_store(store)
    if short_side < _MIN_SHORT_SIDE:
        raise ConfigError(f"A short side of {short_side} is too small; use {_MIN_SHORT_SIDE} or more.")
    paths = list(dict.fromkeys(video.path for video in videos))
    headers: dict[Path, Header] = {}
    failed: dict[Path, str] = {}
    indexes = index_all(
        paths,
        library=library,
        num_workers=hands.num_workers,
        timeout_seconds=hands.timeout_seconds,
        progress=progress,
        children=hands.children,
    )
    for path, found in indexes:
        if isinstance(found, FrameIndex):
            headers[path] = Header.of(found, store=store, short_side=short_side)
        else:
            failed[path] = found.reason
    return headers, failed


def _estimate(headers: Mapping[Path, Header], library: Library, hands: _Hands) -> int:
    """How many bytes these copies take: exact for raw, else measured on a few of the videos."""
    if not headers:
        return 0
    if next(iter(headers.values())).store == "raw":
        return sum(
            3 * header.num_pixels + len(description(header, frames_bytes=0)) for header in headers.values()
        )
    chosen = np.linspace(0, len(headers) - 1, min(len(headers), _SAMPLED_VIDEOS)).round().astype(int)
    paths = list(headers)
    jobs = [
        _Job(path, Path(), headers[path], STORES[headers[path].store], library, hands.timeout_seconds)
        for path in (paths[row] for row in chosen.tolist())
    ]
    outcomes = hands.run(_bytes_per_pixel, jobs)
    measured = [outcome.result for outcome in outcomes if outcome.result is not None]
    # If not one sample can be read there is nothing to go by, and `prepare` will name each reason.
    bytes_per_pixel = float(np.mean(measured)) if measured else 0.0
    return round(bytes_per_pixel * sum(header.num_pixels for header in headers.values()))


def _check_space(
    needed: int, folder: Path, *, num_videos: int, store: str, announce: Callable[[str], None] | None
) -> None:
    free = shutil.disk_usage(folder).free
    sentence = (
        f"Preparing {num_videos} videos as {store} needs about {needed / 1e6:,.1f} MB in {folder}, "
        f"where {free / 1e6:,.1f} MB are free."
    )
    if needed > free:
        raise ConfigError(
            f"{sentence} Make room, or choose another --out, a smaller --short-side, or a --store that needs "
            f"less ({', '.join(STORES)})."
        )
    if announce is not None and num_videos:
        announce(sentence)
