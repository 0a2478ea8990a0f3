"""Crops of frames, and photometric augmentation for training.

Clips are uint8 [clips, time, height, width, channels], as numpy arrays or torch tensors. A crop is one box
for all frames of a clip; only boxes of another size are resized. Normalising pixels is the encoder's first
step.

ProViCo needs only a random crop, since it learns from differences between the clips of one video. The
deterministic baselines need more, and both must be studied, so `AUGMENTATIONS` has the choices by name.

All frames of a clip are changed equally, to preserve motion. Random numbers come from one seed per clip,
and each clip is computed by itself, so the result does not depend on batch size, order or workers.

Brightness, contrast, saturation, hue and grey are all linear in the colour, so they are multiplied into one
3 x 3 matrix per clip, and blur into two matrices over rows and columns: pixels are converted, changed and
rounded once instead of once per step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from provico.errors import ConfigError, look_up

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


Range = tuple[float, float]

_TO_YIQ = torch.tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
"""Luma and two axes of colour: a turn of the latter changes the hue and leaves grey as it is."""
_FROM_YIQ: Tensor = torch.linalg.inv(_TO_YIQ)
_LUMA = _TO_YIQ[0]
"""How bright red, green and blue look (ITU-R BT.601)."""
_REACH = 3.0
"""A Gaussian is cut off at this many standard deviations."""
_PIXELS_PER_PRODUCT = 8
"""A product with a 3 x 3 matrix wastes the processor; with that of 8 pixels at once it takes a fifth."""
_INVISIBLE = 1e-5
"""A matrix this close to the identity changes no value by more than a hundredth of a level."""
_ROWS_PER_PRODUCT, _COLUMNS_PER_PRODUCT = 28, 16
"""Blur is a band matrix; products of blocks along the band skip most of its zeros."""


@dataclass(frozen=True)
class PhotometricDraw:
    """What happens to each of some clips; the first axis of all is `clips`."""

    flip: Tensor
    """bool [clips]: mirror left and right."""
    colour: Tensor
    """float32 [clips, 3, 3]: the matrix that every RGB column is multiplied with."""
    pivot: Tensor
    """float32 [clips]: how much of the clip's mean luma is added, as contrast turns about it."""
    blur_std: Tensor
    """float32 [clips]: standard deviation of the blur in pixels, 0 for none."""

    def __len__(self) -> int:
        return len(self.flip)


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """How clips are varied in training. Strengths and probabilities of 0 leave them as they are."""

    crop: Literal["centre", "random", "resized"] = "centre"
    crop_per_clip: bool = False
    """Whether each clip of a video has a crop of its own."""
    crop_area: Range = (0.3, 1.0)
    """Share of the frame that a resized crop keeps."""
    crop_aspect: Range = (0.5, 2.0)
    """Width / height of a resized crop."""
    flip_probability: float = 0.0
    flip_per_clip: bool = True
    """Whether each clip of a video is mirrored or not by itself; otherwise all or none."""
    jitter_probability: float = 0.0
    """Of all four of the following together."""
    brightness: float = 0.0
    """The factor is drawn from 1 - brightness to 1 + brightness; the next two likewise."""
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0
    """Largest turn of the colour circle, at most 0.5."""
    grey_probability: float = 0.0
    blur_probability: float = 0.0
    blur_std: Range = (0.1, 2.0)
    """In pixels."""

    def __post_init__(self) -> None:
        shares = ("flip_probability", "jitter_probability", "grey_probability", "blur_probability")
        for name in (*shares, "brightness", "contrast", "saturation"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, but it must lie between 0 and 1.")
        if not 0 <= self.hue <= 0.5:
            raise ConfigError(f"hue is {self.hue}, but it must lie between 0 and 0.5, half of the circle.")
        for name in ("crop_area", "crop_aspect", "blur_std"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise ConfigError(f"{name} is {low} to {high}, but it must be positive and ascending.")
        if self.crop_area[1] > 1:
            raise ConfigError(f"crop_area goes to {self.crop_area[1]}, but a crop cannot exceed the frame.")

    @classmethod
    def none(cls) -> Self:
        """The middle of the frames, unchanged: what evaluation sees."""
        return cls()

    def boxes(
        self, height: int, width: int, size: int, *, num_clips: int, rng: np.random.Generator
    ) -> list[Box]:
        """Which part of the frames of each clip to keep; `crops.resize` then makes it a square of `size`."""

        def draw() -> Box:
            if self.crop == "centre":
                return centre_box(height, width, size)
            if self.crop == "random":
                return random_box(height, width, size, rng=rng)
            return random_resized_box(height, width, area=self.crop_area, aspect=self.crop_aspect, rng=rng)

        if self.crop_per_clip:
            return [draw() for _ in range(num_clips)]
        return [draw()] * num_clips

    def draw(self, seeds: Iterable[int]) -> PhotometricDraw:
        """Decide, one seed for each clip, what `apply` will do."""
        # All numbers are drawn whether needed or not, so a new probability leaves the other choices alone.
        uniform = np.array([np.random.default_rng(seed).random(9) for seed in seeds], np.float32)
        flip, jitter, grey, blur, *strengths = torch.from_numpy(uniform.reshape(-1, 9)).unbind(dim=1)
        if not self.flip_per_clip:
            flip = flip[:1].expand_as(flip)
        jittered = jitter < self.jitter_probability
        limits = (self.brightness, self.contrast, self.saturation, self.hue)
        changes = [limit * (2 * u - 1) * jittered for limit, u in zip(limits, strengths[:4], strict=True)]
        brightness, contrast, saturation = (1 + change for change in changes[:3])
        saturation = torch.where(grey < self.grey_probability, 0.0, saturation)
        low, high = self.blur_std
        return PhotometricDraw(
            flip=flip < self.flip_probability,
            colour=(brightness * contrast)[:, None, None]
            * hue_matrix(changes[3])
            @ saturation_matrix(saturation),
            pivot=brightness * (1 - contrast),
            blur_std=torch.where(blur < self.blur_probability, low + (high - low) * strengths[4], 0.0),
        )


_CONTRASTIVE = Augmentation(
    crop="resized",
    crop_per_clip=True,
    flip_probability=0.5,
    jitter_probability=0.8,
    brightness=0.4,
    contrast=0.4,
    saturation=0.4,
    hue=0.1,
    grey_probability=0.2,
    blur_probability=0.5,
)

AUGMENTATIONS: dict[str, Augmentation] = {
    "none": Augmentation.none(),
    "crop": Augmentation(crop="random"),
    "shift": Augmentation(crop="random", crop_per_clip=True, flip_probability=0.5, flip_per_clip=False),
    "shift_colour": replace(_CONTRASTIVE, crop="random", flip_per_clip=False),
    "contrastive": _CONTRASTIVE,
}
"""`none` for evaluation, `crop` as in the paper (one place for all clips of a video), `shift` with a place
for each clip, so that *where* something moves does not give the video away, `contrastive` as methods need it
that see colours, and `shift_colour` with its colours and blur, but all at one size."""


def find_augmentation(name: str) -> Augmentation:
    """The augmentation of that name, or an error with the nearest name."""
    return look_up("augmentation", name, AUGMENTATIONS)


def saturation_matrix(factor: Tensor) -> Tensor:
    """[clips] -> [clips, 3, 3]: 1 leaves colours as they are, 0 makes them grey of the same luma."""
    grey = _LUMA.expand(3, 3)
    return grey + factor[:, None, None] * (torch.eye(3) - grey)


def hue_matrix(turn: Tensor) -> Tensor:
    """[clips] -> [clips, 3, 3]: turn all colours about the axis of greys, by a share of the circle."""
    angle = 2 * math.pi * turn
    rotation = torch.eye(3).repeat(len(turn), 1, 1)
    rotation[:, 1, 1] = rotation[:, 2, 2] = angle.cos()
    rotation[:, 2, 1] = angle.sin()
    rotation[:, 1, 2] = -angle.sin()
    return _FROM_YIQ @ rotation @ _TO_YIQ


def blur_matrix(length: int, std: float) -> Tensor:
    """[length, length]: row i weighs the pixels about i; at the border the weights inside share the whole."""
    distance = torch.arange(length)[:, None] - torch.arange(length)
    weights = torch.exp(-0.5 * (distance / std) ** 2) * (distance.abs() <= _reach(std))
    return weights / weights.sum(dim=1, keepdim=True)


def apply(clips: Tensor, draw: PhotometricDraw) -> Tensor:
    """Change uint8 clips [clips, time, height, width, channels] as drawn; the input is left as it is."""
    if clips.dtype != torch.uint8 or clips.ndim != 5 or len(clips) != len(draw):
        raise ValueError(
            f"Needed uint8 clips [{len(draw)}, time, height, width, channels], "
            f"got {clips.dtype} {list(clips.shape)}."
        )
    changed = torch.empty(clips.shape, dtype=torch.uint8)
    for number, clip in enumerate(clips):
        clip = clip.flip(2) if draw.flip[number] else clip
        colour, pivot, std = draw.colour[number], draw.pivot[number], float(draw.blur_std[number])
        if std == 0 and pivot == 0 and (colour - torch.eye(3)).abs().max() < _INVISIBLE:
            changed[number] = clip
        else:
            offset = float(pivot) * _mean_luma(clip)
            _apply_linear(clip, colour, offset, std, out=changed[number])
    return changed


def _apply_linear(clip: Tensor, colour: Tensor, offset: float, std: float, *, out: Tensor) -> None:
    """out = blur(clip) @ colour^T + offset, rounded and clamped."""
    pixels = clip.to(torch.float32, memory_format=torch.contiguous_format)
    height, width = clip.shape[1:3]
    offset += 0.5  # conversion cuts off the fraction, so this rounds
    if std > 0:
        pixels = _blur_rows(pixels.view(-1, height, width * 3), blur_matrix(height, std), _reach(std))
        result = torch.empty_like(pixels)
        _blur_columns(pixels.view(-1, width * 3), std, colour, offset, out=result.view(-1, width * 3))
    else:
        group = math.gcd(pixels.numel() // 3, _PIXELS_PER_PRODUCT)
        blocks = torch.kron(torch.eye(group), colour.T.contiguous())
        result = torch.addmm(torch.full((), offset), pixels.view(-1, 3 * group), blocks)
    # numpy, because torch takes six times as long to convert to uint8
    np.copyto(out.view(-1).numpy(), result.clamp_(0, 255).view(-1).numpy(), casting="unsafe")


def _blur_rows(frames: Tensor, matrix: Tensor, reach: int) -> Tensor:
    """[time, height, width * 3] -> the same, mixed over height."""
    height = len(matrix)
    blocks = []
    for first in range(0, height, _ROWS_PER_PRODUCT):
        rows = slice(first, first + _ROWS_PER_PRODUCT)
        band = slice(max(first - reach, 0), first + _ROWS_PER_PRODUCT + reach)
        blocks.append(matrix[rows, band] @ frames[:, band])
    return torch.cat(blocks, dim=1)


def _blur_columns(rows: Tensor, std: float, colour: Tensor, offset: float, *, out: Tensor) -> None:
    """[time * height, width * 3] -> the same, mixed over width, with the change of colour in one go."""
    width, reach = rows.shape[1] // 3, _reach(std)
    matrix = torch.kron(blur_matrix(width, std).T.contiguous(), colour.T.contiguous())
    for first in range(0, width, _COLUMNS_PER_PRODUCT):
        columns = slice(3 * first, 3 * (first + _COLUMNS_PER_PRODUCT))
        band = slice(3 * max(first - reach, 0), 3 * (first + _COLUMNS_PER_PRODUCT + reach))
        torch.addmm(torch.full((), offset), rows[:, band], matrix[band, columns], out=out[:, columns])


def _reach(std: float) -> int:
    return math.ceil(_REACH * std)


def _mean_luma(clip: Tensor) -> float:
    """From every fourth pixel both ways, summed exactly."""
    sums = clip[:, ::4, ::4].sum(dim=(0, 1, 2), dtype=torch.int64)
    return float(sums.to(torch.float32) @ _LUMA) / clip[:, ::4, ::4, 0].numel()
