"""Recognises indexes and collections by the names of their files, without opening any."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from urllib.parse import urlsplit

SETTINGS_NAME = "index.json"
"""The settings file of every index."""
COLLECTION_NAME = "collection.json"
"""The file that `provico open` writes for a collection; its indexes lie beside it."""
HIDDEN_NAME = ".provico"
"""The folder of a collection, in the folder of its videos."""
DECISIONS_NAME, REJECTED_NAME, ACTIONS_NAME = "decisions.jsonl", "not_duplicates.jsonl", "actions.jsonl"
"""What people decided, and where they did something with videos: lines of JSON in the home of an index."""
CURATION_NAME = "curation"

SERVERS = ("postgresql", "postgres")
"""Schemes of the addresses of databases that hold the rows of an index."""


def current_index(path: Path) -> Path | None:
    """The index at a path: the path itself, or the current index of a collection or of a folder of videos."""
    if (path / SETTINGS_NAME).is_file():
        return path
    for folder in (path, path / HIDDEN_NAME):
        try:
            current = json.loads((folder / COLLECTION_NAME).read_text(encoding="utf-8"))["current"]
            found = folder / str(current)
        except (OSError, KeyError, TypeError, ValueError):
            continue
        # Only the name of a subfolder: a path could lead out of the folder.
        if isinstance(current, str) and found.parent == folder and (found / SETTINGS_NAME).is_file():
            return found
    return None


def home_of(index: Path) -> Path:
    """The folder for proposals, duplicates and decisions: the index, or its collection.

    In a collection they are kept when another index replaces this one.
    """
    parent = index.absolute().parent
    return parent if (parent / COLLECTION_NAME).is_file() else index


def parts_among(words: Sequence[str]) -> list[str]:
    """Of the words after the first index on a command line, those that are indexes, too, and not queries.

    An id may look like anything but a query is never a folder; one that has lost its disk is still a folder.
    """
    return list(takewhile(lambda word: is_address(word) or Path(word).is_dir(), words))


def is_address(name: str) -> bool:
    """Whether this is a place on a server, and no folder."""
    try:
        return urlsplit(name).scheme in SERVERS
    except ValueError:
        return False
