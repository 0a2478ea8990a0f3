"""Frames of a long video in one pass through the file, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from provico.data.frames.frame_index import FrameIndex
from provico.data.frames.picture import Converter, signature
from provico.data.frames.video import Source, by_counting, by_seeking, not_as_indexed, open_source
from provico.defaults import TIMEOUT_SECONDS


def read_in_order(
    path: str | Path,
    parts: NDArray[np.int64],
    *,
    index: FrameIndex,
    short_side: int | None = None,
    scaled: Callable[[NDArray[np.uint8]], NDArray[np.uint8]] = lambda frame: frame,
) -> Iterator[NDArray[np.uint8]]:
    """The frames of each of "parts *frames" as `read_frames` gives them, in one pass through the file.

    Memory is that of one part, however many there are: no part may begin before the one before it.

    scaled: what to keep of each frame "height width 3", at once: frames at their own size may be large.
    """
    wanted = np.unique(parts)
    convert = Converter(index, short_side)
    with open_source(path, TIMEOUT_SECONDS) as source:
        frames = _in_order(source, wanted, index, convert)
        kept: dict[int, NDArray[np.uint8]] = {}
        for part in parts:
            first, last = int(part.min()), int(part.max())
            kept = {number: frame for number, frame in kept.items() if number >= first}
            while not kept or max(kept) < last:
                number, frame = next(frames)
                if number >= first:
                    kept[number] = scaled(frame)
            frames_of_part = np.stack([kept[number] for number in part.ravel().tolist()])
            yield frames_of_part.reshape(*part.shape, *frames_of_part.shape[1:])


def _in_order(
    source: Source, wanted: NDArray[np.int64], index: FrameIndex, convert: Converter
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """The wanted frames with their numbers, one at a time; by counting from where seeking fails."""
    place = 0
    can_seek = index.seekable and index.keyframes.size > 0
    for is_last in (False, True) if can_seek else (True,):
        if is_last and can_seek:
            source.rewind()
        for number, frame in by_counting(source, wanted) if is_last else by_seeking(source, index, wanted):
            if number < wanted[place]:
                continue  # given out before seeking failed
            if number != wanted[place] or signature(frame) != index.signatures[number]:
                break
            rgb = np.empty(convert.shape, np.uint8)
            convert.into(rgb, frame)
            yield number, rgb
            place += 1
            if place == len(wanted):
                return
    raise not_as_indexed(source.path)
