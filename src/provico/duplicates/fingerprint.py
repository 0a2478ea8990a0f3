"""A video file as small grey pictures: what copies of one recording share, whatever else was done to them.

Bars of one colour at the borders are cut off, and what is left is squeezed into a square, so letterboxing and
size do not matter. A picture is compared by correlation, so brightness and contrast do not matter either.
"""

from __future__ import annotations

import math
import os
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO
from weakref import finalize

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from provico.data.frames.bars import inside_bars
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
LONG_WAVES = 72
"""Coordinates by which most pairs are dismissed."""
LOOKS_PER_SECOND = 5
MAX_LOOKS = 512
"""Pictures among which these are looked for."""
BLANK_STD = 5.0
"""A picture whose grey values differ by less shows nothing: black, white, a fade."""
_FLOOR = 2.0  # grey levels of noise, which must not look like a match

CELL_SECONDS = 0.1
MAX_CELLS = 1024
"""Of longer videos the cells are longer."""
HALF_STEP = 0.2
"""Seconds before and after a moment, between which it is seen what changes."""
MOTION_FLOOR = 1.5
"""Grey levels of noise in what changes."""

KEPT_CELLS = 4
"""Parts of a picture of which they are kept."""

Array = NDArray[np.float32]
Cells = tuple[Array, Array]
"""For each cell of time a unit vector of its picture, and one of what changes."""
Box = tuple[int, int, int, int]
"""Top, left, bottom, right in small pixels."""
WHOLE: Box = (0, 0, SIDE, SIDE)


CROP_SIDES = (round(0.9 * SIDE), round(0.8 * SIDE), round(0.7 * SIDE))


def _offsets(side: int) -> tuple[int, int, int]:
    return 0, (SIDE - side) // 2, SIDE - side


CROPS = [WHOLE] + [
    (top, left, top + side, left + side)
    for side in CROP_SIDES
    for top in _offsets(side)
    for left in _offsets(side)
]
"""The whole picture, and smaller ones in the middle, at the edges and in the corners."""


@dataclass(frozen=True, eq=False)
class InScenes:
    """Some pictures of a video, which are looked for among many pictures of another one."""

    keys: Array
    """ "crops*keys coordinates": cropped in every way, as spectra of unit length."""
    looks: Array
    """ "2 looks coordinates": whole, as they are and mirrored."""

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return int(self.keys.shape[1])


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
    _cells: dict[Box, Cells] = field(default_factory=dict, init=False)

    @cached_property
    def is_blank(self) -> NDArray[np.bool_]:
        """Which pictures show nothing."""
        rows = centred(self.pictures.reshape(len(self.pictures), -1).astype(np.float32))
        return np.asarray(np.einsum("ij,ij->i", rows, rows) < BLANK_STD**2 * rows.shape[1])

    @cached_property
    def is_all_blank(self) -> bool:
        """Whether the whole video shows nothing."""
        return bool(self.is_blank.all())

    def frames_at(self, seconds: NDArray[np.float64]) -> NDArray[np.int64]:
        """The number of the picture that is shown at each time."""
        frame_numbers = np.searchsorted(self.seconds, seconds + 1e-6, side="right") - 1
        return np.clip(frame_numbers, 0, len(self.seconds) - 1)

    @cached_property
    def in_scenes(self) -> InScenes:
        """By what its scene is compared with that of another video."""
        keys = self._shown(NUM_KEYS)
        crops = np.concatenate([spectra(keys, side) for side in (SIDE, *CROP_SIDES)])
        looks = scaled(spectra(self._shown(self._num_looks))[0])
        return InScenes(scaled(crops.reshape(-1, GRID * GRID)), np.stack([looks, looks * _MIRRORING]))

    @cached_property
    def bounds(self) -> InScenes:
        """Fewer coordinates, whose products are never less: the last is the length of what is left out."""
        return InScenes(_bounded(self.in_scenes.keys), _bounded(self.in_scenes.looks))

    @property
    def _num_looks(self) -> int:
        return min(max(round(self.duration_seconds * LOOKS_PER_SECOND), NUM_KEYS), MAX_LOOKS)

    @property
    def cell_seconds(self) -> float:
        """How long a cell of time is."""
        return max(CELL_SECONDS, self.duration_seconds / MAX_CELLS)

    def in_cells(self, box: Box) -> Cells:
        """What a part of the picture looks like in each cell of time, and what changes in it."""
        if box not in self._cells:
            while len(self._cells) >= KEPT_CELLS:
                del self._cells[next(iter(self._cells))]
            self._cells[box] = _in_cells(self, box)
        return self._cells[box]

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
        """How much memory it takes, at most."""
        num_cells = math.ceil(self.duration_seconds / self.cell_seconds)
        rows = len(CROPS) * NUM_KEYS + 2 * self._num_looks + 2 * KEPT_CELLS * num_cells
        return self.pictures.nbytes + 4 * (GRID * GRID + LONG_WAVES + 1) * rows


