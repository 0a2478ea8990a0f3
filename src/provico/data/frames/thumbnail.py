"""Thumbnails, which are single frames, and previews, which are short videos.

Every browser can play a preview, whatever the codec of the file; it is made on demand.
"""

from __future__ import annotations

import hashlib
from fractions import Fraction
from pathlib import Path

import numpy as np
import simplejpeg
from numpy.typing import NDArray

from provico.data.frames.encode import write_video
from provico.data.frames.frame_index import FrameIndex
from provico.data.frames.video import KeptFrames, read_frames

SHORT_SIDE = 160
"""Pixels of the shorter side of thumbnails and previews."""
MAX_ASPECT = 4
"""A longer side is cut to this many times the shorter one: encoders refuse ribbons."""
MAX_SECONDS = 4.0
"""Duration of a preview, from the middle of the video."""
MAX_FPS = 30.0
JPEG_QUALITY = 80
VIDEO_QUALITY = 28


def preview_frames(index: FrameIndex) -> tuple[NDArray[np.int64], Fraction]:
    """Which frames a preview shows, and how many in a second: at true speed, even if the rate varies."""
    fps = Fraction(min(max(index.facts.frames_per_second, 1.0), MAX_FPS)).limit_denominator(1001)
    seconds = min(index.duration_seconds, MAX_SECONDS)
    start = (index.duration_seconds - seconds) / 2
    # In the middle of each frame's time, where rounding cannot make it the frame before.
    times = start + (np.arange(max(1, round(seconds * fps))) + 0.5) / float(fps)
    frame_numbers = np.searchsorted(index.frame_seconds, times, side="right") - 1
    return np.clip(frame_numbers, 0, index.num_frames - 1).astype(np.int64), fps


def small_frames(
    path: str | Path,
    frame_numbers: NDArray[np.int64],
    *,
    index: FrameIndex,
    kept: KeptFrames | None = None,
) -> NDArray[np.uint8]:
    """Frames in the size of thumbnails, with even sides."""
    pixels = read_frames(path, frame_numbers, index=index, short_side=SHORT_SIDE, kept=kept)
    height, width = (2 * (min(side, MAX_ASPECT * SHORT_SIDE) // 2) for side in pixels.shape[1:3])
    top, left = (pixels.shape[1] - height) // 2, (pixels.shape[2] - width) // 2
    return np.ascontiguousarray(pixels[:, top : top + height, left : left + width])


def make_thumbnail(path: str | Path, *, index: FrameIndex, kept: KeptFrames | None = None) -> bytes:
    """The frame in the middle as JPEG.

    kept: frames that were kept when the file was indexed; else they are decoded again.
    Raises VideoError if the file is not the one that was indexed.
    """
    frame_numbers, _ = preview_frames(index)
    middle = frame_numbers[len(frame_numbers) // 2 :][:1]
    (picture,) = small_frames(path, middle, index=index, kept=kept)
    thumbnail: bytes = simplejpeg.encode_jpeg(picture, quality=JPEG_QUALITY)
    return thumbnail


def preview_name(video_id: str, num_bytes: int, modified_ns: int) -> str:
    """The name of a preview in its folder: another file under the same id gets another name.

    So a preview is never changed under a reader, and one that no row names can be removed.
    """
    digest = hashlib.blake2b(f"{num_bytes} {modified_ns} {video_id}".encode(), digest_size=12).hexdigest()
    return f"{digest[:2]}/{digest[2:]}.mp4"


def make_preview(path: Path | str, preview: Path, *, index: FrameIndex) -> None:
    """Write the preview of a video file.

    Raises VideoError if the file is not the one that was indexed.
    """
    frame_numbers, fps = preview_frames(index)
    pixels = small_frames(path, frame_numbers, index=index)
    preview.parent.mkdir(parents=True, exist_ok=True)
    write_video(preview, pixels, fps=fps, quality=VIDEO_QUALITY, encoder_options={"preset": "veryfast"})
