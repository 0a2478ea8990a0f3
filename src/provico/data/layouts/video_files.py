"""Finding the video files in a folder.

The only place that knows the suffixes and walks folders. Nothing is opened: whether a file really holds a
video is for the decoder to say, and `provico scan` asks it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from provico.errors import CatalogError

VIDEO_SUFFIXES = frozenset(
    {
        *(".mp4", ".m4v", ".mov", ".qt", ".f4v", ".3gp", ".3g2"),
        *(".avi", ".divx", ".wmv", ".asf", ".flv", ".rm", ".rmvb"),
        *(".mkv", ".webm", ".ogv", ".ogm"),
        *(".mpg", ".mpeg", ".mpe", ".m2v", ".ps", ".vob", ".ts", ".mts", ".m2ts"),
        *(".gif", ".mjpeg", ".dv", ".mxf", ".y4m"),
    }
)

PICTURE_FORMATS = {
    ".png": "png_pipe",
    ".jpg": "jpeg_pipe",
    ".jpeg": "jpeg_pipe",
    ".webp": "webp_pipe",
    ".bmp": "bmp_pipe",
}
"""Pictures that can be searched by, and what FFmpeg calls their formats; no folder is searched for them."""


def is_picture_name(name: str) -> bool:
    """Whether a file of this name is taken for a single picture."""
    return PurePosixPath(name).suffix.lower() in PICTURE_FORMATS


def is_video_name(name: str) -> bool:
    """Whether a file of this name is taken for a video, whatever the case of its suffix."""
    return PurePosixPath(name).suffix.lower() in VIDEO_SUFFIXES


@dataclass(frozen=True)
class FoundVideos:
    """What a walk of `root` met; all names are posix paths relative to it, sorted."""

    root: Path
    videos: tuple[str, ...]
    dangling: tuple[str, ...]
    """Names that look like videos but are links to nothing, or no regular files."""
    num_other_files: Counter[str]
    """Files that are not videos, counted by suffix: what to tell a user whose folder holds none."""


def find_videos(root: Path) -> FoundVideos:
    """Every video under a folder, at any depth; hidden files and folders are left out.

    Links to folders are followed, but each real folder is read only once, so that loops end and no video is
    met twice. They wait until all real folders are read: a folder keeps its own name, not that of a link.
    """
    videos: list[str] = []
    dangling: list[str] = []
    others: Counter[str] = Counter()
    seen: set[tuple[int, int]] = set()
    folders: list[Path] = [root]
    links: list[Path] = []
    while folders or links:
        folder = folders.pop() if folders else links.pop()
        for entry in _entries(folder, seen):
            if entry.name.startswith("."):
                continue
            path = Path(entry.path)
            is_link = entry.is_symlink()
            file = path if is_link else entry  # the entry of a link to itself raises, its path does not
            if file.is_dir():
                (links if is_link else folders).append(path)
            elif is_video_name(entry.name):
                (videos if file.is_file() else dangling).append(path.relative_to(root).as_posix())
            else:
                others[path.suffix.lower() or "no suffix"] += 1
    _refuse_undecodable(root, videos + dangling)
    return FoundVideos(root, tuple(sorted(videos)), tuple(sorted(dangling)), others)


def _entries(folder: Path, seen: set[tuple[int, int]]) -> Iterable[os.DirEntry[str]]:
    """The entries of a folder in reverse order (they are popped from the end), or none if it was seen."""
    try:
        status = folder.stat()
        if (status.st_dev, status.st_ino) in seen:
            return ()
        seen.add((status.st_dev, status.st_ino))
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name, reverse=True)
    except OSError as error:
        raise CatalogError(
            f"The folder {folder} cannot be listed ({error.strerror}). "
            "Change its permissions, or move it out of the data."
        ) from error


def _refuse_undecodable(root: Path, names: list[str]) -> None:
    """A name that is not UTF-8 can be opened, but not written into any list, manifest or index."""
    bad = [name for name in names if any("\ud800" <= letter <= "\udfff" for letter in name)]
    if bad:
        shown = ", ".join(str(os.fsencode(name)) for name in bad[:3])
        raise CatalogError(
            f"{len(bad)} of {len(names)} videos in {root} have names that are not UTF-8, such as {shown}. "
            "Rename them: a manifest could not hold such a name."
        )
