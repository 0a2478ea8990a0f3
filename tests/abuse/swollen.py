"""Small files that would take gigabytes to decode, hours, or more decoders than there can be."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from provico.data.frames.encode import write_video


def boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The boxes of an MP4 file, or of the content of one: their names, and all of their bytes."""
    while data:
        size, name = struct.unpack_from(">I4s", data)
        yield name, data[:size]
        data = data[size:]


def with_box(data: bytes, path: Sequence[bytes], change: Callable[[bytes], bytes]) -> bytes:
    """The file with one of its boxes changed, and the sizes of those around it."""
    parts = []
    for name, whole in boxes(data):
        part = whole
        if name == path[0]:
            part = change(whole) if len(path) == 1 else whole[:8] + with_box(whole[8:], path[1:], change)
            if len(path) > 1:
                part = struct.pack(">I4s", len(part), name) + part[8:]
        parts.append(part)
    return b"".join(parts)


def write_many_streams(path: Path, number: int) -> None:
    """One video that is announced so many times."""
    write_video(path, np.zeros((4, 48, 64, 3), np.uint8), faststart=False)
    path.write_bytes(with_box(path.read_bytes(), [b"moov", b"trak"], lambda track: number * track))


def write_many_references(path: Path, width: int, height: int, *, num_frames: int = 24) -> None:
    """Each picture refers to sixteen others."""
    write_flat(
        path,
        width,
        height,
        num_frames,
        options={"preset": "ultrafast", "crf": "51", "refs": "16", "level": "6.2"},
    )


def write_line(path: Path) -> None:
    """A line of pixels: scaled to a usual height, it is a thousand times as large."""
    write_flat(path, 32768, 2, 20, codec="gif", pixel_format="rgb8")


def write_growing(path: Path, width: int, height: int) -> None:
    """Pictures that are small at first: an elementary stream of H.264, and another one after it."""
    parts = []
    for size in ((64, 48), (width, height)):
        write_flat(path, *size, 12, options={"preset": "ultrafast"})
        parts.append(path.read_bytes())
    path.write_bytes(b"".join(parts))


def write_slow(path: Path, seconds: int, num_frames: int) -> None:
    """A video in which little happens for very long."""
    frames = np.random.default_rng(0).integers(0, 255, (num_frames, 48, 64, 3), np.uint8)
    times = [seconds * 1000 // num_frames * number for number in range(num_frames)]
    write_video(path, frames, pts=times, time_base=Fraction(1, 1000))


def write_flat(
    path: Path,
    width: int,
    height: int,
    num_frames: int,
    *,
    codec: str = "libx264",
    pixel_format: str = "yuv420p",
    options: dict[str, str] | None = None,
) -> None:
    """Pictures of one grey each: as large as one likes, in a few bytes."""
    with av.open(str(path), "w") as out:
        stream = out.add_stream(codec, rate=25, width=width, height=height)
        stream.pix_fmt = pixel_format
        stream.options = options or {}
        frame = av.VideoFrame(width, height, pixel_format)
        for number in range(num_frames):
            for plane in frame.planes:
                plane.update(bytes([7 * number % 256]) * plane.buffer_size)
            frame.pts = number
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
