"""Files that are replaced as a whole: a reader finds what was there or what is new, never half of it."""

from __future__ import annotations

import csv
import hashlib
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


WHOLE_UP_TO = 2**24
"""Files of up to so many bytes (16 MB) are read whole."""
NUM_BLOCKS, BLOCK_BYTES = 16, 2**20
"""Of larger ones the size and so many blocks, spread evenly from the first to the last byte."""


def content_hash(path: Path) -> str:
    """BLAKE2b of a file; of a large one, of its size and some blocks.

    Two large files of one size that differ only between the blocks are taken for one. No encoder writes such
    a pair, but a bit that flipped on a disk goes unnoticed.
    """
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        size = path.stat().st_size
        if size <= WHOLE_UP_TO:
            digest.update(file.read())
        else:
            digest.update(f"{size} ".encode())
            for number in range(NUM_BLOCKS):
                file.seek(number * (size - BLOCK_BYTES) // (NUM_BLOCKS - 1))
                digest.update(file.read(BLOCK_BYTES))
    return digest.hexdigest()
