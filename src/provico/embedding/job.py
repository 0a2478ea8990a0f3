"""Embedding a catalog into a file: `provico embed`.

The file appears when it is complete; until then the results are in parts beside it. A killed run is resumed
by starting it again. Videos whose files have not changed are kept, from parts and from an earlier file, so
the same command also updates a file.

    FILE.parts/
      settings.json       encoder and number of clips
      part-000000.npz     the clips of some videos; complete or absent

A part gets its name only when it is on disk, so a kill at any moment loses only unwritten rows. A lock, which
is released however its process ends, excludes a second process.
"""

from __future__ import annotations

import shutil
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from provico.data.catalog import Catalog, Video
from provico.data.library import Library
from provico.defaults import TEST_CLIPS
from provico.embedding.driver import embed_batches
from provico.embedding.embeddings import Embeddings
from provico.embedding.features import check_any
from provico.embedding.file import (
    FORMATS,
    Columns,
    EmbeddingHeader,
    check_suffix,
    columns_of,
    iterate_columns,
    read_columns,
    read_header,
)
from provico.embedding.stored import check_features_fit, usable_clips
from provico.errors import EmbeddingFileError
from provico.files import Lock, Signature, replace_text, replacing
from provico.models.encoder import Encoder
from provico.progress import Progress, silent

ROWS_AT_ONCE = 256
"""Videos that are written to the file at once."""
VIDEOS_A_PART = 256
"""Videos per part, if they come quickly."""
SECONDS_A_PART = 60.0
"""Time after which a part is written even if it is small."""
PARTS_IN_MEMORY = 4

STORED = ("id", "num_bytes", "modified_ns", "start_seconds", "end_seconds", "clip_mean", "clip_log_var")
"""The columns of a part; all others follow from these and the catalog."""

_SETTINGS_NAME = "settings.json"


@dataclass(frozen=True)
class EmbedReport:
    """The result of an embedding job."""

    path: Path
    encoder_hash: str
    num_videos: int
    """Rows of the file."""
    num_computed: int
    """Rows that were computed now; the rest already existed."""
    num_dropped: int
    """Videos of an earlier file that are no longer in the data."""
    failed: tuple[tuple[str, str], ...]
    """Ids of the videos that could not be read, with the reasons."""

    def summary(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self) | {"path": str(self.path), "failed": dict(self.failed)}


def embed_to_file(
    encoder: Encoder,
    catalog: Catalog,
    out: Path | str,
    *,
    num_clips: int = TEST_CLIPS,
    short_side: int | None = None,
    num_workers: int = 0,
    device: torch.device | str | None = None,
    library: Library | None = None,
    progress: Progress = silent,
) -> EmbedReport:
    """Write the distributions of a catalog's videos, or bring such a file up to date.

    Unreadable videos are skipped, counted and named in the file. Options: see `embed_batches`.
    """
    out = Path(out)
    check_suffix(out)
    check_features_fit(encoder, catalog)
    num_clips = usable_clips(catalog, num_clips)
    header = EmbeddingHeader.of(encoder, num_clips=num_clips, short_side=short_side)
    if out.exists():
        header.check_same(read_header(out), of=out)
    # Before reading, so that changes during the run are detected later.
    wanted = [_Wanted(video, Signature.of(video.path)) for video in catalog]
    with open_parts(out, header) as parts:
        num_dropped = _take_over(out, parts, wanted)
        todo = {one.id: one for one in wanted if not one.is_in(parts)}
        batches = embed_batches(
            encoder,
            replace(catalog, videos=tuple(one.video for one in todo.values())),
            num_clips=num_clips,
            short_side=short_side,
            num_workers=num_workers,
            device=device,
            max_broken_share=1.0,
            library=library,
        )
        failed = _compute(batches, todo, parts, progress)
        num_ready = len(wanted) - len(todo)
        check_any(num_ready + len(todo) - len(failed), catalog, dict(failed))
        header = replace(header, failed=failed)
        num_videos = _write(out, header, parts, [one for one in wanted if one.is_in(parts)])
    return EmbedReport(out, header.encoder_hash, num_videos, num_videos - num_ready, num_dropped, failed)


@dataclass(frozen=True)
class _Wanted:
    """A video for which the file needs a row."""

    video: Video
    file: Signature

    @property
    def id(self) -> str:
        return self.video.id

    def is_in(self, parts: EmbeddingParts) -> bool:
        return parts.signature(self.id) == self.file


def _take_over(out: Path, parts: EmbeddingParts, wanted: Sequence[_Wanted]) -> int:
    """Reuse the valid rows of an earlier file; return the number of its obsolete videos."""
    if not out.exists():
        return 0
    files = {one.id: one.file for one in wanted}
    names = read_columns(out, ("id",))["id"]
    num_dropped = sum(name not in files for name in names)
    if num_dropped == len(names):
        raise EmbeddingFileError(
            f"{out} holds {len(names)} other videos and none of these {len(files)}, and would be "
            "overwritten. Choose another --out, or remove it first."
        )
    for rows in iterate_columns(out, STORED):
        found = map(Signature, rows["num_bytes"].tolist(), rows["modified_ns"].tolist())
        kept = [
            row
            for row, (name, file) in enumerate(zip(rows["id"], found, strict=True))
            if files.get(name) == file != parts.signature(name)
        ]
        parts.add({column: np.asarray(values)[kept] for column, values in rows.items()})
    parts.write()
    return num_dropped


