"""Files that are replaced as a whole: a reader finds what was there or what is new, never half of it."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO


def replace_text(path: Path, text: str) -> None:
    """Let a file hold this text."""
    with _replacing(path) as file:
        file.write(text)


def replace_rows(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Let a csv file hold these columns of the rows, below a line with their names."""
    with _replacing(path) as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


@contextmanager
def _replacing(path: Path) -> Iterator[TextIO]:
    """A file to write to, which takes the place of `path` unless there is an error."""
    # Of its own name: two processes may write the same file at once.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.partial")
    # File names need not be text; this is how Python itself writes such names.
    with unfinished.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        yield file
    unfinished.replace(path)
