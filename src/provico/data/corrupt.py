"""Corrupted clips, to test whether the model's uncertainty reflects the corruption.

*Mixed* clips are composed of several videos, *masked* clips have frames replaced by noise. Both return the
source of each frame, so that an experiment can show it and a test can check it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from provico.errors import ConfigError

MIX_LEVELS = (1, 2, 3, 4, 5)
"""The paper's levels: 1, 2, 4, 8 and 16 videos in a clip of 16 frames."""
MASK_SHARES = (0.0, 0.2, 0.4, 0.6, 0.8)
"""The paper's rho: 0, 3, 6, 10 and 13 frames of 16 are noise."""
MOST_DRIFT = 15
"""Maximum drift of a frozen picture, in per cent of its width."""
MOST_LIGHT = 0.1
"""Maximum change of its brightness, as a share."""
NOISE = -1
"""The source of a noise frame."""


@dataclass(frozen=True, eq=False)
class CorruptClip:
    """A clip [time, height, width, channels] and, for each frame, the clip that it was taken from."""

    pixels: NDArray[np.uint8]
    sources: NDArray[np.int64]


Spoiling = Literal["whole", "masked", "mixed", "grainy", "frozen"]


@dataclass(frozen=True, eq=False)
class SpoiltClips:
    """Clips [videos, time, height, width, channels], and the corruption of each."""

    pixels: NDArray[np.uint8]
    kinds: tuple[Spoiling, ...]
    amounts: tuple[int, ...]
    """Masked: frames that are noise. Mixed: videos in the clip. Grainy: per cent of noise in a pixel. Frozen:
    per cent of its width by which the picture drifts. Whole: 0."""
    lost: tuple[float, ...]
    """The lost share of each clip: frames of noise or of other videos, noise, all motion."""


def mix_clips(clips: NDArray[np.uint8], level: int) -> CorruptClip:
    """One clip out of the first 2^(level - 1) of `clips` [sources, time, height, width, channels].

    Each gives an equal run of consecutive frames, which keep their place in time, so that level 1 is the
    first clip unchanged.
    """
    num_sources, num_frames = 2 ** (level - 1) if level >= 1 else 0, clips.shape[1]
    if num_sources < 1 or num_frames % num_sources:
        highest = (num_frames & -num_frames).bit_length()  # how often 2 divides it, and one
        raise ConfigError(
            f"Mixing level {level} does not divide a clip of {num_frames} frames into equal runs. "
            f"Choose a level from 1 to {highest}, or another --num-frames."
        )
    if num_sources > len(clips):
        raise ConfigError(f"Mixing level {level} needs clips of {num_sources} videos, but got {len(clips)}.")
    return mix_all(clips[:num_sources])


def mix_all(clips: NDArray[np.uint8]) -> CorruptClip:
    """One clip out of all of `clips` [sources, time, height, width, channels], in runs as equal as can be."""
    num_sources, num_frames = clips.shape[:2]
    times = np.arange(num_frames)
    sources = times * num_sources // num_frames
    return CorruptClip(clips[sources, times], sources)


def mask_clip(clip: NDArray[np.uint8], rho: float, rng: np.random.Generator) -> CorruptClip:
    """Replace the share `rho` of the frames of `clip` [time, height, width, channels], at random places.

    Each pixel of a replaced frame is uniform noise.
    """
    if not 0 <= rho <= 1:
        raise ConfigError(f"The share of masked frames is {rho}, but it must lie between 0 and 1.")
    num_frames = len(clip)
    masked = rng.choice(num_frames, size=num_masked(num_frames, rho), replace=False)
    pixels = clip.copy()
    pixels[masked] = rng.integers(256, size=pixels[masked].shape, dtype=np.uint8)
    sources = np.zeros(num_frames, np.int64)
    sources[masked] = NOISE
    return CorruptClip(pixels, sources)


def num_masked(num_frames: int, rho: float) -> int:
    """The number of frames in the share `rho`, with halves rounded up."""
    return math.floor(num_frames * rho + 0.5)


def add_grain(clip: NDArray[np.uint8], share: float, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Blend each pixel of `clip` [time, height, width, channels] with uniform noise, which has this share."""
    noise = rng.integers(256, size=clip.shape, dtype=np.uint8)
    return np.round((1 - share) * clip + share * noise).astype(np.uint8)


def still_clip(
    frame: NDArray[np.uint8], num_frames: int, *, drift: tuple[float, float], light: float
) -> NDArray[np.uint8]:
    """A clip of one picture [height, width, channels], seen by a camera that may move: nothing moves in it.

    drift: how far the picture moves down and to the right over the clip, in pixels; edges are stretched.
    light: the share by which it grows brighter over the clip.
    """
    height, width = frame.shape[:2]
    clip = np.empty((num_frames, *frame.shape), np.uint8)
    for time in range(num_frames):
        share = time / max(1, num_frames - 1)
        rows, columns = (
            np.clip(np.arange(size) - round(by * share), 0, size - 1)
            for size, by in ((height, drift[0]), (width, drift[1]))
        )
        moved = frame[np.ix_(rows, columns)]
        clip[time] = np.clip(np.round(moved * (1 + light * share)), 0, 255)
    return clip


def spoil(clips: NDArray[np.uint8], rng: np.random.Generator, *, share: float) -> SpoiltClips:
    """About this share of `clips` [videos, time, height, width, channels], each spoilt in one of four ways.

    Masked: any number of frames is noise. Mixed: 2, 4, 8, ... videos in any order, as many as there are
    frames and videos for. Grainy: noise in every pixel. Frozen: one frame, all the time, half of them seen by
    a camera that moves a little, in changing light. What a clip is too short for, or too few videos, becomes
    grainy.
    """
    num_videos, num_frames = clips.shape[:2]
    pixels = clips.copy()
    kinds: list[Spoiling] = ["whole"] * num_videos
    amounts, lost = [0] * num_videos, [0.0] * num_videos
    doublings = (min(num_frames, num_videos)).bit_length() - 1
    for video in np.flatnonzero(rng.random(num_videos) < share).tolist():
        way = int(rng.integers(4))
        kind: Spoiling
        if way == 0:
            kind, amount = "masked", int(rng.integers(1, num_frames + 1))
            lost[video] = amount / num_frames
            pixels[video] = mask_clip(clips[video], lost[video], rng).pixels
        elif way == 1 and doublings:
            kind, amount = "mixed", 2 ** int(rng.integers(1, doublings + 1))
            lost[video] = 1 - 1 / amount
            others = rng.permutation([other for other in range(num_videos) if other != video])
            pixels[video] = mix_all(clips[rng.permutation([video, *others[: amount - 1]])]).pixels
        elif way == 2 and num_frames > 1:
            kind, amount = "frozen", int(rng.integers(MOST_DRIFT + 1)) * int(rng.integers(2))
            lost[video] = 1 - 1 / num_frames
            angle = rng.uniform(0, 2 * math.pi)
            reach = amount / 100 * clips.shape[3]
            pixels[video] = still_clip(
                clips[video, rng.integers(num_frames)],
                num_frames,
                drift=(reach * math.sin(angle), reach * math.cos(angle)),
                light=float(rng.uniform(-MOST_LIGHT, MOST_LIGHT)) if amount else 0.0,
            )
        else:
            kind, amount = "grainy", int(rng.integers(20, 101))
            lost[video] = amount / 100
            pixels[video] = add_grain(clips[video], lost[video], rng)
        kinds[video], amounts[video] = kind, amount
    return SpoiltClips(pixels, tuple(kinds), tuple(amounts), tuple(lost))
