"""What child processes of the server do: decode a frame, embed a file. Torch is imported only to embed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import simplejpeg
from numpy.typing import NDArray

from provico.data.frames.cut import cut_video
from provico.data.frames.frame_index import FrameIndex
from provico.data.frames.thumbnail import make_preview
from provico.data.frames.video import index_video, read_frames
from provico.data.library import Library
from provico.errors import ProvicoError, VideoError

if TYPE_CHECKING:
    from provico.embedding.embeddings import VideoEmbedding
    from provico.models.encoder import Encoder

JPEG_QUALITY = 85


@dataclass(frozen=True)
class FrameRequest:
    """A frame that is to be shown."""

    path: Path
    seconds: float
    height: int
    """At most so many pixels."""


@dataclass(frozen=True)
class PreviewRequest:
    """A short video that is to be written."""

    path: Path
    preview: Path


@dataclass(frozen=True)
class CutRequest:
    """A part of a video that is to be written."""

    path: Path
    out: Path
    start_seconds: float
    end_seconds: float


@dataclass(frozen=True)
class EmbedRequest:
    """A file, or a span of it, that is to be embedded as the videos of an index are."""

    path: Path
    encoder: Path
    num_clips: int
    short_side: int
    allow_import: bool
    span: tuple[float, float] | None = None
    library: Path | None = None
    """Where to remember what is learnt of the file; the user's own library if not given."""


def read_frame(request: FrameRequest, descriptor: int) -> bytes | ProvicoError:
    """The frame that is shown at a time, as JPEG, of the file that the server has opened and checked.

    The path says only what is remembered of it: what lies there may be another file by now.
    """
    opened = Path(f"/dev/fd/{descriptor}")
    try:
        index = _index_of(request.path, opened)
        number = int(np.searchsorted(index.frame_seconds, request.seconds, side="right")) - 1
        number = min(max(number, 0), index.num_frames - 1)
        height, width = index.facts.height, index.facts.width
        short_side = max(1, round(min(height, width) * min(1.0, request.height / height)))
        pixels = read_frames(opened, number, index=index, short_side=short_side)
    except VideoError as error:
        return error
    picture: bytes = simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), quality=JPEG_QUALITY)
    return picture


def write_preview(request: PreviewRequest, descriptor: int) -> bool | ProvicoError:
    """The preview of the file that the server has opened and checked."""
    opened = Path(f"/dev/fd/{descriptor}")
    try:
        make_preview(opened, request.preview, index=_index_of(request.path, opened))
    except VideoError as error:
        return error
    return True


def write_cut(request: CutRequest, descriptor: int) -> bool | ProvicoError:
    """A part of the file that the server has opened and checked; whether its packets were copied."""
    opened = Path(f"/dev/fd/{descriptor}")
    start, end = request.start_seconds, request.end_seconds
    try:
        return cut_video(opened, request.out, start, end, index=_index_of(request.path, opened)).is_copy
    except ProvicoError as error:
        return error


def _index_of(path: Path, opened: Path) -> FrameIndex:
    library = Library()
    is_there = path.is_file() and path.samefile(opened)
    known = library.recall(path) if is_there else None
    if known is None:
        known = index_video(opened)
        if is_there:
            library.remember(path, known)
    if isinstance(known, VideoError):
        raise known
    return known


def embed_file(request: EmbedRequest, descriptor: int | None = None) -> VideoEmbedding | ProvicoError:
    """The distribution of a file, or of a span of the file that the server has opened and checked."""
    import torch

    from provico.search.query import Span, embed_query

    torch.set_num_threads(1)  # searches go on meanwhile
    num_clips, short_side = request.num_clips, request.short_side
    try:
        encoder = _encoder(request.encoder, request.allow_import)
        if request.span is None:
            library = Library(request.library)
            return embed_query(
                encoder, request.path, None, num_clips=num_clips, short_side=short_side, library=library
            )
        assert descriptor is not None  # of a span's file
        with TemporaryDirectory() as scratch:
            # What lies at the path may be another file by now, so nothing here goes by the path but its name.
            opened = Path(scratch) / request.path.name
            opened.symlink_to(f"/dev/fd/{descriptor}")
            library = Library(Path(scratch) / "library")
            library.remember(opened, _index_of(request.path, opened))
            return embed_query(
                encoder,
                opened,
                Span(*request.span),
                num_clips=num_clips,
                short_side=short_side,
                library=library,
            )
    except ProvicoError as error:
        return error


@lru_cache(maxsize=1)
def _encoder(folder: Path, allow_import: bool) -> Encoder:
    from provico.models.encoder import Encoder

    return Encoder.from_pretrained(folder, allow_import=allow_import)


def embed_plainly(
    request: EmbedRequest, descriptor: int | None = None
) -> dict[str, NDArray[Any]] | ProvicoError:
    """Embed a file; arrays instead of tensors, as a child process must answer."""
    found = embed_file(request, descriptor)
    if isinstance(found, ProvicoError):
        return found
    return {
        "mean": found.gaussians.mean.numpy(),
        "log_var": found.gaussians.log_var.numpy(),
        "clip_seconds": found.clip_seconds.numpy(),
    }
