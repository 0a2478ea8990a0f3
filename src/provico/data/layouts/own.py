"""Layouts of users' own data: lists, class folders, plain folders, single files, features."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from provico.data.layouts.listing import (
    SUBSET_NAMES,
    DataPath,
    Entry,
    Layout,
    Listing,
    csv_columns,
    read_lines,
    read_rows,
    sorted_classes,
)
from provico.data.layouts.video_files import VIDEO_SUFFIXES, is_video_name
from provico.errors import CatalogError

# ----------------------------------------------------------------------------------------------------
# Lists of the user's own

_SUFFIXES = "|".join(re.escape(suffix) for suffix in sorted(VIDEO_SUFFIXES))
_LIST_LINE = re.compile(rf"(?P<path>.*(?:{_SUFFIXES}))(?:[\s,]+(?P<label>\S.*))?", re.IGNORECASE)


def _read_list(source: DataPath, splits: tuple[int, ...]) -> Listing | None:
    """Lines "path" or "path label". The path ends at the last video suffix, so both may have spaces."""
    del splits  # there is only one
    if not source.path.is_file():
        return None
    own = _OwnList(source.path)
    for number, line in read_lines(source.path):
        match = _LIST_LINE.fullmatch(line)
        # A comment, unless it names a file that is there: a video may be called "#1.mp4".
        if line.startswith("#") and (match is None or not own.is_file(match["path"])):
            continue
        if match is None:
            raise CatalogError(
                f'{source.path}, line {number}: found "{line[:80]}", needed "path" or "path label", the path '
                "ending like that of a video (.mp4, .avi, ...). Put # before a line to leave it out."
            )
        own.add(number, match["path"], label=match["label"])
    return own.listing()


def _is_manifest(source: DataPath) -> bool:
    return source.path.suffix.lower() == ".csv" and "path" in csv_columns(source.path)


def _read_manifest(source: DataPath, splits: tuple[int, ...]) -> Listing | None:
    """A csv with the column path; others that are understood stand below, more are left alone.

    A row with start_seconds and end_seconds is only that part of its file.
    """
    del splits  # there is only one
    if not _is_manifest(source):
        return None
    own = _OwnList(source.path)
    for number, row in read_rows(source.path):
        if row.get("status") in (None, "", "readable"):
            where = f"{source.path}, line {number}"
            own.add(
                number,
                row["path"],
                identity=row.get("id") or None,
                label=row.get("label") or None,
                group=row.get("group") or None,
                subset=_subset(row.get("split", ""), where),
                span=_span(row.get("start_seconds", ""), row.get("end_seconds", ""), where),
            )
    return own.listing()


def _subset(name: str, where: str) -> str | None:
    if name and name.lower() not in SUBSET_NAMES:
        raise CatalogError(f'{where}: found the split "{name}", needed train, val or test, or nothing.')
    return SUBSET_NAMES.get(name.lower())


def _span(start: str, end: str, where: str) -> tuple[float, float] | None:
    if not start and not end:
        return None
    try:
        span = float(start), float(end)
    except ValueError:
        span = (math.nan, math.nan)
    if not 0 <= span[0] < span[1] < math.inf:
        raise CatalogError(
            f'{where}: found "{start}" to "{end}", needed start_seconds and end_seconds as numbers, the '
            "start not below 0 and the end after it; or neither for a whole file."
        )
    return span


@dataclass
class _OwnList:
    """Collects a list line by line: paths are relative to its folder and stay inside it, or absolute."""

    path: Path
    entries: list[Entry] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)

    def is_file(self, name: str) -> bool:
        return (self.path.parent / name).is_file()

    def add(
        self,
        number: int,
        name: str,
        *,
        identity: str | None = None,
        label: str | None,
        group: str | None = None,
        subset: str | None = None,
        span: tuple[float, float] | None = None,
    ) -> None:
        where = f"{self.path}, line {number}"
        path = Path(os.path.normpath(self.path.parent / name))
        if path.is_dir():
            raise CatalogError(f'{where}: "{name}" is a folder, needed the path of a video.')
        inside = path.is_relative_to(self.path.parent)
        if not inside and not Path(name).is_absolute():
            raise CatalogError(
                f'{where}: "{name}" leads out of the folder of the list. Write it as an absolute path.'
            )
        identity = identity or (path.relative_to(self.path.parent) if inside else path).as_posix()
        if span is not None:  # parts of one file are told apart, and never taken for the whole
            part = f"#{span[0]:g}-{span[1]:g}"
            identity = identity.removesuffix(part) + part
        if identity in self.lines:
            raise CatalogError(
                f'{where}: "{name}" is already in line {self.lines[identity]}. Keep one of them.'
            )
        self.lines[identity] = number
        self.entries.append(Entry(identity, path if path.is_file() else None, label, group, subset, span))

    def listing(self) -> Listing:
        return Listing(self.path.parent, tuple(self.entries), sorted_classes(self.entries))


# ----------------------------------------------------------------------------------------------------
# Plain folders


def _read_folder(source: DataPath, splits: tuple[int, ...]) -> Listing | None:
    del splits  # there is only one
    if source.path.is_file():
        return Listing(source.path.parent, (Entry(source.path.name, source.path),))
    found = source.found
    entries = [Entry(name, found.root / name) for name in found.videos]
    entries += [Entry(name, None) for name in found.dangling]
    return Listing(found.root, tuple(sorted(entries, key=lambda entry: entry.id)))


def _read_class_folders(source: DataPath, splits: tuple[int, ...]) -> Listing | None:
    """The outermost folder is the label, or the subset if all are called train, val, test; then the next."""
    listing = _read_folder(source, splits) if source.path.is_dir() else None
    parts = [entry.id.split("/") for entry in listing.entries] if listing else []
    if listing is None or any(len(names) < 2 for names in parts):
        return None
    entries = [replace(entry, label=names[0]) for entry, names in zip(listing.entries, parts, strict=True)]
    if all(names[0].lower() in SUBSET_NAMES for names in parts):
        if any(len(names) < 3 for names in parts):
            return None
        entries = [
            replace(entry, label=names[1], subset=SUBSET_NAMES[names[0].lower()])
            for entry, names in zip(listing.entries, parts, strict=True)
        ]
    return replace(listing, entries=tuple(entries), classes=sorted_classes(entries))


def _is_class_folders(source: DataPath) -> bool:
    listing = _read_class_folders(source, (1,))
    return listing is not None and len(listing.classes) >= 2  # one folder says nothing about classes


MANIFEST = Layout(
    recognise=_is_manifest,
    read=_read_manifest,
    needs="a csv file with the column path, such as provico scan writes",
)
LIST = Layout(
    recognise=lambda source: source.path.is_file() and not is_video_name(source.path.name),
    read=_read_list,
    needs='a text file with a line "path" or "path label" for each video',
)
CLASS_FOLDERS = Layout(
    recognise=_is_class_folders,
    read=_read_class_folders,
    needs="every video in the folder of its class, or in train/, val/ or test/ and then its class",
)
FOLDER = Layout(
    recognise=lambda source: True,
    read=_read_folder,
    needs="a folder with videos at any depth, or one video file",
)


# ----------------------------------------------------------------------------------------------------
# A file of features: each row is a video

FEATURES_LAYOUT = "features"
"""The name of this layout, by which catalogs of features are told from those of videos."""

FEATURE_SUFFIXES = (".npz", ".safetensors")
"""The formats of a file of features."""


def _has_features(source: DataPath) -> bool:
    return source.path.suffix in FEATURE_SUFFIXES and source.path.is_file()


def _read_features(source: DataPath, splits: tuple[int, ...]) -> Listing | None:
    """The file stands where the files of the videos would."""
    del splits  # there is only one
    if not _has_features(source):
        return None
    from provico.data.feature_file import read_facts  # catalogs of videos must not wait for torch

    facts = read_facts(source.path)
    unknown = (None,) * len(facts["ids"])
    columns = [facts.get(name, unknown) for name in ("labels", "groups", "subsets")]
    rows = zip(facts["ids"], *columns, strict=True)
    entries = [Entry(name, source.path, label, group, subset) for name, label, group, subset in rows]
    return Listing(source.path, tuple(entries), sorted_classes(entries))


STORED_FEATURES = Layout(
    recognise=_has_features,
    read=_read_features,
    needs="a .npz or .safetensors file with `ids` and `features`, as FeatureFile.save writes it",
)
