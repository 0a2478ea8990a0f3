"""What was found: pairs, groups of copies, and footage on both sides of a split."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from provico.duplicates.judgement import Kind
from provico.errors import ConfigError
from provico.files import replace_rows, replace_text, replacing
from provico.search.query import Span

Proof = Literal["identical", "motion", "pictures"]
"""All frames are equal; things move in the same way; the pictures are alike and nothing moves."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """A video, and what decides whether to keep it."""

    id: str
    path: str
    label: str | None
    subset: str | None
    source: str
    """The index or the folder that it is from."""
    duration_seconds: float
    num_pixels: int
    """Width times height."""
    uncertainty: float

    @property
    def key(self) -> tuple[str, str]:
        """Tells videos of both sides apart."""
        return self.source, self.id


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two videos that show the same recording."""

    first: Member
    second: Member
    probability: float
    """That they do."""
    kind: Kind
    """The first is a duplicate of the second, contained in it, contains it, or shares a part with it."""
    first_span: Span
    second_span: Span
    """Which part of each is the same."""
    speed: float
    """Seconds of the second for each second of the first."""
    is_mirrored: bool
    proof: Proof
    motion: float
    """Correlation of what changes."""
    appearance: float
    """Correlation of pictures."""
    repetition: float
    """How much the motion is like that in the same video at another time; what `motion` has to exceed."""

    @property
    def is_leak(self) -> bool:
        """Whether the two are on different sides: of a split, or of what was compared."""
        subsets = self.first.subset, self.second.subset
        return self.first.source != self.second.source or (None not in subsets and subsets[0] != subsets[1])

    def __str__(self) -> str:
        here, there = f"{self.first.id} {self.first_span}", f"{self.second.id} {self.second_span}"
        whole = {
            "duplicate": f"{self.first.id} is {self.second.id}",
            "contained": f"{self.first.id} is {there}",
            "contains": f"{self.second.id} is {here}",
            "overlap": f"{here} is {there}",
        }[self.kind]
        speed = "" if abs(self.speed - 1) < 0.02 else f", at {max(self.speed, 1 / self.speed):.2f} times the"
        slower = "first" if self.speed > 1 else "second"
        return whole + (f"{speed} speed in the {slower}" if speed else "") + ", mirrored" * self.is_mirrored

    def row(self) -> dict[str, Any]:
        """Flat, for a table."""
        return {
            "first": self.first.id,
            "second": self.second.id,
            "kind": self.kind,
            "probability": self.probability,
            "is_leak": self.is_leak,
            "first_subset": self.first.subset,
            "second_subset": self.second.subset,
            "first_start_seconds": self.first_span.start_seconds,
            "first_end_seconds": self.first_span.end_seconds,
            "second_start_seconds": self.second_span.start_seconds,
            "second_end_seconds": self.second_span.end_seconds,
            "speed": self.speed,
            "is_mirrored": self.is_mirrored,
            "proof": self.proof,
            "motion": self.motion,
            "appearance": self.appearance,
            "repetition": self.repetition,
            "first_path": self.first.path,
            "second_path": self.second.path,
        }


@dataclass(frozen=True, kw_only=True)
class Group:
    """Videos that are copies of one another."""

    keep: Member
    reason: str
    """Why this one."""
    drop: tuple[Member, ...]
    probability: float
    """Of the least certain pair without which the group would fall apart."""

    def summary(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "keep": self.keep.id,
            "reason": self.reason,
            "drop": [member.id for member in self.drop],
            "probability": self.probability,
        }


