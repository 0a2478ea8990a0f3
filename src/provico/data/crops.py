"""Which part of the frames is kept: one box for all frames of a clip.

Clips are uint8 [clips, time, height, width, channels], as numpy arrays or torch tensors, and what comes in as
one goes out as the same. Only boxes of another size than the one that is wanted are resized.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from provico.errors import ConfigError

Pixels = TypeVar("Pixels", NDArray[np.uint8], Tensor)

_NUM_ATTEMPTS = 10


@dataclass(frozen=True)
class Box:
    """A rectangle of pixels inside a frame."""

    top: int
    left: int
    height: int
    width: int


def centre_box(height: int, width: int, size: int) -> Box:
    """The square of this size in the middle of the frame."""
    _check_fits(height, width, size)
    return Box((height - size) // 2, (width - size) // 2, size, size)


def random_box(height: int, width: int, size: int, *, rng: np.random.Generator) -> Box:
    """A square of this size, every place equally likely."""
    _check_fits(height, width, size)
    top, left = rng.integers(height - size + 1), rng.integers(width - size + 1)
    return Box(int(top), int(left), size, size)


def random_resized_box(
    height: int,
    width: int,
    *,
    area: tuple[float, float],
    aspect: tuple[float, float],
    rng: np.random.Generator,
) -> Box:
    """A rectangle whose share of the area is uniform and whose width / height is log-uniform.

    One that sticks out of the frame is drawn again; after ten of them it is the largest square in the middle.
    """
    for _ in range(_NUM_ATTEMPTS):
        pixels = rng.uniform(*area) * height * width
        ratio = math.exp(rng.uniform(math.log(aspect[0]), math.log(aspect[1])))
        box_height, box_width = round(math.sqrt(pixels / ratio)), round(math.sqrt(pixels * ratio))
        if 0 < box_height <= height and 0 < box_width <= width:
            top, left = rng.integers(height - box_height + 1), rng.integers(width - box_width + 1)
            return Box(int(top), int(left), box_height, box_width)
    return centre_box(height, width, min(height, width))


def crop_clips(clips: Pixels, boxes: Sequence[Box], size: int) -> Pixels:
    """A square of this size out of each clip of [clips, time, height, width, channels], one box a clip."""
    squares = [resize(cut(clip, box), size, size) for clip, box in zip(clips, boxes, strict=True)]
    if isinstance(clips, Tensor):
        return torch.stack(squares)
    return np.stack(squares)


def cut(pixels: Pixels, box: Box) -> Pixels:
    """The part of [..., height, width, channels] inside the box, as a view."""
    return pixels[..., box.top : box.top + box.height, box.left : box.left + box.width, :]


def resize(frames: Pixels, height: int, width: int) -> Pixels:
    """Frames [time, height, width, channels] in another size; bilinear, smoothed where they shrink."""
    if frames.shape[-3:-1] == (height, width):
        return frames
    if isinstance(frames, Tensor):
        return _resized(frames, height, width)
    # The copy makes it contiguous, which is faster, and writable, which torch insists on.
    return _resized(torch.from_numpy(frames.copy()), height, width).numpy()


def _resized(frames: Tensor, height: int, width: int) -> Tensor:
    # Channels stay last in memory, for which torch has a fast path on uint8.
    planes = F.interpolate(frames.permute(0, 3, 1, 2), (height, width), mode="bilinear", antialias=True)
    return planes.permute(0, 2, 3, 1).contiguous()


def _check_fits(height: int, width: int, size: int) -> None:
    if size < 1 or size > min(height, width):
        raise ConfigError(
            f"A crop of {size} x {size} pixels does not fit into frames of {height} x {width}. "
            "Lower --crop-size, or raise --short-side."
        )
