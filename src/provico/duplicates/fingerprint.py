"""A video file as small grey pictures: what copies of one recording share, whatever else was done to them.

Bars of one colour at the borders are cut off, and what is left is squeezed into a square, so letterboxing and
size do not matter. A picture is compared by correlation, so brightness and contrast do not matter either.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from provico.data.frames.video import read_frames
from provico.data.library import Library

SIDE = 48
"""Pixels of a small picture."""
GRID = 16
"""Pixels of the even smaller pictures by which scenes are compared."""
MAX_FRAMES = 8192
"""Of a longer video, so many frames are taken, evenly spaced."""
NUM_KEYS = 12
"""Pictures of a video by which its scene is compared with that of another one."""
LOOKS_PER_SECOND = 5
MAX_LOOKS = 512
"""Pictures among which these are looked for."""
BLANK_STD = 5.0
"""A picture whose grey values differ by less shows nothing: black, white, a fade."""
_BAR_RANGE = 10.0  # grey levels: what varies less over a row and over time is a bar
_MIN_LEFT = 0.3  # of the picture: more is never cut off
_LOOKED_AT = 64  # frames, to find bars
_FLOOR = 2.0  # grey levels of noise, which must not look like a match

CELL_SECONDS = 0.1
MAX_CELLS = 1024
"""Of longer videos the cells are longer."""
HALF_STEP = 0.2
"""Seconds before and after a moment, between which it is seen what changes."""
MOTION_FLOOR = 1.5
"""Grey levels of noise in what changes."""

Array = NDArray[np.float32]
Cells = tuple[float, Array, Array]
"""How long a cell is, and for each a unit vector of its picture and one of what changes."""
Box = tuple[int, int, int, int]
"""Top, left, bottom, right in small pixels."""
WHOLE: Box = (0, 0, SIDE, SIDE)


def _crops() -> list[Box]:
    """The whole picture, and smaller ones in the middle, at the edges and in the corners."""
    boxes = [WHOLE]
    for side in (round(0.9 * SIDE), round(0.8 * SIDE), round(0.7 * SIDE)):
        offsets = (0, (SIDE - side) // 2, SIDE - side)
        boxes += [(top, left, top + side, left + side) for top in offsets for left in offsets]
    return boxes


CROPS = _crops()


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """The small pictures of one video."""

    pictures: NDArray[np.uint8]
    """ "frames SIDE SIDE", without bars."""
    seconds: NDArray[np.float64]
    """When each is shown."""
    duration_seconds: float
    num_pixels: int
    """Of a frame of the file, to tell which copy is the better one."""
    frames_hash: str
    """Equal for files whose decoded frames are equal."""
    bars: float = 0.0
    """The share of a frame that bars of one colour take, which are cut off."""

    @cached_property
    def is_blank(self) -> NDArray[np.bool_]:
        """Which pictures show nothing."""
        return np.asarray(self.pictures.reshape(len(self.pictures), -1).std(axis=1) < BLANK_STD)

    @cached_property
    def is_all_blank(self) -> bool:
        """Whether the whole video shows nothing."""
        return bool(self.is_blank.all())

    def frames_at(self, seconds: NDArray[np.float64]) -> NDArray[np.int64]:
        """The number of the picture that is shown at each time."""
        frame_numbers = np.searchsorted(self.seconds, seconds + 1e-6, side="right") - 1
        return np.clip(frame_numbers, 0, len(self.seconds) - 1)

    @cached_property
    def scenes(self) -> Array:
        """ "crops keys GRID*GRID": some pictures, each cropped in every way, as unit vectors."""
        keys = self._shown(NUM_KEYS)
        return np.stack([unit_vectors(small(keys, box)) for box in CROPS])

    @cached_property
    def looks(self) -> Array:
        """ "looks GRID*GRID": many more pictures, among which a key of a copy finds its like."""
        num = round(self.duration_seconds * LOOKS_PER_SECOND)
        return unit_vectors(small(self._shown(min(max(num, NUM_KEYS), MAX_LOOKS))))

    @cached_property
    def in_cells(self) -> Cells:
        """What the whole picture looks like in each cell of time, and what changes in it."""
        return in_cells(self, WHOLE)

    def _shown(self, num: int) -> NDArray[np.uint8]:
        """Pictures that show something, evenly spaced."""
        shown = np.flatnonzero(~self.is_blank)
        shown = shown if len(shown) else np.arange(len(self.pictures))
        return self.pictures[shown[np.linspace(0, len(shown) - 1, num).round().astype(np.int64)]]

    @cached_property
    def mirrored(self) -> Fingerprint:
        """The fingerprint of the mirrored video."""
        return replace(self, pictures=self.pictures[:, :, ::-1])

    @property
    def num_bytes(self) -> int:
        """How much memory it takes."""
        return self.pictures.nbytes + 2 * (len(CROPS) * NUM_KEYS + MAX_LOOKS) * GRID * GRID * 4


def read_fingerprint(path: Path, library: Library) -> Fingerprint:
    """Decode a file once, small."""
    index = library.index(path)
    if index.num_frames > MAX_FRAMES:
        frame_numbers = np.linspace(0, index.num_frames - 1, MAX_FRAMES).round().astype(np.int64)
    else:
        frame_numbers = np.arange(index.num_frames)
    rgb = read_frames(path, frame_numbers, index=index, short_side=SIDE)
    grey = rgb[..., 0] // 4 + rgb[..., 1] // 2 + rgb[..., 2] // 4
    inside = _without_bars(grey)
    return Fingerprint(
        pictures=_squeezed(inside),
        seconds=index.frame_seconds[frame_numbers],
        duration_seconds=index.duration_seconds,
        num_pixels=index.facts.height * index.facts.width,
        frames_hash=index.frames_hash,
        bars=1 - inside[0].size / grey[0].size,
    )


class FingerprintCache:
    """Fingerprints by number, as many as fit into some memory; others are read again."""

    def __init__(self, read: Callable[[int], Fingerprint], *, max_bytes: int = 2**29) -> None:
        self._read, self._max_bytes = read, max_bytes
        self._kept: OrderedDict[int, Fingerprint] = OrderedDict()
        self._num_bytes = 0

    def __call__(self, number: int) -> Fingerprint:
        """The fingerprint of this video."""
        if number not in self._kept:
            found = self._read(number)
            self._kept[number] = found
            self._num_bytes += found.num_bytes
            while self._num_bytes > self._max_bytes and len(self._kept) > 2:
                self._num_bytes -= self._kept.popitem(last=False)[1].num_bytes
        self._kept.move_to_end(number)
        return self._kept[number]


def small(pictures: NDArray[np.uint8] | Array, box: Box = WHOLE, *, side: int = GRID) -> Array:
    """ "pictures side*side": a part of pictures, smaller; columns come before rows."""
    top, left, bottom, right = box
    height, width = pictures.shape[1:]
    # Two products for all pictures: a resize is one matrix for the rows and one for the columns.
    across = np.asarray(pictures, np.float32).reshape(-1, width) @ _resize(left, right, width, side)
    turned = np.ascontiguousarray(across.reshape(-1, height, side).transpose(0, 2, 1))
    down: Array = turned.reshape(-1, height) @ _resize(top, bottom, height, side)
    return down.reshape(len(pictures), side * side)


@lru_cache(maxsize=4096)
def _resize(start: int, stop: int, length: int, side: int) -> Array:
    """ "length side": what makes `side` pixels of those from start to stop, as torch does with antialias."""
    kept = torch.eye(stop - start)[None, None]
    found = np.zeros((length, side), np.float32)
    resized = F.interpolate(kept, (side, stop - start), mode="bilinear", antialias=True)
    found[start:stop] = resized[0, 0].numpy().T
    return found


def in_cells(video: Fingerprint, box: Box) -> Cells:
    """What a part of the picture looks like in each cell of time, and what changes in it."""
    step = max(CELL_SECONDS, video.duration_seconds / MAX_CELLS)
    times = np.arange(0, video.duration_seconds, step)
    frame_numbers = [video.frames_at(times + shift) for shift in (0, -HALF_STEP, HALF_STEP)]
    now, before, after = (small(video.pictures[some], box) for some in frame_numbers)
    return step, unit_vectors(now), unit_vectors(after - before, floor=MOTION_FLOOR)


def unit_vectors(rows: Array, *, floor: float = _FLOOR) -> Array:
    """Rows without their mean and of length one, or shorter where there is little but noise in them.

    Their products are correlations.
    """
    centred = rows - rows.mean(axis=1, keepdims=True)
    squares = np.square(centred).sum(axis=1, keepdims=True) + floor**2 * rows.shape[1]
    return np.asarray(centred / np.sqrt(squares), np.float32)


def _without_bars(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    looked_at = grey[:: max(1, len(grey) // _LOOKED_AT)]
    top, bottom = _inside(looked_at.transpose(1, 0, 2))
    left, right = _inside(looked_at.transpose(2, 0, 1))
    return grey[:, top:bottom, left:right]


def _inside(rows: NDArray[np.uint8]) -> tuple[int, int]:
    """From where to where rows are not of one colour, over their length and over time."""
    low, high = np.percentile(rows.reshape(len(rows), -1), [2, 98], axis=1)
    varied = np.flatnonzero(high - low > _BAR_RANGE)
    if not len(varied) or varied[-1] + 1 - varied[0] < _MIN_LEFT * len(rows):
        return 0, len(rows)
    return int(varied[0]), int(varied[-1]) + 1


def _squeezed(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    frames = torch.from_numpy(np.ascontiguousarray(grey)).unsqueeze(1)
    parts = [
        F.interpolate(part.float(), (SIDE, SIDE), mode="bilinear", antialias=True).squeeze(1).round().byte()
        for part in torch.split(frames, 256)
    ]
    return torch.cat(parts).numpy()
