"""Writing a part of a video to a file, exact to the frame.

If the part begins at a keyframe and ends before one, its packets are copied: nothing is re-encoded, and every
frame is unchanged. The frames of the copy are compared with those of the index to make sure. Otherwise, and
if that fails, the frames are decoded and re-encoded as high-quality H.264. Audio is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from provico.data.frames.encode import write_video
from provico.data.frames.frame_index import FrameIndex
from provico.data.frames.opening import open_stream
from provico.data.frames.streaming import read_in_order
from provico.data.frames.video import index_video
from provico.defaults import TIMEOUT_SECONDS
from provico.errors import ConfigError, OutputExistsError, VideoError
from provico.files import replacing

QUALITY = 16
"""Rate factor for re-encoding: hardly distinguishable from the source."""
SUFFIXES = (".mp4", ".mkv", ".mov")
_COPIED = {"h264", "hevc", "mpeg4", "vp9", "av1"}
_ROUNDING = 1e-4
_EVEN_SECONDS = 0.002
"""Frames whose times differ from a constant rate by no more are written at that rate."""


@dataclass(frozen=True)
class Cut:
    """The written part."""

    path: Path
    start_seconds: float
    end_seconds: float
    """From the first frame to the end of the last."""
    num_frames: int
    is_copy: bool
    """Whether packets were copied without re-encoding."""


def cut_video(
    path: Path,
    out: Path,
    start_seconds: float,
    end_seconds: float,
    *,
    index: FrameIndex,
    re_encode: bool = False,
) -> Cut:
    """Write the frames between two times.

    re_encode: do not copy packets, even if that is possible.
    """
    if out.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{out.name} must end in {', '.join(SUFFIXES)}. Choose another --out.")
    if out.exists():
        raise OutputExistsError(f"{out} exists already. Choose another --out, or remove it.")
    # A given time means the frame that begins there, not the one before it.
    inward = min(_ROUNDING, (end_seconds - start_seconds) / 4)
    frames = index.frames_within(start_seconds + inward, end_seconds - inward)
    if not frames:
        raise ConfigError(
            f"{path.name} has no frame between {start_seconds:g} and {end_seconds:g} s; it lasts "
            f"{index.duration_seconds:.2f} s."
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    is_copy = not re_encode and _can_copy(frames, index) and _copied(path, out, frames, index)
    if not is_copy:
        _encoded(path, out, frames, index)
    start = float(index.frame_seconds[frames.start])
    return Cut(out, start, start + index.seconds_of(frames), len(frames), is_copy)


def _can_copy(frames: range, index: FrameIndex) -> bool:
    ends_group = frames.stop == index.num_frames or bool(np.isin(frames.stop, index.keyframes))
    return (
        index.seekable
        and index.facts.codec in _COPIED
        and index.facts.num_errors == 0
        and bool(np.isin(frames.start, index.keyframes))
        and ends_group
    )


def _copied(path: Path, out: Path, frames: range, index: FrameIndex) -> bool:
    """Copy the packets; return False and leave no file if the decoded frames differ."""
    first = int(index.timestamps[frames.start])
    end = None if frames.stop == index.num_frames else int(index.timestamps[frames.stop])
    with replacing(out) as partial:
        source, stream = open_stream(path, TIMEOUT_SECONDS)
        try:
            with av.open(str(partial), "w") as container:
                target = container.add_stream_from_template(stream)
                source.seek(first, stream=stream)
                for packet in source.demux(stream):
                    if packet.pts is None or packet.dts is None or packet.pts < first:
                        continue
                    if end is not None and packet.pts >= end:
                        if packet.is_keyframe:
                            break
                        continue
                    packet.pts, packet.dts = packet.pts - first, packet.dts - first
                    packet.stream = target
                    container.mux(packet)
        except (av.FFmpegError, ValueError):
            partial.unlink(missing_ok=True)
            partial.touch()
        finally:
            source.close()
    try:
        found = index_video(out)
    except VideoError:
        found = None
    if found is not None and np.array_equal(found.signatures, index.signatures[frames.start : frames.stop]):
        return True
    out.unlink()
    return False


def _encoded(path: Path, out: Path, frames: range, index: FrameIndex) -> None:
    seconds = index.frame_seconds[frames.start : frames.stop]
    rate = Fraction(index.facts.frames_per_second).limit_denominator(1001)
    expected = seconds[0] + np.arange(len(seconds)) / float(rate)
    is_even = bool(np.abs(seconds - expected).max() <= _EVEN_SECONDS)
    stamps = np.maximum.accumulate(np.round(1000 * (seconds - seconds[0])).astype(int))
    stamps = stamps + np.arange(len(stamps)) if len(np.unique(stamps)) < len(stamps) else stamps
    write_video(
        out,
        _pictures(path, frames, index),
        fps=rate,
        quality=QUALITY,
        pts=None if is_even else stamps.tolist(),
        time_base=None if is_even else Fraction(1, 1000),
    )


def _pictures(path: Path, frames: range, index: FrameIndex) -> Iterator[NDArray[np.uint8]]:
    """The frames with even sides, which players need."""
    for picture in read_in_order(path, np.array(frames), index=index):
        height, width = picture.shape[0] // 2 * 2, picture.shape[1] // 2 * 2
        yield picture[: max(height, 1), : max(width, 1)]