def _compute(
    batches: Iterator[Embeddings], todo: Mapping[str, _Wanted], parts: EmbeddingParts, progress: Progress
) -> tuple[tuple[str, str], ...]:
    """Compute rows and add them to the parts; return the videos that could not be read, with the reasons."""
    failed: list[tuple[str, str]] = []
    num_done = 0
    try:
        for batch in batches:
            files = [todo[name].file for name in batch.ids]
            clips, seconds = batch.videos.clips, batch.clip_seconds
            assert seconds is not None  # always known for videos, unlike features
            parts.add(
                {
                    "id": np.array(batch.ids, np.str_),
                    "num_bytes": np.array([file.num_bytes for file in files], np.int64),
                    "modified_ns": np.array([file.modified_ns for file in files], np.int64),
                    "start_seconds": seconds[..., 0].numpy(),
                    "end_seconds": seconds[..., 1].numpy(),
                    "clip_mean": clips.mean.numpy(),
                    "clip_log_var": clips.log_var.numpy(),
                }
            )
            failed += batch.failed
            num_done += len(batch) + len(batch.failed)
            progress(num_done, len(todo))
    finally:
        parts.write()
    return tuple(failed)


def _write(out: Path, header: EmbeddingHeader, parts: EmbeddingParts, videos: Sequence[_Wanted]) -> int:
    """Assemble the file from the parts; return its number of rows."""

    def rows() -> Iterator[Columns]:
        for first in range(0, len(videos), ROWS_AT_ONCE):
            chunk = videos[first : first + ROWS_AT_ONCE]
            yield columns_of([one.video for one in chunk], parts.rows([one.id for one in chunk]))

    with writing(out), replacing(out, scratch=parts.folder) as partial:
        FORMATS[out.suffix].write(partial, header.to_json(), rows(), len(videos), parts.folder)
    parts.remove()
    return len(videos)


class EmbeddingParts:
    """Rows on disk, where later rows replace earlier ones, and pending rows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._places: dict[str, tuple[Signature, Path, int]] = {}
        self._waiting: list[Columns] = []
        self._waiting_since = time.monotonic()
        self._part = lru_cache(maxsize=PARTS_IN_MEMORY)(_read_part)
        self._num_parts = 0
        for path in sorted(folder.glob("part-*.npz")):
            self._note(path, _read_part(path, STORED[:3]))

    def signature(self, name: str) -> Signature | None:
        """The file signature of a stored row; None if there is no row for this id."""
        place = self._places.get(name)
        return None if place is None else place[0]

    def add(self, rows: Columns) -> None:
        """Add rows, and write a part if due."""
        if not self._waiting:
            self._waiting_since = time.monotonic()
        if len(rows["id"]):
            self._waiting.append(rows)
        num_waiting = sum(len(waiting["id"]) for waiting in self._waiting)
        if num_waiting >= VIDEOS_A_PART or time.monotonic() - self._waiting_since > SECONDS_A_PART:
            self.write()

    def write(self) -> None:
        """Write the pending rows."""
        if not self._waiting:
            return
        rows: Columns = {
            name: np.concatenate([waiting[name] for waiting in self._waiting]) for name in STORED
        }
        path = self.folder / f"part-{self._num_parts:06d}.npz"
        with writing(path), replacing(path) as partial:
            np.savez(partial, **rows)
        self._note(path, rows)
        self._waiting = []

    def rows(self, names: Sequence[str]) -> Columns:
        """The rows of these videos, in this order."""
        found = [self._places[name] for name in names]
        parts = [(self._part(path, STORED), row) for _, path, row in found]
        return {column: np.stack([part[column][row] for part, row in parts]) for column in STORED}

    def remove(self) -> None:
        """Delete all parts, once the file exists."""
        shutil.rmtree(self.folder)

    def _note(self, path: Path, rows: Columns) -> None:
        self._num_parts = int(path.stem.removeprefix("part-")) + 1
        columns = (rows["id"].tolist(), rows["num_bytes"].tolist(), rows["modified_ns"].tolist())
        for row, (name, num_bytes, modified_ns) in enumerate(zip(*columns, strict=True)):
            self._places[name] = Signature(num_bytes, modified_ns), path, row


@contextmanager
def open_parts(out: Path, header: EmbeddingHeader) -> Iterator[EmbeddingParts]:
    """Open the parts of a file exclusively; parts of another encoder are refused."""
    folder = out.with_name(f"{out.name}.parts")
    settings = folder / _SETTINGS_NAME
    with writing(out):
        folder.mkdir(parents=True, exist_ok=True)
        lock = Lock(folder / ".lock", of="process")
    with lock:
        if not lock.take(wait=False):
            raise EmbeddingFileError(
                f"Another process is writing {out}. Wait for it, or choose another --out."
            )
        if settings.is_file():
            header.check_same(_read_settings(settings), of=folder)
        elif others := sorted(path.name for path in folder.glob("[!.]*")):
            raise EmbeddingFileError(
                f"{folder} is needed for parts of {out.name}, but it contains {others[0]}. Choose another "
                "--out, or remove it first."
            )
        else:
            with writing(out):
                replace_text(settings, header.to_json())
        parts = EmbeddingParts(folder)
        try:
            yield parts
        finally:
            if not any(folder.glob("part-*.npz")):
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a full disk or a read-only folder into an error for the user."""
    try:
        yield
    except OSError as error:
        raise EmbeddingFileError(
            f"{path} cannot be written ({error.strerror}). Finished work is kept: make room, or choose "
            "another --out, then start again."
        ) from error


def _read_part(path: Path, names: Sequence[str]) -> Columns:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in names}
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise EmbeddingFileError(
            f"{path} is damaged ({error}). Remove it; its videos are then computed again."
        ) from error


def _read_settings(path: Path) -> EmbeddingHeader:
    try:
        return EmbeddingHeader.from_json(path.read_text(encoding="utf-8"))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise EmbeddingFileError(
            f"{path} is damaged ({error}). Remove its folder and start again."
        ) from error
