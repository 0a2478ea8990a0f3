"""What was found: pairs, groups of copies, and footage on both sides of a split."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from provico.duplicates.judgement import Kind
from provico.errors import ConfigError
from provico.files import replace_rows, replace_text, replacing
from provico.search.query import Span
from provico.typed_json import build

FORMAT_VERSION = 2

EQUAL_SPEED = 0.02
"""Speeds that differ by less are told as equal."""
LEAST_BARS = 0.04
"""Bars that take less of the picture are an edge, or an error of measurement."""
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
    bars: float = 0.0
    """The share of its picture that bars of one colour take."""
    modified_ns: int = 0
    """When its file was written last."""

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
    def names(self) -> tuple[str, str]:
        """The ids of the two, in order."""
        first, second = sorted((self.first.id, self.second.id))
        return first, second

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
        is_equal = abs(self.speed - 1) < EQUAL_SPEED
        speed = "" if is_equal else f", at {max(self.speed, 1 / self.speed):.2f} times the"
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
    edits: dict[str, str]
    """What was done to each of those to be dropped, in words, by id."""

    def summary(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "keep": self.keep.id,
            "reason": self.reason,
            "drop": [member.id for member in self.drop],
            "edits": self.edits,
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

    def without(self, rejected: Collection[tuple[str, str]]) -> DuplicateReport:
        """A copy without some pairs, each by its ids in order; groups are made anew."""
        if not rejected:
            return self
        pairs = tuple(pair for pair in self.pairs if pair.names not in rejected)
        return replace(self, pairs=pairs, groups=group_duplicates(pairs))

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for `from_dict`."""
        members = {m.id: asdict(m) for pair in self.pairs for m in (pair.first, pair.second)}
        pairs = [asdict(pair) | {"first": pair.first.id, "second": pair.second.id} for pair in self.pairs]
        facts = ("num_videos", "num_compared", "min_probability", "blank", "failed")
        return {"format": FORMAT_VERSION, "members": members, "pairs": pairs} | {
            name: getattr(self, name) for name in facts
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> DuplicateReport:
        """What `to_dict` gave; KeyError, TypeError or ValueError for other values."""
        if values["format"] != FORMAT_VERSION:
            raise ValueError(f"it is in format {values['format']}")
        members = {name: build(Member, one) for name, one in values["members"].items()}
        pairs = tuple(
            build(
                Pair,
                one | {side: asdict(members[one[side]]) for side in ("first", "second")},
            )
            for one in values["pairs"]
        )
        return cls(
            num_videos=int(values["num_videos"]),
            num_compared=int(values["num_compared"]),
            min_probability=float(values["min_probability"]),
            pairs=pairs,
            groups=group_duplicates(pairs),
            blank=tuple(map(str, values["blank"])),
            failed=tuple((str(name), str(why)) for name, why in values["failed"]),
        )

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
        one, other = (
            joined.setdefault(m.key, _Joined({m.key: (m, False)})) for m in (pair.first, pair.second)
        )
        one.pairs.append(pair)
        if one is not other:
            is_turned = pair.is_mirrored ^ one.members[pair.first.key][1] ^ other.members[pair.second.key][1]
            one.members |= {key: (m, is_turned ^ turned) for key, (m, turned) in other.members.items()}
            one.pairs += other.pairs
            one.probability = min(one.probability, other.probability, pair.probability)
            joined |= dict.fromkeys(other.members, one)
    groups = [_choose(found) for found in {id(found): found for found in joined.values()}.values()]
    return tuple(sorted(groups, key=lambda group: (-len(group.drop), group.keep.key)))


@dataclass(eq=False)
class _Joined:
    members: dict[tuple[str, str], tuple[Member, bool]]
    """Each with whether it is mirrored, as seen from the first."""
    pairs: list[Pair] = field(default_factory=list)
    probability: float = 1.0

    def mirrored(self) -> set[tuple[str, str]]:
        """Those that are mirrored: the fewer ones, or of as many those without the oldest file."""
        turned = {key for key, (_, is_turned) in self.members.items() if is_turned}
        others = set(self.members) - turned

        def is_right(keys: set[tuple[str, str]]) -> tuple[int, int, tuple[str, str]]:
            oldest = min((self.members[key][0].modified_ns, key) for key in keys)
            return (-len(keys), *oldest)

        if not turned or not others:
            return set()
        return turned if is_right(others) < is_right(turned) else others


def _choose(joined: _Joined) -> Group:
    """Keep what was least done to: unmirrored, without bars, larger, longer, older."""
    mirrored = joined.mirrored()
    rules: tuple[tuple[str, Callable[[Member], float], float], ...] = (
        ("it is not mirrored", lambda m: m.key not in mirrored, 0.0),
        ("it has no bars", lambda m: m.bars < LEAST_BARS, 0.0),
        ("its picture is the largest", lambda m: (1 - m.bars) * m.num_pixels, 0.02),
        ("it is the longest", lambda m: m.duration_seconds, 0.02),
        ("its file is the oldest", lambda m: -float(m.modified_ns), 0.0),
    )
    members = [member for member, _ in joined.members.values()]
    best = members
    reasons: list[str] = []
    for why, value, tolerance in rules:
        highest = max(map(value, best))
        left = [member for member in best if value(member) >= highest - tolerance * abs(highest)]
        if len(left) < len(best):
            best, reasons = left, [*reasons, why]
    keep = min(best, key=lambda member: member.key)
    drop = sorted((m for m in members if m.key != keep.key), key=lambda member: member.key)
    return Group(
        keep=keep,
        reason=" and ".join(reasons) or "its name comes first, and everything else is equal",
        drop=tuple(drop),
        probability=joined.probability,
        edits={
            m.id: _edit(m, keep, joined.pairs, is_mirrored=(m.key in mirrored) != (keep.key in mirrored))
            for m in drop
        },
    )


def _edit(copy: Member, kept: Member, pairs: Iterable[Pair], *, is_mirrored: bool) -> str:
    """What was done to a copy, as seen from the video that is kept."""
    direct = next((p for p in pairs if {p.first.key, p.second.key} == {copy.key, kept.key}), None)
    if direct is not None and direct.proof == "identical":
        return "the same frames"
    found = ["mirrored"] if is_mirrored else []
    if copy.bars >= LEAST_BARS > kept.bars:
        found.append("with bars")
    if direct is not None and abs(direct.speed - 1) >= EQUAL_SPEED:
        # Seconds of the second for each second of the first.
        speed = direct.speed if direct.second.key == kept.key else 1 / direct.speed
        found.append(f"sped up {speed:.2g} times" if speed > 1 else f"slowed down to {speed:.0%}")
    elif copy.duration_seconds < 0.95 * kept.duration_seconds:
        found.append("shorter")
    size = (1 - copy.bars) * copy.num_pixels / max(1.0, (1 - kept.bars) * kept.num_pixels)
    if size < 0.95:
        found.append("smaller")
    return ", ".join(found) or "re-encoded"
