"""The input format of a network, and the conversion from uint8 pixels.

Clips are passed as decoded, uint8 (..., height, width, channels), and normalised on the device of the
network, inside the encoder: this transfers a quarter of the bytes, and no caller can normalise twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from provico.defaults import CROP_SIZE, DECODER, NUM_FRAMES, SCALINGS
from provico.errors import ConfigError, did_you_mean

Channels = tuple[float, float, float]
_MOST = 2**14  # of pixels and of frames: more would take all memory


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """The clips that a network expects. It is part of the network, so checkpoints store it."""

    size: int = CROP_SIZE
    """Height and width of the crop in pixels."""

    num_frames: int = NUM_FRAMES
    """Frames in a clip."""

    frame_step: int = 1
    """Frame stride: distance between neighbouring frames of a clip, in frames of the video."""

    pixel_mean: Channels = (0.485, 0.456, 0.406)
    """Mean of red, green and blue on a scale from 0 to 1; by default that of ImageNet."""

    pixel_std: Channels = (0.229, 0.224, 0.225)
    """Standard deviation of red, green and blue on the same scale."""

    motion: bool = False
    """Whether the network gets the differences of neighbouring frames, one fewer, instead of the frames: it
    then cannot distinguish videos by their scenery."""

    scaling: str = DECODER
    """The library that scales frames and its kernel: a name of `SCALINGS`. External networks were trained
    with the pixels of other preprocessors."""

    short_side: int | None = None
    """Pixels of the shorter side of a frame before the crop, if the network defines it."""

    squash: bool = False
    """Whether frames are resized to a square regardless of their aspect; not possible with the decoder."""

    def __post_init__(self) -> None:
        for name in ("size", "num_frames", "frame_step"):
            value = getattr(self, name)
            if value < 1:
                raise ConfigError(f"{name} is {value}, but it must be at least 1.")
            if value > _MOST:
                raise ConfigError(f"{name} is {value}, but it must be at most {_MOST}.")
        for name in ("pixel_mean", "pixel_std"):
            if len(getattr(self, name)) != 3:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}, but red, green and blue need one value each."
                )
        if self.scaling not in SCALINGS:
            raise ConfigError(f"There is no scaling {self.scaling!r}. {did_you_mean(self.scaling, SCALINGS)}")
        if self.squash and self.scaling == DECODER:
            raise ConfigError(
                "squash is on, but the decoder keeps the aspect of frames. Choose another scaling."
            )
        if self.short_side is not None and self.short_side < self.size:
            raise ConfigError(
                f"size is {self.size}, but frames have a short side of {self.short_side} pixels before the "
                "crop. Give a smaller size."
            )
        if self.motion and self.num_frames < 2:
            raise ConfigError("motion needs differences of frames, so num_frames must be at least 2.")
        if min(self.pixel_std) <= 0:
            raise ConfigError(
                f"pixel_std is {self.pixel_std}, but pixels are divided by it, so it must be positive."
            )

    def changed(self, **given: Any) -> InputSpec:
        """A copy with other settings. Another size keeps the visible share of the frame."""
        size = given.get("size", self.size)
        if self.short_side is not None and size != self.size:
            given["short_side"] = round(self.short_side * size / self.size)
        return replace(self, **given)


class PixelNormalisation(nn.Module):
    """(pixels / 255 - mean) / std for uint8; floats must be normalised already and pass unchanged.

    With `motion` differences of neighbouring frames are taken afterwards, in units of the same std.
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, spec: InputSpec) -> None:
        super().__init__()
        mean, std = torch.tensor(spec.pixel_mean), torch.tensor(spec.pixel_std)
        # Not saved with the weights: the config stores them.
        self.register_buffer("scale", 1 / (255 * std), persistent=False)
        self.register_buffer("shift", -mean / std, persistent=False)
        self.motion = spec.motion

    def forward(
        self,
        pixels: UInt8[Tensor, "clips time height width 3"] | Float[Tensor, "clips time height width 3"],
    ) -> Float[Tensor, "clips 3 seen_time height width"]:
        """Normalised clips for the network, a view in `channels_last_3d` memory."""
        if not pixels.is_floating_point():
            # Rows of width * 3 numbers: with an inner axis of three the loop would not be vectorised.
            width = pixels.shape[3]
            rows = pixels.flatten(3).to(self.scale.dtype)
            rows = torch.addcmul(self.shift.repeat(width), rows, self.scale.repeat(width))
            pixels = rows.view(pixels.shape)
        if self.motion:
            pixels = pixels[:, 1:] - pixels[:, :-1]
        return pixels.permute(0, 4, 1, 2, 3)


def shared_frames(
    clips: UInt8[Tensor, "clips time height width 3"],
) -> tuple[UInt8[Tensor, "frames height width 3"], Int[Tensor, "clips time"]]:
    """The distinct frames of some clips, and the indices that make up each clip.

    Clips overlap if videos are short or clips are dense, and still pictures repeat frames.
    """
    places: dict[bytes, int] = {}
    firsts: list[int] = []
    found = []
    frames = clips.flatten(0, 1)
    for number, frame in enumerate(frames.cpu().numpy()):
        place = places.setdefault(frame.tobytes(), len(places))
        if place == len(firsts):
            firsts.append(number)
        found.append(place)
    is_all = len(firsts) == len(frames)
    return frames if is_all else frames[firsts], torch.tensor(found, device=clips.device).view(
        clips.shape[:2]
    )
