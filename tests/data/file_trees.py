"""Small trees of empty files and of lists: all that a catalog looks at."""

from __future__ import annotations

from pathlib import Path

from provico.data.catalog import Catalog


def make_files(root: Path, *names: str) -> Path:
    """Empty files below a folder, which is given back."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def write(path: Path, *lines: str, end: str = "\n", encoding: str = "utf-8") -> Path:
    """A text file of these lines, whose path is given back."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + end for line in lines).encode(encoding))
    return path


def ids(catalog: Catalog) -> list[str]:
    return [video.id for video in catalog]
