"""Scan every file of a collection once: which can be read, which cannot and why, and what looks wrong.

Each file is decoded in a child process with an enforced time limit. Results are stored in the library at
once, so an interrupted scan resumes where it stopped, and later commands need not decode again. The manifest
is itself a catalog: `provico` commands accept it as DATA.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path

from provico.data.catalog import Catalog, Video, frames_of
from provico.data.child_process import CallLimits
from provico.data.frames.frame_index import FrameIndex
from provico.data.frames.video import index_video
from provico.data.isolated import Children, run_isolated
from provico.data.library import Library
from provico.defaults import NUM_FRAMES, TIMEOUT_SECONDS
from provico.errors import UnreadableVideoError, VideoError
from provico.files import replace_rows, replace_text
from provico.progress import Progress, silent

BLACK_BRIGHTNESS = 10.0
"""A video is black if no frame is brighter than this on average, of 255."""
FROZEN_MOTION = 0.25
"""A video is frozen if its picture never changes by more than this on average, of 255."""

FLAGS = {
    "black": "no picture, or almost none",
    "frozen": "the picture never changes",
    "short": "fewer frames than one clip",
    "damaged": "some packets could not be decoded; the rest is used",
    "duplicate": "the same frames as an earlier video",
}


@dataclass(frozen=True, kw_only=True)
class ScannedVideo:
    """One row of the manifest; the field names are its columns."""

    path: str
    id: str
    """The name of the video in the catalog that was scanned, which it keeps in that of the manifest."""
    label: str = ""
    group: str = ""
    split: str = ""
    start_seconds: float | None = None
    """With `end_seconds`: the part of the file that is used, if it is not all of it."""
    end_seconds: float | None = None
    status: str = "readable"
    reason: str = ""
    flags: str = ""
    """Names from `FLAGS`, separated by spaces."""
    duplicate_of: str = ""
    frames: int = 0
    fps: float = 0.0
    width: int = 0
    height: int = 0
    duration_seconds: float = 0.0
    codec: str = ""
    bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class ScanReport:
    """The outcome of a scan, in the order of the catalog."""

    videos: tuple[ScannedVideo, ...]
    num_other_files: Mapping[str, int] = field(default_factory=dict)
    """Files that were not scanned because their suffix is not one of videos; by suffix."""

    @property
    def unreadable(self) -> tuple[ScannedVideo, ...]:
        """The unusable videos, with the reasons."""
        return tuple(video for video in self.videos if video.status != "readable")

    def summary(self) -> dict[str, int | float | dict[str, int]]:
        """Totals as plain values."""
        good = [video for video in self.videos if video.status == "readable"]
        return {
            "videos": len(self.videos),
            "readable": len(good),
            "unreadable": len(self.videos) - len(good),
            "hours": round(sum(video.duration_seconds for video in good) / 3600, 3),
            "frames": sum(video.frames for video in good),
            "bytes": sum(video.bytes for video in self.videos),
            "classes": len({video.label for video in good if video.label}),
            "codecs": dict(Counter(video.codec for video in good).most_common()),
            "other_files": dict(self.num_other_files),
            "flags": {flag: sum(flag in video.flags.split() for video in good) for flag in FLAGS},
        }

    def write(self, folder: Path) -> Path:
        """Write manifest.csv, bad_videos.csv and summary.json; return the manifest's path."""
        folder.mkdir(parents=True, exist_ok=True)
        columns = [field.name for field in fields(ScannedVideo)]
        replace_rows(folder / "manifest.csv", columns, map(asdict, self.videos))
        replace_rows(folder / "bad_videos.csv", columns, map(asdict, self.unreadable))
        replace_text(folder / "summary.json", json.dumps(self.summary(), indent=2) + "\n")
        return folder / "manifest.csv"


