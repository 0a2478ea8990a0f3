"""Scaling of frames before the crop.

`decoder` scales during decoding, which is the fastest and what our own networks are trained with. An external
network was trained with the pixels of another preprocessor: for it, frames are decoded at their own size and
scaled by the kernel of that preprocessor, with identical results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from provico.data.frames.frame_index import FrameIndex
from provico.data.frames.picture import resized_shape
from provico.data.frames.prepared import read_clips
from provico.data.frames.streaming import read_in_order
from provico.data.frames.video import read_frames
from provico.data.library import Library
from provico.defaults import DECODER

BYTES_AT_ONCE = 2**28
"""Maximum bytes of unscaled frames that are held at once, but at least one frame."""

Crop = tuple[int, int, int, int]
"""Top, left, height and width."""


class FrameSettings(Protocol):
    """Settings of a frame before the crop."""

    @property
    def short_side(self) -> int:
        """Pixels of the shorter side."""
        ...

    @property
    def crop_size(self) -> int:
        """Pixels of the square crop."""
        ...

    @property
    def scaling(self) -> str:
        """A name of `SCALINGS`."""
        ...

    @property
    def squash(self) -> bool:
        """Whether frames are resized to a square regardless of their aspect; not possible with the
        decoder."""
        ...


def frame_shape(index: FrameIndex, settings: FrameSettings) -> tuple[int, int]:
    """Height and width of a frame before the crop."""
    height, width = index.facts.height, index.facts.width
    if settings.squash:
        return settings.short_side, settings.short_side
    if settings.scaling == DECODER:
        return resized_shape(height, width, settings.short_side)
    # Preprocessors cut off the fraction of the longer side.
    side, short = settings.short_side, min(height, width)
    return (side, int(side * width / short)) if height <= width else (int(side * height / short), side)


def read_scaled(
    path: Path,
    frame_numbers: NDArray[np.int64],
    *,
    index: FrameIndex,
    settings: FrameSettings,
    library: Library,
    crops: Sequence[Crop] | None,
) -> NDArray[np.uint8]:
    """Pixels "clips frames height width 3" for frame numbers "clips frames", one crop for each clip."""
    if settings.scaling == DECODER:
        return read_clips(
            path,
            frame_numbers,
            index=index,
            short_side=settings.short_side,
            library=library,
            crops=None if crops is None else list(crops),
        )
    shape = frame_shape(index, settings)
    size = max(1, BYTES_AT_ONCE // (index.facts.height * index.facts.width * 3))
    # Clips overlap: each frame is decoded and scaled once.
    wanted, place = np.unique(frame_numbers, return_inverse=True)
    kept = library.kept(path)
    frames = np.concatenate(
        [
            scale(
                read_frames(path, wanted[first : first + size], index=index, kept=kept),
                *shape,
                settings.scaling,
            )
            for first in range(0, len(wanted), size)
        ]
    )
    places = place.reshape(frame_numbers.shape)
    if crops is None:
        return frames[places]
    return np.stack(
        [
            frames[clip, top : top + height, left : left + width]
            for clip, (top, left, height, width) in zip(places, crops, strict=True)
        ]
    )


def stream_scaled(
    path: Path,
    frame_numbers: NDArray[np.int64],
    *,
    index: FrameIndex,
    settings: FrameSettings,
    library: Library,
    crop: Crop,
) -> Iterator[NDArray[np.uint8]]:
    """As `read_scaled`, one clip "frames height width 3" at a time, in one pass and in bounded memory.

    No clip may begin before the one before it.
    """
    top, left, height, width = crop
    is_by_decoder = settings.scaling == DECODER
    if is_by_decoder and library.prepared(path, short_side=settings.short_side) is not None:
        for clip in frame_numbers:  # a copy has every frame at hand
            (pixels,) = read_scaled(
                path, clip[None], index=index, settings=settings, library=library, crops=[crop]
            )
            yield pixels
        return
    shape = frame_shape(index, settings)

    def cropped(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        scaled = frame if is_by_decoder else scale(frame[None], *shape, settings.scaling)[0]
        return scaled[top : top + height, left : left + width].copy()

    short_side = settings.short_side if is_by_decoder else None
    yield from read_in_order(path, frame_numbers, index=index, short_side=short_side, scaled=cropped)


def scale(frames: NDArray[np.uint8], height: int, width: int, scaling: str) -> NDArray[np.uint8]:
    """Frames "time height width 3" in another size, by a kernel of `SCALINGS` that is not the decoder's."""
    if frames.shape[1:3] == (height, width):
        return frames
    library, _, kernel = scaling.partition("-")
    if library == "pil":
        from PIL import Image

        chosen = Image.Resampling[kernel.upper()]
        return np.stack([np.asarray(Image.fromarray(one).resize((width, height), chosen)) for one in frames])
    import torch
    from torch.nn import functional as F

    planes = torch.from_numpy(np.ascontiguousarray(frames)).permute(0, 3, 1, 2)
    if library == "float":
        scaled = F.interpolate(planes.float(), (height, width), mode=kernel, antialias=True)
        scaled = scaled.round().clamp(0, 255).to(torch.uint8)
    else:
        scaled = F.interpolate(planes, (height, width), mode=kernel, antialias=True)
    return scaled.permute(0, 2, 3, 1).contiguous().numpy()
