"""What a person has decided about videos: kept in a file that survives crashes and several writers.

Each decision is one line of JSON, appended under a lock and flushed to the disk before it counts; nothing is
ever overwritten, so undo is a line too. A line that a crash cut short is not complete and does not count.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, get_args

from provico.errors import ConfigError, ConflictError, did_you_mean
from provico.files import History, appending

Choice = Literal["keep", "trim", "drop"]
CHOICES: tuple[Choice, ...] = get_args(Choice)
Segment = tuple[float, float]
"""Start and end in seconds."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What is to become of one video."""

    id: str
    choice: Choice
    segments: tuple[Segment, ...] = ()
    """With `trim`, the parts that are kept, in order and without overlap."""
    revision: int
    """The number of the line that says so, from 1."""


class DecisionLog:
    """The decisions in one file, read again where another process has added some."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def revision(self) -> int:
        """How many lines there are: it grows with every decision and every undo."""
        return len(self._lines())

    def current(self) -> dict[str, Decision]:
        """The decision that holds for each video that has one."""
        return _replayed(self._lines()).current

    def record(
        self, id: str, choice: Choice, *, segments: Sequence[Segment] = (), seen_revision: int | None = None
    ) -> Decision:
        """Decide about a video; on the disk when it returns.

        seen_revision: what the one who decides has seen. Refused if the same video was decided on since.
        """
        checked = checked_segments(choice, segments)
        with self._writing() as file:
            lines = self._lines()
            known = _replayed(lines).changed.get(id, 0)
            if seen_revision is not None and known > seen_revision:
                raise ConflictError(
                    f"{id} was decided on elsewhere in the meantime. Look at it again, then decide."
                )
            _append(file, {"id": id, "choice": choice, "segments": checked})
        return Decision(id=id, choice=choice, segments=checked, revision=len(lines) + 1)

    def undo(self, *, seen_revision: int | None = None) -> str | None:
        """Take back the last decision that holds; the id of its video, or None if there is none.

        seen_revision: refused if there was any decision since, which would be taken back instead.
        """
        with self._writing() as file:
            lines = self._lines()
            if seen_revision is not None and len(lines) > seen_revision:
                raise ConflictError("Something was decided elsewhere in the meantime. Look again, then undo.")
            order = _replayed(lines).order
            if not order:
                return None
            _append(file, {"undo": order[-1]})
            return order[-1]

    def _lines(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        # What comes after the last end of line was cut short by a crash.
        whole, _, _ = self.path.read_text(encoding="utf-8").rpartition("\n")
        lines = []
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                lines.append(_checked_line(json.loads(line)))
            except (ConfigError, KeyError, TypeError, ValueError) as error:
                raise ConfigError(
                    f"{self.path}, line {number}: this is not a decision as ProViCo writes it. "
                    "Remove the line, or the file."
                ) from error
        return lines

    @contextmanager
    def _writing(self) -> Iterator[IO[bytes]]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with appending(self.path) as file:
            file.truncate(file.read().rfind(b"\n") + 1)  # a line cut short would spoil the next one
            yield file


def checked_segments(choice: Choice, segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """The segments in order; an error if they make no sense."""
    if choice not in CHOICES:
        raise ConfigError(f"There is no decision {choice!r}. {did_you_mean(choice, CHOICES)}")
    if (choice == "trim") != bool(segments):
        raise ConfigError("To trim a video, and only then, give the segments that are kept.")
    ordered = sorted((float(start), float(end)) for start, end in segments)
    last = 0.0
    for start, end in ordered:
        if not last <= start < end < float("inf"):
            raise ConfigError(
                f"The segment from {start:g} to {end:g} s is empty, or before the start of the video, or "
                "overlaps another one."
            )
        last = end
    return tuple(ordered)


def _replayed(lines: Sequence[dict[str, Any]]) -> History[str, Decision]:
    history: History[str, Decision] = History()
    for revision, line in enumerate(lines, start=1):
        if "undo" in line:
            history.undo(line["undo"], line=revision)
            continue
        segments = tuple((start, end) for start, end in line["segments"])
        decision = Decision(id=line["id"], choice=line["choice"], segments=segments, revision=revision)
        history.add(decision.id, decision, line=revision)
    return history


def _checked_line(line: dict[str, Any]) -> dict[str, Any]:
    if "undo" not in line:
        checked_segments(line["choice"], line["segments"])
        str(line["id"])
    return line


def _append(file: IO[bytes], line: dict[str, Any]) -> None:
    stamped = line | {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    file.write(json.dumps(stamped).encode() + b"\n")
