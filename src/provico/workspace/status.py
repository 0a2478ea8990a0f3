"""What is being done for a collection, written for whoever looks: the page, and the next start."""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from provico.files import replace_text
from provico.typed_json import build

STATUS_NAME = "status.json"
SECONDS_BETWEEN_WRITES = 0.5
SECONDS_OF_RATE = 5.0
"""How long a stage must have taken until it is said how long the rest takes."""

StageState = Literal["waiting", "running", "done", "failed"]
STAGES = {
    "fetch": "Copying from the object store",
    "list": "Listing the files",
    "read": "Reading videos",
    "propose": "Looking for junk",
    "fit": "Rebuilding the encoder",
    "duplicates": "Looking for duplicates",
    "trim": "Examining long videos",
    "learn": "Learning from your videos",
}
"""What is done, in this order, in words for people."""


@dataclass(kw_only=True)
class Stage:
    """One of the things that are done."""

    name: str
    state: StageState = "waiting"
    done: int = 0
    total: int = 0
    seconds_left: float | None = None
    """None while it cannot be said."""
    note: str = ""
    """What came of it."""


@dataclass(kw_only=True)
class Status:
    """All of them."""

    stages: list[Stage] = field(default_factory=list)
    is_working: bool = False
    problem: str | None = None
    """Why the work ended before its end."""
    num_failed: int = 0
    """Files that cannot be read."""
    is_watching: bool = False
    num_heard: int = 0
    """How many of the words that the worker was told it has begun to follow."""
    news: str = ""
    """What the page should say, such as that a better encoder has taken over."""

    @classmethod
    def read(cls, folder: Path) -> Status:
        """What was written last; nothing if nothing was."""
        try:
            return build(cls, json.loads((folder / STATUS_NAME).read_text(encoding="utf-8")))
        except (OSError, TypeError, ValueError):
            return cls()


class StatusWriter:
    """Writes the status of one worker, not too often."""

    def __init__(self, folder: Path, *, stages: list[str], is_watching: bool) -> None:
        self._folder = folder
        self.status = Status(
            stages=[Stage(name=name) for name in stages], is_working=True, is_watching=is_watching
        )
        self._written = self._began = 0.0
        self._first = 0
        self.write()

    def write(self) -> None:
        """Now."""
        self._written = time.monotonic()
        replace_text(self._folder / STATUS_NAME, json.dumps(dataclasses.asdict(self.status)))

    def begin(self, name: str) -> Stage:
        """Begin a stage; those before it are done."""
        found = next((stage for stage in self.status.stages if stage.name == name), None)
        if found is None:
            found = Stage(name=name)
            self.status.stages.append(found)
        self._began, self._first = time.monotonic(), -1
        found.state, found.done, found.total, found.seconds_left = "running", 0, 0, None
        self.status.is_working = True
        self.write()
        return found

    def progress(self, stage: Stage) -> _Progress:
        """What reports how far a stage is."""
        return _Progress(self, stage)

    def end(self, stage: Stage, note: str = "") -> None:
        """It is done."""
        stage.state, stage.seconds_left, stage.note = "done", None, note
        self.write()

    def fail(self, stage: Stage, why: str) -> None:
        """It could not be done; the others may."""
        stage.state, stage.seconds_left, stage.note = "failed", None, why
        self.write()

    def skip_rest(self) -> None:
        """What was not begun need not be done."""
        for stage in self.status.stages:
            if stage.state == "waiting":
                stage.state = "done"

    def advance(self, stage: Stage, done: int, total: int) -> None:
        """So many of so many are done."""
        now = time.monotonic()
        if self._first < 0:
            self._first, self._began = done, now
        stage.done, stage.total = done, total
        spent, gained = now - self._began, done - self._first
        if spent > SECONDS_OF_RATE and gained > 0:
            stage.seconds_left = spent / gained * (total - done)
        if now - self._written > SECONDS_BETWEEN_WRITES or done >= total:
            self.write()


class _Progress:
    """A `Progress` that writes the status."""

    def __init__(self, writer: StatusWriter, stage: Stage) -> None:
        self._writer, self._stage = writer, stage

    def __call__(self, done: int, total: int, note: str = "", /) -> None:
        """So many of so many are done."""
        self._writer.advance(self._stage, done, total)
