"""FRAMES -> VIDEO FILE: the one place that writes video.

The demo set, the frame cache and the tests all write through `write_video`. The same frames and
settings give the same bytes with the same FFmpeg: one encoder thread, no dates, no random
identifiers. A file appears under its name only when it is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import count
from pathlib import Path

import av
import numpy as np
from av.codec.codec import UnknownCodecError
from av.codec.context import Flags
from numpy.typing import NDArray

from provico.errors import ConfigError
from provico.files import replacing

_RATE_FACTOR_ENCODERS = {"libx264", "libx265", "libvpx-vp9", "libsvtav1"}


def write_video(
    path: str | Path,
    frames: Iterable[NDArray[np.uint8]],
    *,
    fps: int | Fraction = 25,
    codec: str = "libx264",
    quality: int = 23,
    gop_size: int = 250,
    max_b_frames: int = 0,
    pixel_format: str = "yuv420p",
    pts: Sequence[int] | None = None,
    time_base: Fraction | None = None,
    rotation: int = 0,
    faststart: bool = True,
    encoder_options: Mapping[str, str] | None = None,
) -> int:
    """Encode RGB frames (height, width, 3) into `path`; return how many were written.

    The suffix of `path` chooses the container. Frames are taken one at a time, so a generator keeps
    memory small.

    Args:
        path: where the file will appear; an existing one is replaced.
        frames: uint8 arrays, all of one shape.
        fps: nominal frame rate.
        codec: FFmpeg's encoder name, such as "libx264" or "mpeg4".
        quality: constant rate factor for H.264 and newer codecs, constant quantiser for older ones; lower is
            better.
        gop_size: largest distance between keyframes; x264 may place more of them at scene cuts.
        max_b_frames: most B-frames in a row.
        pixel_format: how the encoder stores the picture.
        pts: one increasing time stamp per frame, in units of `time_base`, for a variable frame rate.
        time_base: seconds per tick of `pts`; one frame if not given.
        rotation: degrees counter-clockwise by which a player must turn the picture, as `frame.rotation`
            of PyAV reports it.
        faststart: put the index of an mp4 or mov before its pictures, so that a browser can start at once.
        encoder_options: further options of the encoder, such as {"preset": "veryfast"}.
    """
    path = Path(path)
    container_options = {"fflags": "+bitexact"}
    if faststart and path.suffix.lower() in {".mp4", ".mov", ".m4v"}:
        container_options["movflags"] = "+faststart"
    if codec in _RATE_FACTOR_ENCODERS:
        options = {"crf": str(quality)}
    else:
        # A global quality would need it on every frame too, which PyAV cannot set; a range of one does it.
        options = {"qmin": str(quality), "qmax": str(quality)}
    if codec == "libx264" and _has_avx512():
        options["x264-params"] = "asm=avx2"  # with AVX-512 the same frames give other bytes now and then
    options |= encoder_options or {}

    num_written = 0
    with (
        replacing(path) as partial,
        av.open(str(partial), "w", container_options=container_options) as container,
    ):
        try:
            stream = container.add_stream(codec, rate=fps, options=options)
        except UnknownCodecError as error:
            raise ConfigError(f"FFmpeg has no encoder called {codec!r}; use libx264 or mpeg4.") from error
        if not isinstance(stream, av.VideoStream):
            raise ConfigError(f"{codec!r} does not encode pictures; use libx264 or mpeg4.")
        stream.codec_context.flags |= Flags.bitexact
        stream.pix_fmt = pixel_format
        stream.codec_context.gop_size = gop_size
        stream.codec_context.max_b_frames = max_b_frames
        stream.codec_context.thread_count = 1  # x264's output depends on its number of threads
        stream.codec_context.time_base = time_base or 1 / Fraction(fps)
        if rotation:
            stream.set_display_rotation(rotation)

        stamps: Iterator[int] = iter(pts) if pts is not None else count()
        for array in frames:
            if num_written == 0:
                stream.height, stream.width = array.shape[:2]
                _open_encoder(stream)
            elif array.shape[:2] != (stream.height, stream.width):
                raise ValueError(
                    f"Frame {num_written} is {array.shape[0]} x {array.shape[1]}, but the first one was "
                    f"{stream.height} x {stream.width}; a video has one size."
                )
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(array), format="rgb24")
            stamp = next(stamps, None)
            if stamp is None:
                raise ValueError(f"There are more frames than the {num_written} time stamps in pts.")
            frame.pts = stamp
            frame.time_base = stream.codec_context.time_base
            container.mux(stream.encode(frame))
            num_written += 1
        if num_written == 0:
            raise ValueError(f"{path} was given no frames; a video needs at least one.")
        container.mux(stream.encode(None))
    return num_written


@cache
def _has_avx512() -> bool:
    try:
        return "avx512f" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:  # no Linux
        return False


def _open_encoder(stream: av.VideoStream) -> None:
    try:
        stream.codec_context.open(strict=False)
    except av.FFmpegError as error:
        raise ConfigError(
            f"The encoder {stream.codec_context.name} refuses frames of {stream.height} x {stream.width} as "
            f"{stream.pix_fmt} ({error.strerror}). Most pixel formats need an even height and width."
        ) from error
