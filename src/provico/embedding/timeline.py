"""How a video goes on: the distribution of a clip every so many seconds.

`Encoder.embed` sees a video through a few clips. To find what happens when, or where a long video is unclear,
clips are taken at a fixed step instead, as many as that gives; memory does not grow with the video.
"""

from __future__ import annotations

from pathlib import Path

import torch

from provico.data.clips import all_clips
from provico.data.library import Library
from provico.embedding.clips import FileClips, clip_settings
from provico.embedding.driver import embed_clips
from provico.embedding.embeddings import VideoEmbedding
from provico.errors import ConfigError
from provico.models.encoder import Encoder
from provico.models.encoder_config import EncoderConfig


def timeline(
    encoder: Encoder,
    path: Path | str,
    *,
    step_seconds: float = 1.0,
    short_side: int | None = None,
    device: torch.device | str | None = None,
    library: Library | None = None,
) -> VideoEmbedding:
    """The distribution of a clip every so many seconds, the last one at the end of the video."""
    clips = timeline_clips(
        encoder.config,
        Path(path),
        step_seconds=step_seconds,
        short_side=short_side,
        library=library or Library(),
    )
    return embed_clips(encoder, clips, device=device)


def timeline_clips(
    config: EncoderConfig,
    path: Path,
    *,
    step_seconds: float,
    short_side: int | None = None,
    library: Library,
) -> FileClips:
    """A clip every so many seconds, as an encoder with these settings wants to see it."""
    if not 0 < step_seconds < float("inf"):
        raise ConfigError(f"The step between clips is {step_seconds:g} s, but it must be above 0.")
    index = library.index(path)
    settings = clip_settings(config, num_clips=1, short_side=short_side)
    stride = max(1, round(step_seconds * index.num_frames / index.duration_seconds))
    frames = all_clips(index.num_frames, spec=settings.spec, stride=stride)
    return FileClips(path, frames, index, settings, library)
