"""Opening video files: the accepted formats, and the limit of picture sizes."""

from __future__ import annotations

from pathlib import Path

import av
from av.stream import Disposition

from provico.data.layouts.video_files import PICTURE_FORMATS
from provico.data.memory import MAX_BUFFER_BYTES, MAX_PIXELS, MAX_STREAMS
from provico.errors import UnreadableVideoError, VideoMemoryError, VideoTimeoutError

_PICTURES = {"h264": 6, "hevc": 6, "vp8": 4, "vp9": 8, "av1": 8}
"""How many that is: the picture itself and those that the largest ones may refer to; else 3. A file that
refers to more of them runs into the limit of its process."""
_BYTES_PER_PIXEL = 4.0  # where the file does not say

_SELF_CONTAINED = {
    "protocol_whitelist": "file",
    "max_streams": str(MAX_STREAMS),
    "format_whitelist": ",".join(
        (
            *(
                "mov",
                "mp4",
                "matroska",
                "webm",
                "avi",
                "asf",
                "flv",
                "rm",
                "ogg",
                "mpeg",
                "mpegts",
                "mxf",
                "nut",
            ),
            *("mpegvideo", "m4v", "h264", "hevc", "ivf", "obu", "dv", "gif", "apng", "mjpeg", "yuv4mpegpipe"),
        )
    ),
}
"""Playlists are not read, whatever their suffix: they name other files, or addresses in the network, and
whoever wrote one would decide what this machine opens."""


def open_stream(
    path: str | Path, timeout_seconds: float
) -> tuple[av.container.InputContainer, av.VideoStream]:
    """An open container and the stream of its pictures; an error that names the file if it has none."""
    # A picture is read as what its name says, and never as a pattern that names more of them.
    picture = PICTURE_FORMATS.get(Path(path).suffix.lower())
    options = _SELF_CONTAINED if picture is None else _SELF_CONTAINED | {"format_whitelist": picture}
    try:
        # Titles in old files are often not UTF-8, which is no reason to refuse the pictures.
        container = av.open(
            str(path),
            format=picture,
            metadata_errors="ignore",
            timeout=max(0.01, timeout_seconds),
            container_options=options,
        )
    except FileNotFoundError:
        raise UnreadableVideoError(path, "there is no such file.") from None
    except av.error.ExitError:
        raise VideoTimeoutError(path, "opening it took longer than the time limit.") from None
    except MemoryError:  # the decoder's answer to too many streams, too
        reason = (
            f"opening it takes more memory than this process may take, or it has over {MAX_STREAMS} streams."
        )
        raise VideoMemoryError(path, reason) from None
    except (av.FFmpegError, OSError, ValueError, IndexError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UnreadableVideoError(path, f"it cannot be opened as a video ({reason}).") from error
    try:
        streams = [s for s in container.streams.video if not s.disposition & Disposition.attached_pic]
        if not streams:
            kinds = ", ".join(sorted({s.type for s in container.streams})) or "nothing"
            raise UnreadableVideoError(path, f"it has no video stream, only {kinds}.")
        stream = streams[0]
        context = stream.codec_context
        if context is None:
            raise UnreadableVideoError(path, "there is no decoder for its video stream.")
        max_pixels = _max_pixels(context)
        if context.width * context.height > max_pixels:
            raise UnreadableVideoError(
                path,
                f"its pictures have {context.width} x {context.height} pixels, which would take more than "
                f"{MAX_BUFFER_BYTES // 2**20} MB to decode.",
            )
        # The header may not say it, and the size may change on the way: the decoder looks again, too.
        context.options = {**context.options, "max_pixels": str(max_pixels)}
        context.thread_type = "NONE"
        context.thread_count = 1
        return container, stream
    except BaseException:
        container.close()
        raise


def _max_pixels(context: av.VideoCodecContext) -> int:
    bits = context.format.bits_per_pixel if context.format is not None else 0
    num_pictures = _PICTURES.get(context.codec.canonical_name, 3)
    return min(MAX_PIXELS, int(MAX_BUFFER_BYTES / (num_pictures * (bits / 8 or _BYTES_PER_PIXEL))))
