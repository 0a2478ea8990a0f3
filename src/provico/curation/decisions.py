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
from provico.files import Lock, sync

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
    """The decisions in one file, read anew where another process has added some."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def revision(self) -> int:
        """How many lines there are: it grows with every decision and every undo."""
        return len(self._lines())

    def current(self) -> dict[str, Decision]:
        """The decision that holds for each video that has one."""
        return {name: stack[-1] for name, stack in _replayed(self._lines()).stacks.items() if stack}

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
        with Lock(self.path, of="handle") as lock:  # threads of the explorer decide too
            lock.take()
            lock.file.seek(0)
            end = lock.file.read().rfind(b"\n") + 1
            lock.file.truncate(end)  # a line cut short would spoil the next one
            yield lock.file
            lock.file.flush()
            sync(self.path)
            sync(self.path.parent)


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


@dataclass(frozen=True)
class _State:
    stacks: dict[str, list[Decision]]
    """All decisions on a video that were not taken back, the last one holds."""
    order: list[str]
    """The videos in the order of these decisions."""
    changed: dict[str, int]
    """The last line about each video."""


def _replayed(lines: Sequence[dict[str, Any]]) -> _State:
    state = _State({}, [], {})
    for revision, line in enumerate(lines, start=1):
        name = line["undo"] if "undo" in line else line["id"]
        state.changed[name] = revision
        if "undo" in line:
            state.stacks[name].pop()
            # The one taken back is always the last of its video.
            del state.order[len(state.order) - 1 - state.order[::-1].index(name)]
            continue
        segments = tuple((start, end) for start, end in line["segments"])
        decision = Decision(id=name, choice=line["choice"], segments=segments, revision=revision)
        state.stacks.setdefault(name, []).append(decision)
        state.order.append(name)
    return state


def _checked_line(line: dict[str, Any]) -> dict[str, Any]:
    if "undo" not in line:
        checked_segments(line["choice"], line["segments"])
        str(line["id"])
    return line


def _append(file: IO[bytes], line: dict[str, Any]) -> None:
    stamped = line | {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    file.write(json.dumps(stamped).encode() + b"\n")
