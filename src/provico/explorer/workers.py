"""Decoding and embedding in child processes: a file may hang or crash a decoder, never the server."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import simplejpeg

from provico.data.frames.video import read_frames
from provico.data.isolated import IsolatedCalls, ItemOutcome
from provico.data.library import Library
from provico.errors import ProvicoError, VideoError
from provico.explorer.problems import Problem
from provico.explorer.settings import ExplorerSettings

if TYPE_CHECKING:
    from provico.embedding.embeddings import VideoEmbedding
    from provico.models.encoder import Encoder

Item = TypeVar("Item")
Result = TypeVar("Result")

FRAME_WORKERS = 2
EMBED_WORKERS = 1
JPEG_QUALITY = 85


@dataclass(frozen=True)
class FrameRequest:
    """A frame that is to be shown."""

    path: Path
    seconds: float
    height: int
    """At most so many pixels."""


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


def read_frame(request: FrameRequest) -> bytes | ProvicoError:
    """The frame that is shown at a time, as JPEG."""
    try:
        index = Library().index(request.path)
        number = int(np.searchsorted(index.frame_seconds, request.seconds, side="right")) - 1
        number = min(max(number, 0), index.num_frames - 1)
        height, width = index.facts.height, index.facts.width
        short_side = max(1, round(min(height, width) * min(1.0, request.height / height)))
        pixels = read_frames(request.path, number, index=index, short_side=short_side)
    except VideoError as error:
        return error
    picture: bytes = simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), quality=JPEG_QUALITY)
    return picture


def embed_file(request: EmbedRequest) -> VideoEmbedding | ProvicoError:
    """The distribution of a file, or of a span of it."""
    import torch

    from provico.search.query import Span, embed_span

    torch.set_num_threads(1)  # searches go on meanwhile
    library = Library(request.library)
    try:
        encoder = _encoder(request.encoder, request.allow_import)
        num_clips, short_side = request.num_clips, request.short_side
        if request.span is None:
            return encoder.embed(request.path, num_clips=num_clips, short_side=short_side, library=library)
        span = Span(*request.span)
        return embed_span(
            encoder, request.path, span, num_clips=num_clips, short_side=short_side, library=library
        )
    except ProvicoError as error:
        return error


@lru_cache(maxsize=1)
def _encoder(folder: Path, allow_import: bool) -> Encoder:
    from provico.models.encoder import Encoder

    return Encoder.from_pretrained(folder, allow_import=allow_import)


class Workers:
    """The children of a server; they start when they are first needed."""

    def __init__(self, settings: ExplorerSettings) -> None:
        self._frames = IsolatedCalls(
            read_frame, num_workers=FRAME_WORKERS, timeout_seconds=settings.frame_seconds
        )
        self._embeddings = IsolatedCalls(
            embed_file, num_workers=EMBED_WORKERS, timeout_seconds=settings.upload_seconds
        )

    def frame(self, request: FrameRequest) -> bytes:
        """A frame as JPEG."""
        return _result(self._frames(request))

    def embed(self, request: EmbedRequest) -> VideoEmbedding:
        """The distribution of a file, or of a span of it."""
        return _result(self._embeddings(request))

    def close(self) -> None:
        """End all children."""
        self._frames.close()
        self._embeddings.close()


def _result(outcome: ItemOutcome[Item, Result | ProvicoError]) -> Result:
    if isinstance(outcome.result, ProvicoError):
        raise outcome.result
    if outcome.result is None:
        raise Problem(422, "unreadable_video", f"The video cannot be used: {outcome.failure}")
    return outcome.result
