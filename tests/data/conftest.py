"""Small generated videos whose pictures say their own frame number, so that identity can be read off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from provico.data.frames.encode import write_video

_BITS = 10
_CELL = 16


def _numbered(num_frames: int, height: int = 96, width: int = 160, start: int = 0) -> Iterator[Any]:
    """A moving texture with the frame number as black and white cells along the top."""
    rows, columns = np.mgrid[:height, :width]
    for number in range(start, start + num_frames):
        wave = 127 + 100 * np.sin((columns + 3 * number) / 9.0) * np.cos((rows - 2 * number) / 7.0)
        frame = np.stack([wave, 255 - wave, np.roll(wave, 20, 0)], -1).astype(np.uint8)
        for bit in range(_BITS):
            frame[:_CELL, bit * _CELL : (bit + 1) * _CELL] = 255 * (number >> bit & 1)
        yield frame


@pytest.fixture(scope="session")
def numbered() -> Callable[..., Iterator[Any]]:
    """Frames that carry their number."""
    return _numbered


@pytest.fixture(scope="session")
def make_video() -> Callable[..., Path]:
    """Write a numbered video; keyword arguments go to `write_video`."""

    def make(path: Path, num_frames: int = 90, *, start: int = 0, **settings: Any) -> Path:
        write_video(path, _numbered(num_frames, start=start), **settings)
        return path

    return make


@pytest.fixture(scope="session")
def number_of() -> Callable[[NDArray[np.uint8]], int]:
    """Read the number off a picture of any size with the layout of `numbered`."""

    def read(frame: NDArray[np.uint8]) -> int:
        cell = frame.shape[1] / 160 * _CELL
        middle = round(cell / 2)
        return sum(int(frame[middle, round(bit * cell) + middle].mean() > 127) << bit for bit in range(_BITS))

    return read
