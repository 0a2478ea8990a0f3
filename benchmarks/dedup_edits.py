"""What people do to videos before they publish them again, with what is then known of each copy.

Each edit takes the frames of an original and gives those of the copy; `spans` says which part of which
original lies where in it, so that not only whether but also where a duplicate is found can be checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from provico.data.frames.encode import write_video
from provico.data.frames.video import read_frames
from provico.data.library import Library
from provico.data.transforms import resize

Frames = NDArray[np.uint8]
BLACK_SECONDS = 2.0


@dataclass(frozen=True)
class Original:
    """All frames of a video "time height width 3"."""

    path: Path
    frames: Frames
    fps: Fraction

    @classmethod
    def read(cls, path: Path, library: Library) -> Original:
        """With an even height and width, as encoders want them."""
        index = library.index(path)
        frames = read_frames(path, np.arange(index.num_frames), index=index)
        height, width = (side // 2 * 2 for side in frames.shape[1:3])
        fps = Fraction(index.facts.frames_per_second).limit_denominator(1001)
        return cls(path, frames[:, :height, :width], fps)

    @property
    def seconds(self) -> float:
        """How long it is."""
        return len(self.frames) / float(self.fps)


@dataclass(frozen=True)
class Part:
    """Seconds of an original and where in the copy they are shown."""

    original: int
    """Which of the originals that the edit was given."""
    start: float
    end: float
    copy_start: float
    copy_end: float


@dataclass(frozen=True)
class Copy:
    """What an edit makes."""

    frames: Frames
    parts: tuple[Part, ...]
    quality: int = 23


Edit = Callable[[Sequence[Original]], Copy]
"""Given an original and a second, unrelated one."""


def _whole(frames: Frames, of: Original, *, quality: int = 23) -> Copy:
    return Copy(frames, (Part(0, 0.0, of.seconds, 0.0, of.seconds),), quality)


def _reencode(given: Sequence[Original]) -> Copy:
    return _whole(given[0].frames, given[0], quality=38)


def _resize(given: Sequence[Original]) -> Copy:
    height, width = (side // 4 * 2 for side in given[0].frames.shape[1:3])
    return _whole(resize(given[0].frames, height, width), given[0])


def _letterbox(given: Sequence[Original]) -> Copy:
    bar = given[0].frames.shape[1] // 6
    return _whole(np.pad(given[0].frames, ((0, 0), (bar, bar), (0, 0), (0, 0))), given[0])


def _crop(given: Sequence[Original]) -> Copy:
    height, width = given[0].frames.shape[1:3]
    inner_height, inner_width = (round(0.8 * side) // 2 * 2 for side in (height, width))
    top, left = (height - inner_height) // 2, (width - inner_width) // 2
    return _whole(given[0].frames[:, top : top + inner_height, left : left + inner_width], given[0])


def _corner(given: Sequence[Original]) -> Copy:
    """A crop that is not in the middle."""
    height, width = (round(0.8 * side) // 2 * 2 for side in given[0].frames.shape[1:3])
    return _whole(given[0].frames[:, :height, :width], given[0])


def _speed(factor: float) -> Edit:
    def edit(given: Sequence[Original]) -> Copy:
        num_frames = len(given[0].frames)
        numbers = np.arange(int(num_frames / factor)) * factor
        frames = given[0].frames[np.minimum(np.round(numbers).astype(int), num_frames - 1)]
        seconds = len(frames) / float(given[0].fps)
        return Copy(frames, (Part(0, 0.0, given[0].seconds, 0.0, seconds),))

    return edit


def _excerpt(given: Sequence[Original]) -> Copy:
    """The middle 40 %, but at least two seconds."""
    num_frames, fps = len(given[0].frames), float(given[0].fps)
    length = min(num_frames, max(round(0.4 * num_frames), round(2 * fps)))
    start = round(0.3 * (num_frames - length) / 0.6)
    frames = given[0].frames[start : start + length]
    return Copy(frames, (Part(0, start / fps, (start + length) / fps, 0.0, length / fps),))


def _concatenate(given: Sequence[Original]) -> Copy:
    first, second = given
    fps = float(first.fps)
    other = resize(second.frames, *first.frames.shape[1:3])
    end, last = len(first.frames) / fps, (len(first.frames) + len(other)) / fps
    parts = (Part(0, 0.0, first.seconds, 0.0, end), Part(1, 0.0, second.seconds, end, last))
    return Copy(np.concatenate([first.frames, other]), parts)


def _flip(given: Sequence[Original]) -> Copy:
    return _whole(given[0].frames[:, :, ::-1], given[0])


def _brighten(given: Sequence[Original]) -> Copy:
    bright = np.clip(given[0].frames.astype(np.float32) * 1.3 + 20, 0, 255)
    return _whole(bright.astype(np.uint8), given[0])


def _black_intro(given: Sequence[Original]) -> Copy:
    black = np.zeros((round(BLACK_SECONDS * given[0].fps), *given[0].frames.shape[1:]), np.uint8)
    start, seconds = len(black) / float(given[0].fps), given[0].seconds
    part = Part(0, 0.0, seconds, start, start + seconds)
    return Copy(np.concatenate([black, given[0].frames]), (part,))


EDITS: dict[str, Edit] = {
    "re-encoded": _reencode,
    "half size": _resize,
    "letterbox": _letterbox,
    "centre crop 80 %": _crop,
    "corner crop 80 %": _corner,
    "speed 0.8": _speed(0.8),
    "speed 1.25": _speed(1.25),
    "excerpt": _excerpt,
    "concatenation": _concatenate,
    "mirrored": _flip,
    "brighter": _brighten,
    "black intro": _black_intro,
}


def write_copy(path: Path, copy: Copy, fps: Fraction) -> None:
    write_video(path, copy.frames, fps=fps, quality=copy.quality)
