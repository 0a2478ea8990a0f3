"""The public benchmarks as their authors publish them: UCF101, HMDB51 and Kinetics.

Copies differ in where the lists lie, in suffixes after re-encoding and in letter case, so the lists say what
there should be and a walk of the disk says where it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from provico.data.layouts.listing import (
    SUBSET_NAMES,
    DataPath,
    Entry,
    FileIndex,
    Layout,
    Listing,
    csv_columns,
    read_lines,
    read_rows,
    sorted_classes,
)
from provico.data.layouts.video_files import find_videos
from provico.errors import CatalogError

# ----------------------------------------------------------------------------------------------------
# UCF101

_UCF101_GROUP = re.compile(r"_(g\d+)_c\d+$", re.IGNORECASE)


def _locate_ucf101(source: DataPath) -> tuple[Path, Path] | None:
    """The folder of class folders and the folder of lists: what was given, inside it, or beside it."""
    here = source.path
    for lists in (here, here / "ucfTrainTestlist", here.parent / "ucfTrainTestlist"):
        if (lists / "classInd.txt").is_file():
            videos = _folder_of_classes(_ucf101_classes(lists).values(), here=here, lists=lists)
            return (videos, lists) if videos else None
    return None


def _ucf101_classes(lists: Path) -> dict[int, str]:
    """Official number, from 1, to name; in the order of the numbers."""
    classes = {}
    for number, line in read_lines(lists / "classInd.txt"):
        match = re.fullmatch(r"(\d+)\s+(\S.*)", line)
        if match is None:
            raise CatalogError(
                f'{lists / "classInd.txt"}, line {number}: found "{line}", needed "1 Archery".'
            )
        classes[int(match[1])] = match[2]
    return dict(sorted(classes.items()))


def _read_ucf101(source: DataPath, splits: tuple[int, ...]) -> Listing | None:
    located = _locate_ucf101(source)
    if located is None:
        return None
    videos, lists = located
    classes = _ucf101_classes(lists)
    labels = {name.lower(): name for name in classes.values()}
    # The files of HandstandPushups are spelt with another case than their folder, and copies vary.
    files = FileIndex(find_videos(videos), key=lambda name: _without_suffix(name).lower())
    entries = [
        _ucf101_entry(line, f"{path}, line {number}", subset, labels, classes, files)
        for split in splits
        for subset in ("train", "test")
        for path in [lists / f"{subset}list{split:02d}.txt"]
        for number, line in read_lines(path)
    ]
    return Listing(videos, tuple(entries), tuple(classes.values()))


def _ucf101_entry(
    line: str, where: str, subset: str, labels: dict[str, str], classes: dict[int, str], files: FileIndex
) -> Entry:
    """`Class/v_Class_g01_c01.avi`, in the train lists followed by the class number."""
    match = re.fullmatch(r"([^/]+)/(.+?\.\w+)(?:\s+(\d+))?", line)
    # The folder is the label, since only the train lists have the number.
    label = labels.get(match[1].lower()) if match else None
    if match is None or label is None:
        raise CatalogError(f'{where}: found "{line}", needed "Class/video.avi" with a class of classInd.txt.')
    if match[3] and classes.get(int(match[3])) != label:
        raise CatalogError(
            f"{where}: {match[3]} is not the number of {label} in classInd.txt. The lists do not belong "
            "together: take all of them from one copy of UCF101."
        )
    group = _UCF101_GROUP.search(_without_suffix(match[2]))
    return files.entry(
        f"{match[1]}/{match[2]}",
        label=label,
        subset=subset,
        # Group 3 of one class has nothing to do with group 3 of another.
        group=f"{label}/{group[1].lower()}" if group else None,
    )


# ----------------------------------------------------------------------------------------------------
# HMDB51

_HMDB51_FOLDERS = ("testTrainMulti_7030_splits", "test_train_splits", "splits")
_HMDB51_SUBSETS = {"0": None, "1": "train", "2": "test"}  # 0 marks a video that the split leaves out


def _locate_hmdb51(source: DataPath) -> tuple[Path, Path] | None:
    here = source.path
    for lists in (here, *(folder / name for folder in (here, here.parent) for name in _HMDB51_FOLDERS)):
        if classes := _hmdb51_classes(lists):
            videos = _folder_of_classes(classes, here=here, lists=lists)
            return (videos, lists) if videos else None
    return None


def _hmdb51_classes(lists: Path) -> list[str]:
    names = (re.fullmatch(r"(.+)_test_split\d\.txt", path.name) for path in lists.glob("*_test_split?.txt"))
    return sorted({match[1] for match in names if match})


def _read_hmdb51(source: DataPath, splits: tuple[int, ...]) -> Listing | None:
    located = _locate_hmdb51(source)
    if located is None:
        return None
    videos, lists = located
    classes = _hmdb51_classes(lists)
    files = FileIndex(find_videos(videos), key=_without_suffix)
    entries = []
    for split in splits:
        for label in classes:
            path = lists / f"{label}_test_split{split}.txt"
            for number, line in read_lines(path):
                match = re.fullmatch(r"(.+?)\s+([012])", line)
                if match is None:
                    raise CatalogError(f'{path}, line {number}: found "{line}", needed "video.avi 1".')
                if subset := _HMDB51_SUBSETS[match[2]]:
                    group = _hmdb51_source(match[1], label)
                    entries.append(
                        files.entry(f"{label}/{match[1]}", label=label, subset=subset, group=group)
                    )
    return Listing(videos, tuple(entries), tuple(classes))


def _hmdb51_source(name: str, label: str) -> str | None:
    """The film or upload that a clip was cut from: what stands before the class in its name.

    One source may have clips of several classes, which are then of one group.
    """
    source, found, _ = name.lower().partition(f"_{label.lower()}_")
    return name[: len(source)] if found and source else None


# ----------------------------------------------------------------------------------------------------
# Kinetics


def _kinetics_tables(source: DataPath) -> list[Path]:
    """The file itself, or every Kinetics csv of the folder or of its `annotations`."""
    here = source.path
    files = [here] if here.is_file() else [*here.glob("*.csv"), *here.glob("annotations/*.csv")]
    needed = {"youtube_id", "time_start", "time_end"}
    return sorted(path for path in files if path.suffix.lower() == ".csv" and csv_columns(path) >= needed)


def _read_kinetics(source: DataPath, splits: tuple[int, ...]) -> Listing | None:
    del splits  # there is only one
    tables = _kinetics_tables(source)
    if not tables:
        return None
    root = source.path.parent if source.path.is_file() else source.path
    # The stem names a clip wherever it lies: in class folders, subset folders or none. Letter case matters,
    # since YouTube has videos whose names differ in nothing else.
    files = FileIndex(find_videos(root), key=lambda name: PurePosixPath(name).stem)
    entries = []
    for table in tables:
        for number, row in read_rows(table):
            try:
                start, end = (int(float(row[column])) for column in ("time_start", "time_end"))
            except ValueError as error:
                raise CatalogError(
                    f"{table}, line {number}: time_start and time_end must be numbers."
                ) from error
            name = f"{row['youtube_id']}_{start:06d}_{end:06d}.mp4"
            subset = row.get("split") or re.split("[-_]", table.stem)[-1]
            entries.append(
                files.entry(name, label=row.get("label") or None, subset=SUBSET_NAMES.get(subset.lower()))
            )
    return Listing(root, tuple(entries), sorted_classes(entries))


# ----------------------------------------------------------------------------------------------------


def _without_suffix(name: str) -> str:
    return str(PurePosixPath(name).with_suffix(""))


def _folder_of_classes(classes: Iterable[str], *, here: Path, lists: Path) -> Path | None:
    """The folder that holds the most class folders: what was given, inside it, or beside the lists."""
    wanted = {name.lower() for name in classes}
    folders = [here, *_subfolders(here), *(_subfolders(here.parent) if lists == here else [])]
    counts = [sum(path.name.lower() in wanted for path in _subfolders(folder)) for folder in folders]
    return folders[counts.index(max(counts))] if any(counts) else None


def _subfolders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


UCF101 = Layout(
    recognise=lambda source: _locate_ucf101(source) is not None,
    read=_read_ucf101,
    needs="class folders (UCF-101/) with ucfTrainTestlist/ (classInd.txt, trainlist01.txt, ...) beside them",
    num_splits=3,
)
HMDB51 = Layout(
    recognise=lambda source: _locate_hmdb51(source) is not None,
    read=_read_hmdb51,
    needs="class folders with <class>_test_split1.txt, ... in testTrainMulti_7030_splits/ beside them",
    num_splits=3,
)
KINETICS = Layout(
    recognise=lambda source: bool(_kinetics_tables(source)),
    read=_read_kinetics,
    needs="a csv with the columns label, youtube_id, time_start, time_end and clips <id>_<start>_<end>.mp4",
)
