"""What people said of hits: right or wrong, in one csv file of the index that survives crashes.

    query,hit,verdict,time
    a.mp4,b.mp4,right,2026-01-31T12:00:00Z

Each judgement is one line, appended under a lock and flushed to the disk before it counts. Nothing is ever
overwritten: the last line about a pair counts, and `undo` takes back the one before it. A line may say that
videos have other names now: `renamed`, for a query the names in JSON, and for a hit the key of the change. A
damaged line does not count; it is named, and the others do.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Literal, get_args

from provico.errors import ConfigError, ConflictError
from provico.files import History, appending, stamp
from provico.locations import home_of
from provico.renamed import RENAMED, is_noted, names_in

NAME = "judgements.csv"
COLUMNS = ("query", "hit", "verdict", "time")
Verdict = Literal["right", "wrong"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
_UNDO = "undo"
Pair = tuple[str, str]
"""Ids of a query and of a hit."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Whether a hit is what the query was after."""

    query: str
    hit: str
    verdict: Verdict

    @property
    def pair(self) -> Pair:
        """What it is about."""
        return self.query, self.hit

    @property
    def is_right(self) -> bool:
        """Whether the hit is right."""
        return self.verdict == "right"


@dataclass(frozen=True)
class Judgements:
    """All lines of a file, replayed."""

    history: History[Pair, Judgement] = field(default_factory=History)
    revision: int = 0
    """How many lines there are: it grows with every judgement and every undo."""
    damaged: tuple[str, ...] = ()
    """What is wrong with which line, in words."""

    @property
    def current(self) -> dict[Pair, Judgement]:
        """The judgement that holds for each pair that has one."""
        return self.history.current

    def of_query(self, query: str) -> dict[str, Judgement]:
        """The judgements that hold for the hits of one query."""
        return {hit: one for (asked, hit), one in self.current.items() if asked == query}


class JudgementLog:
    """The judgements of one index, or of the collection that it is of.

    They are read again where another process has added some.
    """

    def __init__(self, index: Path) -> None:
        self.path = home_of(index) / NAME

    def read(self) -> Judgements:
        """All that was judged."""
        try:
            text = self.path.read_text(encoding="utf-8", errors="surrogateescape")
        except FileNotFoundError:
            return Judgements()
        return _replayed(text)

    def record(
        self,
        judgements: Iterable[Judgement],
        *,
        find: Callable[[str], object] = str,
        seen_revision: int | None = None,
    ) -> Judgements:
        """Append judgements, all or none; on the disk when it returns. All that holds then is given back.

        find: raises an error for what is no video of the index.
        seen_revision: what the one who judges has seen. Refused if the same pair was judged since.
        """
        new = [*judgements]
        for name in dict.fromkeys(name for one in new for name in one.pair):
            find(name)
        for one in new:
            _check(one)
        with self._writing() as file:
            known = self.read()
            for one in new:
                if seen_revision is not None and known.history.changed.get(one.pair, 0) > seen_revision:
                    raise ConflictError(
                        f"{one.hit} was judged elsewhere in the meantime. Check it, then try again."
                    )
            _append(file, [(one.query, one.hit, one.verdict) for one in new])
        return self.read()

    def undo(self, *, seen_revision: int | None = None) -> Pair | None:
        """Take back the last judgement that holds; the pair it was about, or None if there is none.

        seen_revision: refused if anything was judged since, which would be taken back instead.
        """
        with self._writing() as file:
            known = self.read()
            if seen_revision is not None and known.revision > seen_revision:
                raise ConflictError(
                    "Another judgement was made elsewhere in the meantime. Check it, then undo."
                )
            if not known.history.order:
                return None
            last = known.history.order[-1]
            _append(file, [(*last, _UNDO)])
            return last

    def rename(self, names: Mapping[str, str], *, key: str) -> None:
        """Let what was said of some videos hold for others from now on; of one key only once."""
        if self.path.is_file() and not is_noted(self.path, key):
            with self._writing() as file:
                _append(file, [(json.dumps(dict(names)), key, RENAMED)])

    @contextmanager
    def _writing(self) -> Iterator[IO[bytes]]:
        with appending(self.path) as file:
            content = file.read()
            if not content:
                file.write(",".join(COLUMNS).encode() + b"\n")
            elif not content.endswith(b"\n"):
                file.write(b"\n")  # a line that a crash cut short stays, and does not spoil the next
            yield file


def read_judgements(path: Path) -> list[Judgement]:
    """The judgements in a csv file of the user's with the columns query, hit and verdict."""
    try:
        text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}). Give a csv file.") from error
    header = next(csv.reader(text.splitlines()), [])
    missing = [name for name in COLUMNS[:3] if name not in header]
    if missing:
        raise ConfigError(
            f"{path} has no column {missing[0]}. The first line must name the columns query, hit and "
            "verdict; a verdict is right or wrong."
        )
    found = []
    for number, row in enumerate(csv.DictReader(io.StringIO(text)), start=2):
        verdict = (row["verdict"] or "").strip().lower()
        if not verdict:
            continue  # a line of `provico select` that nobody has judged
        if verdict not in VERDICTS or not row["query"] or not row["hit"]:
            raise ConfigError(
                f"{path}, row {number}: the verdict is {row['verdict']!r}, but right or wrong is needed, "
                "beside a query and a hit. Nothing was imported."
            )
        found.append(Judgement(query=row["query"], hit=row["hit"], verdict=VERDICTS[verdict == "wrong"]))
    return found


def _check(one: Judgement) -> None:
    if one.verdict not in VERDICTS:
        raise ConfigError(f"There is no verdict {one.verdict!r}. There are {' and '.join(VERDICTS)}.")
    if any("\n" in name or "\r" in name for name in one.pair):
        raise ConfigError(f"{one.query!r} or {one.hit!r} has a line break in its name. Rename the file.")


def _append(file: IO[bytes], rows: Sequence[tuple[str, str, str]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows((*row, stamp()) for row in rows)
    file.write(text.getvalue().encode(errors="surrogateescape"))


def _replayed(text: str) -> Judgements:
    history: History[Pair, Judgement] = History()
    damaged = []
    # Not splitlines, which also breaks at characters that a file name may have.
    lines = text.removesuffix("\n").split("\n")
    for number, line in enumerate(lines, start=1):
        if number == 1 or not line:
            continue
        row = next(csv.reader([line]), [])
        names = _names(row)
        if names is not None:
            _rename(history, names, line=number)
            continue
        if len(row) not in (3, 4) or row[2] not in (*VERDICTS, _UNDO):
            damaged.append(f"line {number} of {NAME} is damaged and does not count: {line[:80]!r}")
            continue
        pair = (row[0], row[1])
        if row[2] == _UNDO:
            history.undo(pair, line=number)
        else:
            verdict = VERDICTS[row[2] == "wrong"]
            history.add(pair, Judgement(query=pair[0], hit=pair[1], verdict=verdict), line=number)
    return Judgements(history, len(lines), tuple(damaged))


def _names(row: Sequence[str]) -> dict[str, str] | None:
    """What a line says of other names, if it says that and is whole."""
    if len(row) not in (3, 4) or row[2] != RENAMED:
        return None
    try:
        return names_in({RENAMED: json.loads(row[0])})
    except (ValueError, RecursionError):
        return None


def _rename(history: History[Pair, Judgement], names: Mapping[str, str], *, line: int) -> None:
    history.rename(
        lambda pair: (names.get(pair[0], pair[0]), names.get(pair[1], pair[1])),
        lambda pair, one: replace(one, query=pair[0], hit=pair[1]),
        line=line,
    )
