"""Which folders are indexes and collections; told from their files, without opening any of them."""

from __future__ import annotations

import json
from pathlib import Path

SETTINGS_NAME = "index.json"
"""What every index has."""
COLLECTION_NAME = "collection.json"
"""What `provico open` writes down of a collection, whose indexes lie beside that file."""
HIDDEN_NAME = ".provico"
"""The folder of a collection, in the folder of its videos."""


def current_index(path: Path) -> Path | None:
    """The index that a path means: itself, or the current one of a collection or of a folder of videos."""
    if (path / SETTINGS_NAME).is_file():
        return path
    for folder in (path, path / HIDDEN_NAME):
        try:
            current = json.loads((folder / COLLECTION_NAME).read_text(encoding="utf-8"))["current"]
            found = folder / str(current)
        except (OSError, KeyError, TypeError, ValueError):
            continue
        # A name of a folder, not a way out of it.
        if isinstance(current, str) and found.parent == folder and (found / SETTINGS_NAME).is_file():
            return found
    return None


def home_of(index: Path) -> Path:
    """Where proposals, duplicates and decisions are kept: with the index, or with its collection.

    A collection keeps them when another index takes the place of this one.
    """
    parent = index.absolute().parent
    return parent if (parent / COLLECTION_NAME).is_file() else index
