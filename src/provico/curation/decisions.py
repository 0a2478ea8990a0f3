"""A user's decisions about videos, in a file that survives crashes and concurrent writers.

Each decision is one line of JSON, appended under a lock and flushed to the disk before it counts; nothing is
ever overwritten, so undo is a line too. A line that a crash cut short is not complete and does not count,
nor does a damaged one: it is named, and the others hold. A line may say that videos have other names now.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from provico.errors import ConfigError, ConflictError, did_you_mean
from provico.files import History, appending_json, whole_lines
from provico.renamed import names_in

Choice = Literal["keep", "trim", "drop"]
CHOICES: tuple[Choice, ...] = get_args(Choice)
Segment = tuple[float, float]
"""Start and end in seconds."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The decision about one video."""

    id: str
    choice: Choice
    segments: tuple[Segment, ...] = ()
    """With `trim`, the parts that are kept, in order and without overlap."""
    revision: int
    """The number of its line, from 1."""


@dataclass(frozen=True)
class Decisions:
    """The replayed lines of a file."""

    history: History[str, Decision] = field(default_factory=History)
    revision: int = 0
    """Number of lines."""
    damaged: tuple[str, ...] = ()
    """Descriptions of damaged lines."""

    @property
    def current(self) -> dict[str, Decision]:
        """The current decision for each video that has one."""
        return self.history.current


class DecisionLog:
    """The decisions in one file, reread if another process has added some."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def revision(self) -> int:
        """Number of lines, which grows with every decision and every undo."""
        return self.read().revision

    def current(self) -> dict[str, Decision]:
        """The current decision for each video that has one."""
        return self.read().current

    def read(self) -> Decisions:
        """Read all decisions."""
        return _replayed(whole_lines(self.path), self.path.name)

    def record(
        self, id: str, choice: Choice, *, segments: Sequence[Segment] = (), seen_revision: int | None = None
    ) -> Decision:
        """Record a decision about a video; it is on disk on return.

        seen_revision: the revision that the user saw. Refused if the video was decided on since.
        """
        checked = checked_segments(choice, segments)
        with appending_json(self.path) as write:
            known = self.read()
            if seen_revision is not None and known.history.changed.get(id, 0) > seen_revision:
                raise ConflictError(
                    f"{id} was decided on elsewhere in the meantime. Look at it again, then decide."
                )
            write({"id": id, "choice": choice, "segments": checked})
        return Decision(id=id, choice=choice, segments=checked, revision=known.revision + 1)

    def undo(self, *, seen_revision: int | None = None) -> str | None:
        """Undo the last decision; return the id of its video, or None if there is none.

        seen_revision: refused if there was any decision since, which would be undone instead.
        """
        with appending_json(self.path) as write:
            known = self.read()
            if seen_revision is not None and known.revision > seen_revision:
                raise ConflictError("Something was decided elsewhere in the meantime. Look again, then undo.")
            order = known.history.order
            if not order:
                return None
            write({"undo": order[-1]})
            return order[-1]


def checked_segments(choice: Choice, segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """The sorted segments; raises an error if they are invalid."""
    if choice not in CHOICES:
        raise ConfigError(f"There is no decision {choice!r}. {did_you_mean(choice, CHOICES)}")
    if (choice == "trim") != bool(segments):
        raise ConfigError("Give the segments to keep if the decision is trim, and only then.")
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


def _replayed(lines: Sequence[str], name: str) -> Decisions:
    history: History[str, Decision] = History()
    damaged = []
    for number, text in enumerate(lines, start=1):
        try:
            line = json.loads(text)
            names = names_in(line)
            said = None if names is not None else _parsed(line, revision=number)
        except (ConfigError, KeyError, TypeError, ValueError, RecursionError):
            damaged.append(f"line {number} of {name} is damaged and does not count: {text[:80]!a}")
            continue
        if said is None:
            assert names is not None
            history.rename(partial(_called, names), _of, line=number)
        elif isinstance(said, str):
            history.undo(said, line=number)
        else:
            history.add(said.id, said, line=number)
    return Decisions(history, len(lines), tuple(damaged))


def _parsed(line: dict[str, Any], *, revision: int) -> Decision | str:
    """The content of a line: a decision, or the id of the video whose last one is undone."""
    if "undo" in line:
        return _text(line["undo"])
    segments = checked_segments(line["choice"], [(start, end) for start, end in line["segments"]])
    return Decision(id=_text(line["id"]), choice=line["choice"], segments=segments, revision=revision)


def _called(names: Mapping[str, str], id: str) -> str:
    return names.get(id, id)


def _of(id: str, one: Decision) -> Decision:
    return replace(one, id=id)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"An id is a text, not {value!r}.")
    return value
