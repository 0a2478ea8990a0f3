"""Common parts of the readers of data set layouts: records and text files.

A listing says which videos there *should* be; an entry whose file is absent keeps its name, so that
`catalog.py` can tell the user what is missing.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from provico.data.layouts.video_files import FoundVideos, find_videos
from provico.errors import CatalogError

SUBSET_NAMES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validate": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}
"""How data sets spell their subsets, in lower case, and how we do."""


@dataclass(frozen=True)
class DataPath:
    """The given folder or file. A folder is walked once, when first needed."""

    path: Path

    @cached_property
    def found(self) -> FoundVideos:
        """Every video under the folder."""
        return find_videos(self.path)


@dataclass(frozen=True)
class Entry:
    """One video that a layout lists; `path` is None where its file is absent."""

    id: str
    path: Path | None
    label: str | None = None
    group: str | None = None
    subset: str | None = None
    span: tuple[float, float] | None = None


@dataclass(frozen=True)
class Listing:
    """All that a layout lists under `root`; the classes are those of every subset, so their numbers agree."""

    root: Path
    entries: tuple[Entry, ...]
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layout:
    """A way to lay out a data set: how to tell it, and how to read it.

    `read` takes the source and the numbers of the splits. It answers None where the source is laid out in
    another way, and raises CatalogError where it is laid out in this way but wrongly.
    """

    recognise: Callable[[DataPath], bool]
    read: Callable[[DataPath, tuple[int, ...]], Listing | None]
    needs: str
    num_splits: int = 1


class FileIndex:
    """Finds the file that a list means, although its folder, suffix or letter case may have changed.

    `key` keeps of a name what the list and the disk agree on.
    """

    def __init__(self, found: FoundVideos, *, key: Callable[[str], str]) -> None:
        self._root = found.root
        self._key = key
        self._names: defaultdict[str, list[str]] = defaultdict(list)
        for name in found.videos:
            self._names[key(name)].append(name)

    def entry(self, listed: str, *, label: str | None, subset: str | None, group: str | None = None) -> Entry:
        """The entry for a listed name, under the name that it has on disk if it is there."""
        names = self._names.get(self._key(listed), [])
        if listed in names:
            names = [listed]
        if len(names) > 1:
            raise CatalogError(
                f"{listed} could be any of {', '.join(names)} in {self._root}. Keep only one of them there."
            )
        name, path = (names[0], self._root / names[0]) if names else (listed, None)
        return Entry(name, path, label=label, group=group, subset=subset)


def sorted_classes(entries: Iterable[Entry]) -> tuple[str, ...]:
    """The labels in order; numbers by value, so that class 10 does not come before class 2."""
    labels = {entry.label for entry in entries if entry.label is not None}
    if all(label.isdecimal() for label in labels):
        return tuple(sorted(labels, key=lambda label: (int(label), label)))
    return tuple(sorted(labels))


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The numbered lines of a text file without line ends, outer spaces and blank lines.

    A line that begins with # is not a comment here: names of HMDB51 begin like that.
    """
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if line := line.strip():
            yield number, line


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """The numbered rows of a csv with a header; names in lower case, values stripped, absent ones empty."""
    reader = csv.reader(io.StringIO(_text(path)), strict=True)
    try:
        columns = [name.strip().lower() for name in next(reader, [])]
        for row in reader:
            values = [value.strip() for value in row]
            if any(values):
                values += [""] * (len(columns) - len(values))
                yield reader.line_num, dict(zip(columns, values, strict=False))
    except csv.Error as error:
        raise CatalogError(f"{path}, line {reader.line_num}: not a well-formed csv ({error}).") from error


def csv_columns(path: Path) -> set[str]:
    """The column names of a csv, or none if there is no such file or it is something else."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return {name.strip().lower() for name in next(csv.reader(file), [])}
    except (OSError, UnicodeDecodeError, csv.Error):
        return set()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # so a byte-order mark is left out
    except UnicodeDecodeError as error:
        raise CatalogError(f"{path} is not a text file in UTF-8. Save it in that encoding.") from error
    except OSError as error:
        raise CatalogError(f"The list {path} cannot be read ({error.strerror}).") from error
