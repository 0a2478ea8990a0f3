"""What people said of videos follows them to their new names, in every file of an index or a collection.

gone.json says what was in videos that were removed from an index: a file that comes back under another
name, after it was in the trash or on a disk that was away, is known again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from provico.files import replace_text
from provico.locations import home_of
from provico.renamed import note_names
from provico.search.judgements import JudgementLog
from provico.search.lots import LotFile

GONE_NAME = "gone.json"
MOST_GONE = 100_000
"""So many are remembered, the last ones."""
Content = tuple[int, str]
"""The size of a file, and its hash."""


def follow(index: Path, renamed: Mapping[str, str]) -> None:
    """Let all that was said of videos hold for what they are called now; on the disk when it returns."""
    if renamed:
        note_names(home_of(index), renamed)
        JudgementLog(index).rename(renamed)
        LotFile(index).rename(renamed)


def read_gone(index: Path) -> dict[str, Content]:
    """What was in the videos that were removed; of none if that cannot be read."""
    try:
        found = json.loads((home_of(index) / GONE_NAME).read_text(encoding="utf-8"))
        return {str(name): (int(num_bytes), str(content)) for name, (num_bytes, content) in found.items()}
    except (OSError, AttributeError, TypeError, ValueError, RecursionError):
        return {}


def write_gone(index: Path, gone: Mapping[str, Content]) -> None:
    """Remember these, in place of those that were remembered."""
    replace_text(home_of(index) / GONE_NAME, json.dumps(dict([*gone.items()][-MOST_GONE:])) + "\n")
