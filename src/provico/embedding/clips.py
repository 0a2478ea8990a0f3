"""The clips for an encoder, and the pixels of the clips of a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from provico.data.clips import Clips, ClipSpec, FrameNumbers, strided_clips, timed_clips
from provico.data.frames.frame_index import FrameIndex
from provico.data.library import Library
from provico.data.loader import ClipSettings
from provico.data.scaling import frame_shape, stream_scaled
from provico.data.transforms import centre_box
from provico.defaults import DECODER
from provico.errors import ConfigError
from provico.models.encoder_config import EncoderConfig
from provico.models.inference import CLIPS_AT_ONCE


def clip_settings(config: EncoderConfig, *, num_clips: int, short_side: int | None = None) -> ClipSettings:
    """Settings of an encoder's clips: evenly spaced, not augmented; frames fit the encoder by default.

    Frames of another size than the network expects are scaled by the decoder and cropped.
    """
    is_own = short_side in (None, config.short_side)
    return ClipSettings(
        num_clips=num_clips,
        spec=ClipSpec(config.input.num_frames, config.input.frame_step),
        sampling="uniform",
        short_side=config.short_side if short_side is None else short_side,
        crop_size=config.input.size,
        scaling=config.input.scaling if is_own else DECODER,
        squash=config.input.squash and is_own,
    )


@dataclass(frozen=True, eq=False)
class FileClips:
    """Centre crops of clips of one file, given by frame numbers."""

    path: Path
    frames: FrameNumbers
    """Frame numbers "clips frames"."""
    index: FrameIndex
    settings: ClipSettings
    """The size of the frames and of the crop."""
    library: Library

    @property
    def clips(self) -> Clips:
        """The frame numbers and times of the clips."""
        return timed_clips(self.path.name, self.frames, self.index)

    def pixels(self) -> Iterator[UInt8[Tensor, "clips time height width 3"]]:
        """The pixels of clips, a few at a time, which bounds the memory."""
        box = centre_box(*frame_shape(self.index, self.settings), self.settings.crop_size)
        clips = stream_scaled(
            self.path,
            self.frames,
            index=self.index,
            settings=self.settings,
            library=self.library,
            crop=(box.top, box.left, box.height, box.width),
        )
        while part := list(islice(clips, CLIPS_AT_ONCE)):
            yield torch.from_numpy(np.stack(part))


def timeline_clips(
    config: EncoderConfig,
    path: Path,
    *,
    step_seconds: float,
    short_side: int | None = None,
    library: Library,
) -> FileClips:
    """The clips of a timeline: one in every `step_seconds`, the last one at the end of the video."""
    if not 0 < step_seconds < float("inf"):
        raise ConfigError(f"The step between clips is {step_seconds:g} s, but it must be above 0.")
    index = library.index(path)
    settings = clip_settings(config, num_clips=1, short_side=short_side)
    stride = max(1, round(step_seconds * index.num_frames / index.duration_seconds))
    frames = strided_clips(index.num_frames, spec=settings.spec, stride=stride)
    return FileClips(path, frames, index, settings, library)
