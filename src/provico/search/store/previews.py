"""A short video of a video, which every browser shows whatever the file is encoded in; made when wanted."""

from __future__ import annotations

import hashlib
from pathlib import Path

from provico.data.frames.encode import write_video
from provico.data.frames.frame_index import FrameIndex
from provico.data.frames.thumbnail import preview_frames, small_frames

VIDEO_QUALITY = 28


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