def scan(
    catalog: Catalog,
    *,
    library: Library | None = None,
    min_frames: int = NUM_FRAMES,
    num_workers: int | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    progress: Progress = silent,
) -> ScanReport:
    """Decode every video that is not known yet, in parallel, and describe them all."""
    library = library or Library()
    indexes = index_all(
        list(dict.fromkeys(video.path for video in catalog)),
        library=library,
        num_workers=num_workers,
        timeout_seconds=timeout_seconds,
        progress=progress,
    )
    found = dict(indexes)
    originals: dict[str, Path] = {}
    rows = []
    for video in catalog:  # in its order, whatever the order in which files were read
        index = found[video.path]
        row = _describe(video, index, min_frames)
        if isinstance(index, FrameIndex):
            original = originals.setdefault(index.frames_hash, video.path)
            if original != video.path:
                flags = f"{row.flags} duplicate".strip()
                row = replace(row, flags=flags, duplicate_of=str(original))
        rows.append(row)
    return ScanReport(videos=tuple(rows), num_other_files=catalog.num_other_files)


def index_all(
    paths: Sequence[Path],
    *,
    library: Library,
    num_workers: int | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    progress: Progress = silent,
    children: Children | None = None,
) -> Iterator[tuple[Path, FrameIndex | VideoError]]:
    """Yield each file with its index or its error; unknown files are decoded in child processes."""
    unknown: list[Path] = []
    num_done = 0
    for path in paths:
        try:
            found = library.recall(path)
        except UnreadableVideoError as error:  # the file is gone
            found = error
        if found is None:
            unknown.append(path)
        else:
            num_done += 1
            yield path, found
    progress(num_done, len(paths))
    outcomes = run_isolated(
        partial(_index_or_refuse, timeout_seconds=timeout_seconds),
        unknown,
        num_workers=num_workers or os.cpu_count() or 1,
        # The child stops by itself in time; it is killed only if the decoder does not return.
        limits=CallLimits(silent_seconds=timeout_seconds + 5),
        children=children,
    )
    for outcome in outcomes:
        result: FrameIndex | VideoError
        if outcome.result is None:
            result = UnreadableVideoError(outcome.item, outcome.failure or "")
        else:
            result = _found(outcome.item, outcome.result)
        if outcome.failure is None and isinstance(result, FrameIndex | UnreadableVideoError):
            # A file that ran out of time is tried again next time: the machine may have been busy.
            library.remember(outcome.item, result)
        num_done += 1
        progress(num_done, len(paths))
        yield outcome.item, result


def _index_or_refuse(path: Path, *, timeout_seconds: float) -> bytes | VideoError:
    """In a child process: the index as bytes."""
    try:
        return index_video(path, timeout_seconds=timeout_seconds).to_bytes()
    except VideoError as error:
        return error


def _found(path: Path, answered: bytes | VideoError) -> FrameIndex | VideoError:
    if isinstance(answered, VideoError):
        return answered
    try:
        return FrameIndex.from_bytes(answered)
    except ValueError as error:
        return VideoError(path, f"the process that decoded it gave no proper answer ({error})")


def _describe(video: Video, found: FrameIndex | VideoError, min_frames: int) -> ScannedVideo:
    row = ScannedVideo(
        path=str(video.path),
        id=video.id,
        label=video.label or "",
        group=video.group or "",
        split=video.subset or "",
        start_seconds=None if video.span is None else video.span[0],
        end_seconds=None if video.span is None else video.span[1],
    )
    if isinstance(found, VideoError):
        return replace(row, status="unreadable", reason=found.reason)
    try:
        num_frames = len(frames_of(video, found))
    except VideoError as error:
        return replace(row, status="unreadable", reason=error.reason)
    facts = found.facts
    start, end = video.span or (0.0, found.duration_seconds)
    flags = {
        "black": facts.brightness < BLACK_BRIGHTNESS,
        "frozen": found.num_frames > 1 and facts.motion < FROZEN_MOTION,
        "short": num_frames < min_frames,
        "damaged": facts.num_errors > 0,
    }
    return replace(
        row,
        flags=" ".join(flag for flag, is_set in flags.items() if is_set),
        frames=num_frames,
        fps=round(facts.frames_per_second, 3),
        width=facts.width,
        height=facts.height,
        duration_seconds=round(min(end, found.duration_seconds) - start, 3),
        codec=facts.codec,
        bytes=video.path.stat().st_size,
    )
