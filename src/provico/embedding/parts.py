"""What is already computed of a file of embeddings: parts that lie beside it until it is complete.

    FILE.parts/
      settings.json       which encoder, how many clips
      part-000000.npz     the clips of some videos; complete or absent

A part appears under its name only when it is on disk, so a kill at any moment loses only the rows that were
not written yet. A lock, which ends with its process however that dies, keeps two processes apart.
"""

from __future__ import annotations

import shutil
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import numpy as np

from provico.embedding.file import Columns, EmbeddingHeader
from provico.errors import EmbeddingFileError
from provico.files import Lock, Signature, replace_text, replacing

VIDEOS_A_PART = 256
"""How many videos a part holds, if they come quickly."""
SECONDS_A_PART = 60.0
"""After so long a part is written even if it is small."""
PARTS_IN_MEMORY = 4

STORED = ("id", "num_bytes", "modified_ns", "start_seconds", "end_seconds", "clip_mean", "clip_log_var")
"""The columns of a part: all others follow from them and the catalog."""

_SETTINGS_NAME = "settings.json"


class EmbeddingParts:
    """Rows on disk, of which the latest count, and rows that wait to be written."""

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
        """Of the file that a row on disk is of; None if there is no row for this id."""
        place = self._places.get(name)
        return None if place is None else place[0]

    def add(self, rows: Columns) -> None:
        """Take rows, and write a part if one is due."""
        if not self._waiting:
            self._waiting_since = time.monotonic()
        if len(rows["id"]):
            self._waiting.append(rows)
        num_waiting = sum(len(waiting["id"]) for waiting in self._waiting)
        if num_waiting >= VIDEOS_A_PART or time.monotonic() - self._waiting_since > SECONDS_A_PART:
            self.write()

    def write(self) -> None:
        """Write the rows that wait."""
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
        """Delete all of it, once the file is there."""
        shutil.rmtree(self.folder)

    def _note(self, path: Path, rows: Columns) -> None:
        self._num_parts = int(path.stem.removeprefix("part-")) + 1
        columns = (rows["id"].tolist(), rows["num_bytes"].tolist(), rows["modified_ns"].tolist())
        for row, (name, num_bytes, modified_ns) in enumerate(zip(*columns, strict=True)):
            self._places[name] = Signature(num_bytes, modified_ns), path, row


@contextmanager
def open_parts(out: Path, header: EmbeddingHeader) -> Iterator[EmbeddingParts]:
    """The parts of a file, for this process alone; parts of another encoder are refused."""
    folder = out.with_name(f"{out.name}.parts")
    settings = folder / _SETTINGS_NAME
    with writing(out):
        folder.mkdir(parents=True, exist_ok=True)
        lock = Lock(folder / ".lock", of="process")
    with lock:
        if not lock.take(wait=False):
            raise EmbeddingFileError(
                f"Another process is writing {out} just now. Wait for it, or choose another --out."
            )
        if settings.is_file():
            header.check_same(_read_settings(settings), of=folder)
        elif others := sorted(path.name for path in folder.glob("[!.]*")):
            raise EmbeddingFileError(
                f"{folder} is needed for parts of {out.name}, but it has {others[0]} in it. Choose another "
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
    """A full disk or a folder that cannot be written to is the user's to mend."""
    try:
        yield
    except OSError as error:
        raise EmbeddingFileError(
            f"{path} cannot be written ({error.strerror}). What is complete is kept: make room, or choose "
            "another --out, then start again."
        ) from error


def _read_part(path: Path, names: Sequence[str]) -> Columns:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in names}
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise EmbeddingFileError(
            f"{path} was damaged ({error}). Remove it: its videos are then computed again."
        ) from error


def _read_settings(path: Path) -> EmbeddingHeader:
    try:
        return EmbeddingHeader.from_json(path.read_text(encoding="utf-8"))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise EmbeddingFileError(
            f"{path} was damaged ({error}). Remove its folder and start again."
        ) from error