def read_fingerprint(path: Path, library: Library) -> Fingerprint:
    """Decode a file once, small."""
    index = library.index(path)
    if index.num_frames > MAX_FRAMES:
        frame_numbers = np.linspace(0, index.num_frames - 1, MAX_FRAMES).round().astype(np.int64)
    else:
        frame_numbers = np.arange(index.num_frames)
    grey = read_frames(path, frame_numbers, index=index, short_side=SIDE, grey=True)
    rows, columns = inside_bars(grey)
    inside = grey[:, rows, columns]
    return Fingerprint(
        pictures=_squeezed(inside),
        seconds=index.frame_seconds[frame_numbers],
        duration_seconds=index.duration_seconds,
        num_pixels=index.facts.height * index.facts.width,
        frames_hash=index.frames_hash,
        bars=1 - inside[0].size / grey[0].size,
    )


class FingerprintCache:
    """Fingerprints by number, each read once; what does not fit into memory waits in a temporary file."""

    def __init__(self, read: Callable[[int], Fingerprint], *, max_bytes: int = 2**28) -> None:
        self._read, self._max_bytes = read, max_bytes
        self._kept: OrderedDict[int, Fingerprint] = OrderedDict()
        self._num_bytes = 0
        self._file: IO[bytes] | None = None
        self._waiting: dict[int, tuple[int, Fingerprint]] = {}
        """Where the pictures of a video begin in the file, and the rest of it."""

    def __call__(self, number: int) -> Fingerprint:
        """The fingerprint of this video."""
        if number not in self._kept:
            found = self._fetch(number) if number in self._waiting else self._read(number)
            self._kept[number] = found
            self._num_bytes += found.num_bytes
            while self._num_bytes > self._max_bytes and len(self._kept) > 2:
                oldest, video = self._kept.popitem(last=False)
                self._num_bytes -= video.num_bytes
                with suppress(OSError):  # the disk is full: it will be decoded again
                    self._put_aside(oldest, video)
        self._kept.move_to_end(number)
        return self._kept[number]

    def _put_aside(self, number: int, video: Fingerprint) -> None:
        if number in self._waiting:
            return
        if self._file is None:
            self._file = TemporaryFile()  # noqa: SIM115
            finalize(self, self._file.close)
        start = self._file.seek(0, os.SEEK_END)
        np.save(self._file, video.pictures, allow_pickle=False)
        self._file.flush()
        self._waiting[number] = start, replace(video, pictures=video.pictures[:0].copy())

    def _fetch(self, number: int) -> Fingerprint:
        assert self._file is not None
        start, rest = self._waiting[number]
        self._file.seek(start)
        return replace(rest, pictures=np.load(self._file, allow_pickle=False))


def small(pictures: NDArray[np.uint8] | Array, box: Box = WHOLE, *, side: int = GRID) -> Array:
    """ "pictures side*side": a part of pictures, smaller; columns come before rows."""
    top, left, bottom, right = box
    height, width = pictures.shape[1:]
    # Two products for all pictures: a resize is one matrix for the rows and one for the columns.
    across = np.asarray(pictures, np.float32).reshape(-1, width) @ _resize(left, right, width, side)
    turned = np.ascontiguousarray(across.reshape(-1, height, side).transpose(0, 2, 1))
    down: Array = turned.reshape(-1, height) @ _resize(top, bottom, height, side)
    return down.reshape(len(pictures), side * side)


