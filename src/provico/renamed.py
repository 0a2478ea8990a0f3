"""Videos that were moved or renamed keep what people said of them.

A video is called by its place, so it is another one when it is read again. `search/add.py` knows it by its
content, and says so in each log before anything is written with the new names:

    {"renamed": {"a.mp4": "films/a.mp4"}, "key": "1f0c...", "time": "2026-01-31T12:00:00Z"}

What earlier lines say of the old name holds for the new one from there on. A kill between the logs leaves no
trace: the change is finished by its key, and a log that has the key stays as it is (`search/follow.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from pathlib import Path, PurePosixPath

from provico.files import appending_json, whole_lines
from provico.locations import ACTIONS_NAME, CURATION_NAME, DECISIONS_NAME, REJECTED_NAME

RENAMED = "renamed"


def moved_names(before: Mapping[str, Hashable], now: Mapping[str, Hashable]) -> dict[str, str]:
    """The ids that have another id now, from the content of each id before and now.

    Where several copies have moved, those whose files are called the same belong together, then the first
    with the first. Of a copy whose original is still there, nothing was said yet.
    """
    left: defaultdict[Hashable, list[str]] = defaultdict(list)
    for name, content in sorted(before.items()):
        if now.get(name) != content:
            left[content].append(name)
    came: defaultdict[Hashable, list[str]] = defaultdict(list)
    for name, content in sorted(now.items()):
        if before.get(name) != content and content in left:
            came[content].append(name)
    found = {}
    for content, names in came.items():
        for is_exact in (True, False):
            for old in left[content]:
                alike = [new for new in names if not is_exact or _last(new) == _last(old)]
                if old not in found and alike:
                    found[old] = alike[0]
                    names.remove(alike[0])
    return found


def note_names(home: Path, renamed: Mapping[str, str], *, key: str) -> None:
    """Say in the logs of an index or a collection that videos have other names now; of one key only once."""
    for name in (f"{CURATION_NAME}/{DECISIONS_NAME}", REJECTED_NAME, ACTIONS_NAME):
        path = home / name
        if path.is_file() and not is_noted(path, key):
            with appending_json(path) as write:
                write({RENAMED: dict(renamed), "key": key})


def is_noted(path: Path, key: str) -> bool:
    """Whether a whole line of a log has the key of a change of names."""
    return any(key in line for line in whole_lines(path))


def names_in(said: object) -> dict[str, str] | None:
    """The new name of each video that a line is about, if it is such a line; an error if that is damaged."""
    if not isinstance(said, dict) or RENAMED not in said:
        return None
    names = said[RENAMED]
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise ValueError("It names no videos.")
    return names


def _last(name: str) -> str:
    return PurePosixPath(name).name