@dataclass(frozen=True, kw_only=True)
class DuplicateReport:
    """What `find_duplicates` found."""

    num_videos: int
    num_compared: int
    """Pairs of videos that were compared in full."""
    min_probability: float
    pairs: tuple[Pair, ...]
    """The most certain first."""
    groups: tuple[Group, ...]
    blank: tuple[str, ...]
    """Ids of videos that show nothing, which are like all others of that kind and so compared with none."""
    failed: tuple[tuple[str, str], ...]
    """Ids of videos whose files cannot be read now, with the reasons. They are compared with none."""

    @property
    def leaks(self) -> tuple[Pair, ...]:
        """The pairs whose videos are on different sides."""
        return tuple(pair for pair in self.pairs if pair.is_leak)

    @property
    def parts(self) -> tuple[Pair, ...]:
        """The pairs of which not both are whole: one is a part of the other, or they share one."""
        return tuple(pair for pair in self.pairs if pair.kind != "duplicate")

    @property
    def num_droppable(self) -> int:
        """How many videos could go without loss of footage that is in a group."""
        return sum(len(group.drop) for group in self.groups)

    def summary(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "num_videos": self.num_videos,
            "num_compared": self.num_compared,
            "min_probability": self.min_probability,
            "num_leaks": len(self.leaks),
            "groups": [group.summary() for group in self.groups],
            "pairs": [pair.row() for pair in self.pairs],
            "blank": list(self.blank),
            "failed": dict(self.failed),
        }

    def write(self, path: Path) -> None:
        """Write all of it as .json, or the pairs as a table, .csv or .parquet."""
        rows = [pair.row() for pair in self.pairs]
        if path.suffix == ".json":
            replace_text(path, json.dumps(self.summary(), indent=1) + "\n")
        elif path.suffix == ".csv":
            replace_rows(path, list(_COLUMNS), rows)
        else:
            import pyarrow as pa
            from pyarrow import parquet

            with replacing(path) as partial:
                parquet.write_table(pa.Table.from_pylist(rows, schema=_schema()), partial)


_COLUMNS: dict[str, str] = {
    **dict.fromkeys(("first", "second", "kind"), "string"),
    "probability": "float64",
    "is_leak": "bool_",
    **dict.fromkeys(("first_subset", "second_subset"), "string"),
    **dict.fromkeys(("first_start_seconds", "first_end_seconds"), "float64"),
    **dict.fromkeys(("second_start_seconds", "second_end_seconds", "speed"), "float64"),
    "is_mirrored": "bool_",
    "proof": "string",
    **dict.fromkeys(("motion", "appearance", "repetition"), "float64"),
    **dict.fromkeys(("first_path", "second_path"), "string"),
}
"""The columns of the table and their kinds in Arrow; those of `Pair.row`, also when there is no pair."""


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema([(name, getattr(pa, kind)()) for name, kind in _COLUMNS.items()])


def check_report_name(path: Path) -> None:
    """Refuse a name that does not say which format is meant."""
    if path.suffix not in (".json", ".csv", ".parquet"):
        raise ConfigError(f"{path.name} must end in .json, .csv or .parquet. Choose another --out.")


def group_duplicates(pairs: Iterable[Pair]) -> tuple[Group, ...]:
    """The videos that are joined by pairs of kind `duplicate`, directly or over others.

    Parts do not join: a video that has two others in it would make these two one.
    """
    joined: dict[tuple[str, str], _Joined] = {}
    # The most certain first, so that what joins two groups is the best pair that could.
    for pair in sorted((p for p in pairs if p.kind == "duplicate"), key=lambda p: -p.probability):
        one, other = (joined.setdefault(m.key, _Joined([m])) for m in (pair.first, pair.second))
        if one is not other:
            one.members += other.members
            one.probability = min(one.probability, other.probability, pair.probability)
            joined |= {member.key: one for member in other.members}
    groups = [_choose(found) for found in {id(found): found for found in joined.values()}.values()]
    return tuple(sorted(groups, key=lambda group: (-len(group.drop), group.keep.key)))


@dataclass(eq=False)
class _Joined:
    members: list[Member]
    probability: float = 1.0


_RULES: tuple[tuple[str, Callable[[Member], float], float], ...] = (
    ("it is the longest", lambda member: member.duration_seconds, 0.02),
    ("its picture is the largest", lambda member: float(member.num_pixels), 0.0),
    ("the encoder is surest of it", lambda member: -member.uncertainty, 0.0),
)
"""Why to keep a video, in this order: the reason, what should be large, and by which share it may differ."""


def _choose(joined: _Joined) -> Group:
    best, reason = joined.members, "its name comes first, and all else is equal"
    for why, value, tolerance in _RULES:
        highest = max(map(value, best))
        left = [member for member in best if value(member) >= highest - tolerance * abs(highest)]
        if len(left) < len(best):
            best, reason = left, why
    keep = min(best, key=lambda member: member.key)
    drop = sorted((m for m in joined.members if m.key != keep.key), key=lambda member: member.key)
    return Group(keep=keep, reason=reason, drop=tuple(drop), probability=joined.probability)
