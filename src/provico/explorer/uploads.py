"""Where uploaded files lie for a moment: in a folder of this server alone, under names of our own.

What the client calls a file is only shown. A server that was killed leaves its folder behind; the next one
removes it. Which folders are in use is known by a lock that ends with its process.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from provico.data.layouts.video_files import PICTURE_FORMATS, VIDEO_SUFFIXES
from provico.files import Lock

PREFIX = "provico-uploads-"
_LOCK_NAME = "lock"
_MAX_NAME = 100


@dataclass(frozen=True)
class Uploaded:
    """A file that was sent."""

    name: str
    """What the client calls it, made harmless; to be shown."""
    path: Path
    library: Path
    """A folder for what is learnt of the file, which is forgotten with it."""


class Uploads:
    """The folder of one server."""

    def __init__(self) -> None:
        remove_abandoned()
        made = Path(tempfile.mkdtemp(prefix="provico-"))  # for this user alone
        self._lock = Lock(made / _LOCK_NAME, of="handle")
        self._lock.take()
        # Under a name that others look for only now: a folder without a lock would be taken for abandoned.
        self.folder = made.rename(made.with_name(PREFIX + made.name.removeprefix("provico-")))

    @contextmanager
    def keep(self, given_name: str, content: IO[bytes]) -> Iterator[Uploaded]:
        """A copy of the content, until the end of the context."""
        with self.scratch() as folder:
            # Some formats are recognised by the suffix alone, so a known one is kept.
            suffix = Path(safe_name(given_name)).suffix.lower()
            is_known = suffix in VIDEO_SUFFIXES or suffix in PICTURE_FORMATS
            path = folder / f"video{suffix if is_known else ''}"
            with path.open("wb") as copy:
                shutil.copyfileobj(content, copy)
            yield Uploaded(safe_name(given_name), path, folder / "library")

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """An empty folder, until the end of the context."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.file.close()


def safe_name(given: str) -> str:
    """What a client calls a file, without what could do harm where it is shown."""
    last = re.split(r"[/\\]", given)[-1]
    kept = re.sub(r"[^\w.()+ -]", "_", last).strip(". ")[-_MAX_NAME:]
    return kept or "upload"


def remove_abandoned() -> None:
    """Remove what servers of this user left behind that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # another server was faster
            status = folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                continue
            with Lock(folder / _LOCK_NAME, of="handle") as lock:
                if lock.take(wait=False):
                    shutil.rmtree(folder, ignore_errors=True)
