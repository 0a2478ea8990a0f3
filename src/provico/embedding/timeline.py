"""How a video goes on: the distribution of any clips of a file, such as one every second.

`Encoder.embed` sees a video through a few clips. To find what happens when, or where a long video is unclear,
clips are taken at a fixed step instead, as many as that gives; memory does not grow with the video.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from jaxtyping import UInt8
from torch import Tensor

from provico.data.clips import Clip, ClipSpec, FrameNumbers, all_clips
from provico.data.crops import centre_box
from provico.data.frames.frame_index import FrameIndex
from provico.data.frames.picture import resized_shape
from provico.data.frames.prepared import read_clips
from provico.data.library import Library
from provico.embedding.video_embedding import VideoEmbedding
from provico.errors import ConfigError
from provico.models.encoder import Encoder
from provico.models.inference import CLIPS_AT_ONCE, evaluating, in_parts
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture


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
    if not 0 < step_seconds < float("inf"):
        raise ConfigError(f"The step between clips is {step_seconds:g} s, but it must be above 0.")
    path, library = Path(path), library or Library()
    index = library.index(path)
    settings = encoder.config.clip_settings(num_clips=1, short_side=short_side)
    frames = timeline_frames(index, settings.spec, step_seconds=step_seconds)
    return embed_frames(
        encoder, path, frames, index=index, short_side=settings.short_side, device=device, library=library
    )


def timeline_frames(index: FrameIndex, spec: ClipSpec, *, step_seconds: float) -> FrameNumbers:
    """The frame numbers "clips frames" of a clip every so many seconds."""
    stride = max(1, round(step_seconds * index.num_frames / index.duration_seconds))
    return all_clips(index.num_frames, spec=spec, stride=stride)


def embed_frames(
    encoder: Encoder,
    path: Path,
    frames: FrameNumbers,
    *,
    index: FrameIndex,
    short_side: int,
    device: torch.device | str | None = None,
    library: Library,
) -> VideoEmbedding:
    """The distribution of clips whose frame numbers "clips frames" are given, in their centre crops."""
    parts = []
    with evaluating(encoder, device) as place:
        for pixels in clip_pixels(encoder, path, frames, index=index, short_side=short_side, library=library):
            parts.append(in_parts(encoder.encode_clips, pixels, size=CLIPS_AT_ONCE, device=place))
    seconds, end = index.frame_seconds, index.duration_seconds
    timed = [Clip.timed(path.name, clip, frame_seconds=seconds, duration_seconds=end) for clip in frames]
    clips = Gaussian(torch.cat([part.mean for part in parts]), torch.cat([part.log_var for part in parts]))
    return VideoEmbedding(tuple(timed), Mixture(clips))


def clip_pixels(
    encoder: Encoder,
    path: Path,
    frames: FrameNumbers,
    *,
    index: FrameIndex,
    short_side: int,
    library: Library,
) -> Iterator[UInt8[Tensor, "clips time height width 3"]]:
    """What the encoder is to see of these clips, some at a time."""
    settings = encoder.config.clip_settings(num_clips=1, short_side=short_side)
    height, width = resized_shape(index.facts.height, index.facts.width, settings.short_side)
    box = centre_box(height, width, settings.crop_size)
    for first in range(0, len(frames), CLIPS_AT_ONCE):
        part = frames[first : first + CLIPS_AT_ONCE]
        crops = [(box.top, box.left, box.height, box.width)] * len(part)
        yield torch.from_numpy(
            read_clips(path, part, index=index, short_side=settings.short_side, library=library, crops=crops)
        )
