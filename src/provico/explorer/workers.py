"""Decoding and embedding in child processes: a file may hang or crash a decoder, never the server."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from provico.data.child_process import CallLimits, ItemOutcome
from provico.data.clips import Clips
from provico.data.isolated import IsolatedCalls
from provico.data.memory import GIGABYTE
from provico.embedding.embeddings import VideoEmbedding
from provico.errors import ProvicoError
from provico.explorer.child_work import (
    CutRequest,
    EmbedRequest,
    FrameRequest,
    PreviewRequest,
    embed_plainly,
    read_frame,
    write_cut,
    write_preview,
)
from provico.explorer.lanes import busy
from provico.explorer.problems import Problem
from provico.explorer.settings import ExplorerSettings
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture

Item = TypeVar("Item")
Result = TypeVar("Result")

FRAME_WORKERS = 2
PREVIEW_WORKERS = 1
CUT_WORKERS = 1
EMBED_WORKERS = 1
EMBED_MEMORY = 8 * GIGABYTE
"""The network and its activations are in that process, too."""


class Workers:
    """The children of a server; they start when they are first needed."""

    def __init__(self, settings: ExplorerSettings) -> None:
        # Somebody waits for the answer, so that a call as a whole has a limit, too.
        frame_seconds, upload_seconds = settings.frame_seconds, settings.upload_seconds
        self._frames: IsolatedCalls[FrameRequest, bytes | ProvicoError] = IsolatedCalls(
            read_frame,
            num_workers=FRAME_WORKERS,
            limits=CallLimits(silent_seconds=frame_seconds, total_seconds=frame_seconds),
        )
        self._previews: IsolatedCalls[PreviewRequest, bool | ProvicoError] = IsolatedCalls(
            write_preview,
            num_workers=PREVIEW_WORKERS,
            limits=CallLimits(silent_seconds=frame_seconds, total_seconds=frame_seconds),
        )
        self._cuts: IsolatedCalls[CutRequest, bool | ProvicoError] = IsolatedCalls(
            write_cut,
            num_workers=CUT_WORKERS,
            limits=CallLimits(silent_seconds=settings.cut_seconds, total_seconds=settings.cut_seconds),
        )
        self._embeddings: IsolatedCalls[EmbedRequest, dict[str, NDArray[Any]] | ProvicoError] = IsolatedCalls(
            embed_plainly,
            num_workers=EMBED_WORKERS,
            limits=CallLimits(
                silent_seconds=upload_seconds,
                total_seconds=upload_seconds,
                memory_bytes=EMBED_MEMORY,
                kept_bytes=EMBED_MEMORY // 2,
            ),
        )

    def frame(self, request: FrameRequest, descriptor: int) -> bytes:
        """A frame of an open file as JPEG."""
        return _result(self._frames(request, descriptors=[descriptor]))

    def preview(self, request: PreviewRequest, descriptor: int) -> None:
        """Write the preview of an open file."""
        _result(self._previews(request, descriptors=[descriptor]))

    def cut(self, request: CutRequest, descriptor: int) -> bool:
        """Write a part of an open file; whether its packets were copied."""
        return _result(self._cuts(request, descriptors=[descriptor]))

    def embed(self, request: EmbedRequest, *descriptor: int) -> VideoEmbedding:
        """The distribution of a file; or of a span, of the open file with this descriptor."""
        return _embedding(_result(self._embeddings(request, descriptors=descriptor)), request.path.name)

    def close(self) -> None:
        """End all children."""
        self._frames.close()
        self._previews.close()
        self._cuts.close()
        self._embeddings.close()


def _result(outcome: ItemOutcome[Item, Result | ProvicoError]) -> Result:
    if isinstance(outcome.result, ProvicoError):
        raise outcome.result
    if not outcome.blames_item:
        raise busy("videos to decode")
    if outcome.result is None:
        raise Problem(422, "unreadable_video", f"The video cannot be used: {outcome.failure}")
    return outcome.result


def _embedding(answered: dict[str, NDArray[Any]], name: str) -> VideoEmbedding:
    """From what a child answered, which is checked; ValueError or WeightsError if it makes no sense."""
    mean, log_var, seconds = (
        torch.from_numpy(answered[column].copy()) for column in ("mean", "log_var", "clip_seconds")
    )
    if seconds.shape != (len(mean), 2) or not bool(seconds.isfinite().all()):
        raise ValueError("The times do not fit the clips.")
    clips = Clips(name, np.empty((len(seconds), 0), np.int64), seconds.numpy())
    return VideoEmbedding(clips, Mixture(Gaussian(mean, log_var)))
