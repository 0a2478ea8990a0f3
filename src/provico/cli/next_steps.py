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
_MOST_STEPS = 6


def next_steps(folder: Path) -> str:
    """A few commands to run next, which can be typed as printed."""
    inside = [Path(entry) for entry in _entries(folder) if entry.is_dir() and entry.name[0] != "."]
    found = itertools.chain.from_iterable(_steps_of(place, top=folder) for place in (folder, *inside))
    steps = list(itertools.islice(found, _MOST_STEPS))
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
            *(f"  {command:<{width}}{why}" for command, why in steps),
            "",
            "provico --help lists all commands; provico doctor checks this machine.",
        ]
    )


def _steps_of(folder: Path, *, top: Path) -> Iterator[tuple[str, str]]:
    quoted = shlex.quote(os.path.relpath(folder, top))
    if (folder / "index.json").is_file():
        yield f"provico open {quoted}", "look at this index on a page"
        yield f"provico search {quoted} QUERY", "find videos like one of it, or like a file"
    elif (folder / "encoder").is_dir() and (folder / "metrics.jsonl").is_file():
        yield f"provico info {quoted}", "what this encoder has learnt"
        yield f"provico index VIDEOS --checkpoint {quoted}", "make videos searchable with it"
    elif videos := _videos_in(folder, deep=folder != top):
        yield f"provico open {quoted}", f"see what is in its {videos}, on a page"


def _videos_in(folder: Path, *, deep: bool) -> str:
    """How many videos are in a folder; with `deep`, also in its subfolders, such as one for each class."""
    number, num_entries, folders = 0, 0, [folder]
    for place in folders:  # grows
        for entry in itertools.islice(_entries(place), _ENTRIES_LOOKED_AT - num_entries):
            num_entries += 1
            number += is_video_name(entry.name)
            if deep and entry.name[0] != "." and entry.is_dir(follow_symlinks=False):
                folders.append(Path(entry))
    more = "+" if num_entries >= _ENTRIES_LOOKED_AT else ""
    return f"{number:,}{more} video{'s' if number > 1 else ''}" if number else ""


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from sorted(itertools.islice(entries, _ENTRIES_LOOKED_AT), key=lambda entry: entry.name)
    except OSError:  # the folder cannot be read
        return
