"""One decoded picture: how to know it again, which way is up, and its pixels as RGB."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import cast

import av
import numpy as np
from av.buffer import Buffer
from av.video.plane import VideoPlane
from av.video.reformatter import Interpolation, VideoReformatter
from numpy.typing import NDArray

from provico.data.frames.frame_index import FrameIndex

_SIGNATURE_ROWS = 24


def resized_shape(height: int, width: int, short_side: int) -> tuple[int, int]:
    """Height and width with the shorter one equal to `short_side` and the aspect kept."""
    scale = short_side / min(height, width)
    return max(short_side, round(height * scale)), max(short_side, round(width * scale))


class Converter:
    """Writes a decoded frame as RGB, or grey, of the wanted size, turned as the file asks."""

    def __init__(self, index: FrameIndex, short_side: int | None, *, grey: bool = False) -> None:
        facts = index.facts
        height, width = facts.height, facts.width
        if short_side is not None:
            height, width = resized_shape(height, width, short_side)
        self.shape: tuple[int, ...] = (height, width) if grey else (height, width, 3)
        self._turns, self._mirrored = facts.quarter_turns, facts.mirrored
        self._decoded_size = (width, height) if self._turns % 2 else (height, width)
        self._reformatter = VideoReformatter()

    def into(self, out: NDArray[np.uint8], frame: av.VideoFrame) -> None:
        """Write the frame to `out`, which has the `shape` of this converter."""
        height, width = self._decoded_size
        if len(self.shape) == 2:
            (plane,) = scaled_planes(self._reformatter, frame, width, height, "gray")
            out[:] = self._turned(plane)
            return
        if (frame.height, frame.width) == (height, width):
            (rows,) = scaled_planes(self._reformatter, frame, width, height, "rgb24")
            out[:] = self._turned(rows.reshape(height, width, 3))
            return
        # When it scales, FFmpeg writes planes in half the time of interleaved RGB; and only planes are right
        # for every width: where that is even, interleaved RGB comes out two levels too dark.
        planes = scaled_planes(self._reformatter, frame, width, height, "gbrp")
        for channel, plane in zip((1, 2, 0), planes, strict=True):
            out[:, :, channel] = self._turned(plane)

    def _turned(self, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        if self._mirrored:
            picture = picture[:, ::-1]
        return np.rot90(picture, self._turns) if self._turns else picture


def scaled_planes(
    reformatter: VideoReformatter, frame: av.VideoFrame, width: int, height: int, pixel_format: str
) -> list[NDArray[np.uint8]]:
    """Views of the planes of the scaled picture; each is valid for as long as the array lives."""
    scaled = reformatter.reformat(
        frame, width, height, format=pixel_format, interpolation=Interpolation.BILINEAR, threads=1
    )
    row_bytes = 3 * width if pixel_format == "rgb24" else width
    return [_rows(plane)[:height, :row_bytes] for plane in scaled.planes]


def signature(frame: av.VideoFrame) -> int:
    """A checksum over some rows of the first plane: tells frames apart at a few microseconds each."""
    plane = frame.planes[0]
    step = max(1, plane.height // _SIGNATURE_ROWS)
    # Bytes beyond the picture's width are padding of no defined value.
    width = min(plane.width, plane.line_size)
    return zlib.crc32(_rows(plane)[step // 2 : plane.height : step, :width].tobytes())


def _rows(plane: VideoPlane) -> NDArray[np.uint8]:
    return np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)


def orientation(frame: av.VideoFrame) -> tuple[int, bool]:
    """Quarter turns counter-clockwise, and whether to mirror left to right before turning.

    A display matrix maps a decoded point (x, y) to (a x + c y, b x + d y), with y pointing down. Only
    multiples of 90 degrees are applied: what else is in a matrix does not change which way is up.
    """
    side_data = cast(Mapping[str, Buffer], frame.side_data)  # its stub knows motion vectors only
    if "DISPLAYMATRIX" not in side_data:
        return 0, False
    a, b, _, c, d = struct.unpack_from("=5i", bytes(side_data["DISPLAYMATRIX"]))
    mirrored = a * d - b * c < 0
    if mirrored:
        a, b = -a, -b  # take the mirror image out; what is left is a pure rotation
    if abs(a) >= abs(b):
        return (0 if a > 0 else 2), mirrored
    return (3 if b > 0 else 1), mirrored
