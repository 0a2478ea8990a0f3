"""What is in a file, in a few letters: a file that was moved, renamed or touched is known again by it."""

from __future__ import annotations

import hashlib
from pathlib import Path

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
