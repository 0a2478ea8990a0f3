"""The output of `provico` without a command: commands that suit the current folder."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from provico.data.layouts.video_files import is_video_name

_ENTRIES_LOOKED_AT = 500
"""At most this many entries of a folder; one video is enough to suggest a command."""


def next_steps(folder: Path) -> str:
    """A few commands to run next, which can be typed as printed."""
    inside = [folder, *(Path(entry) for entry in _entries(folder) if entry.is_dir())]
    steps = [
        step
        for place in inside
        for step in _steps_of(place, os.path.relpath(place, folder))
        if not place.name.startswith(".")
    ]
    if not steps:
        steps = [
            ("provico open FOLDER", "look at a folder of videos: map, duplicates, search"),
            ("provico demo", "see everything on an embedded set of videos, in a few minutes"),
        ]
    width = max(len(command) for command, _ in steps) + 3
    return "\n".join(
        [
            "ProViCo finds similar videos, duplicates and junk, and says how sure it is.",
            "",
            "Try next:",
            *(f"  {command:<{width}}{why}" for command, why in steps[:6]),
            "",
            "provico --help lists all commands; provico doctor checks this machine.",
        ]
    )


def _steps_of(folder: Path, name: str) -> Iterator[tuple[str, str]]:
    quoted = shlex.quote(name)
    if (folder / "index.json").is_file():
        yield f"provico open {quoted}", "look at this index on a page"
        yield f"provico search {quoted} QUERY", "find videos like one of it, or like a file"
    elif (folder / "encoder").is_dir() and (folder / "metrics.jsonl").is_file():
        yield f"provico info {quoted}", "what this encoder has learnt"
        yield f"provico index VIDEOS --checkpoint {quoted}", "make videos searchable with it"
    elif number := sum(is_video_name(entry.name) for entry in _entries(folder)):
        found = f"{number:,}{'+' if number >= _ENTRIES_LOOKED_AT else ''} video{'s' if number > 1 else ''}"
        yield f"provico open {quoted}", f"see what is in its {found}, on a page"


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from sorted(itertools.islice(entries, _ENTRIES_LOOKED_AT), key=lambda entry: entry.name)
    except OSError:  # the folder cannot be read
        return