def _waves() -> tuple[Array, NDArray[np.int64], Array]:
    """The cosine transform of GRID numbers; of its squares, the order by frequency, and mirroring."""
    frequency = np.arange(GRID)
    waves = np.cos(np.pi * (frequency + 0.5)[:, None] * frequency / GRID) * np.sqrt(2 / GRID)
    waves[:, 0] /= np.sqrt(2)
    across, down = (places.ravel() for places in np.indices((GRID, GRID)))  # columns come before rows
    order = np.argsort(across**2 + down**2, kind="stable")
    return waves.astype(np.float32), order, (1 - 2 * (across[order] % 2)).astype(np.float32)


_WAVES, _BY_FREQUENCY, _MIRRORING = _waves()


def spectra(pictures: NDArray[np.uint8], side: int = SIDE) -> Array:
    """ "crops pictures GRID*GRID": crops of a side, made smaller, as cosine waves, the longest first.

    Products of pictures are products of these, of which the first few hold most. The wave of the mean is left
    out. To make a picture smaller and to find its waves is one matrix for its rows and one for its columns;
    those of all offsets are beside each other.
    """
    offsets = (0,) if side == SIDE else _offsets(side)
    waves = np.concatenate([_resize(start, start + side, SIDE, GRID) @ _WAVES for start in offsets], axis=1)
    across = pictures.reshape(-1, SIDE).astype(np.float32) @ waves
    turned = np.ascontiguousarray(across.reshape(-1, SIDE, waves.shape[1]).transpose(0, 2, 1))
    both = (turned.reshape(-1, SIDE) @ waves).reshape(len(pictures), len(offsets), GRID, len(offsets), GRID)
    crops = both.transpose(3, 1, 0, 2, 4).reshape(-1, len(pictures), GRID * GRID)
    found = np.asarray(crops[..., _BY_FREQUENCY], np.float32)
    found[..., 0] = 0
    return found


def _bounded(rows: Array) -> Array:
    rest = np.linalg.norm(rows[..., LONG_WAVES:], axis=-1, keepdims=True)
    return np.concatenate([rows[..., :LONG_WAVES], rest], axis=-1)


@lru_cache(maxsize=4096)
def _resize(start: int, stop: int, length: int, side: int) -> Array:
    """ "length side": what makes `side` pixels of those from start to stop, as torch does with antialias."""
    kept = torch.eye(stop - start)[None, None]
    found = np.zeros((length, side), np.float32)
    resized = F.interpolate(kept, (side, stop - start), mode="bilinear", antialias=True)
    found[start:stop] = resized[0, 0].numpy().T
    return found


def _in_cells(video: Fingerprint, box: Box) -> Cells:
    """What a part of the picture looks like in each cell of time, and what changes in it."""
    times = np.arange(0, video.duration_seconds, video.cell_seconds)
    shifts = np.array([[0.0], [-HALF_STEP], [HALF_STEP]])
    # Most pictures are wanted three times.
    frame_numbers, places = np.unique(video.frames_at(times + shifts), return_inverse=True)
    now, before, after = small(video.pictures[frame_numbers], box)[places.reshape(3, -1)]
    return unit_vectors(now), unit_vectors(after - before, floor=MOTION_FLOOR)


def unit_vectors(rows: Array, *, floor: float = _FLOOR) -> Array:
    """Rows without their mean and of length one; their products are correlations."""
    return scaled(centred(rows), floor=floor)


def scaled(rows: Array, *, floor: float = _FLOOR) -> Array:
    """Rows of length one, or shorter where there is little but noise in them."""
    squares = np.einsum("ij,ij->i", rows, rows) + floor**2 * rows.shape[1]
    found: Array = rows / np.sqrt(squares)[:, None]
    return found


def centred(rows: Array) -> Array:
    """Rows without their mean."""
    found: Array = rows - rows.mean(axis=1, keepdims=True)
    return found


def _squeezed(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    frames = torch.from_numpy(np.ascontiguousarray(grey)).unsqueeze(1)
    parts = [
        F.interpolate(part.float(), (SIDE, SIDE), mode="bilinear", antialias=True).squeeze(1).round().byte()
        for part in torch.split(frames, 256)
    ]
    return torch.cat(parts).numpy()
