"""The frames of the clips of a video, and their times.

Only numbers are handled here: the decoder reads the frames. A video shorter than a clip is looped, so every
video gives clips of the same shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from provico.data.frames.frame_index import FrameIndex
from provico.defaults import NUM_FRAMES
from provico.errors import ConfigError

FrameNumbers = NDArray[np.int64]


@dataclass(frozen=True)
class ClipSpec:
    """The shape of a clip in time: number of frames and frame stride."""

    num_frames: int = NUM_FRAMES
    frame_step: int = 1

    def __post_init__(self) -> None:
        for name, value in (("--num-frames", self.num_frames), ("--frame-step", self.frame_step)):
            if value < 1:
                raise ConfigError(f"{name} is {value}, but a clip needs at least 1.")

    @property
    def span(self) -> int:
        """Number of frames of the video from the first to the last frame of a clip, inclusive."""
        return (self.num_frames - 1) * self.frame_step + 1


@dataclass(frozen=True)
class Clip:
    """A clip with its source. A looped one covers its whole video."""

    video_id: str
    frames: tuple[int, ...]
    start_seconds: float
    end_seconds: float


@dataclass(frozen=True, eq=False)
class Clips(Sequence[Clip]):
    """The clips of one video. A `Clip` is made when it is asked for: a day of video has 86,400."""

    video_id: str
    frames: FrameNumbers
    """Frame numbers "clips frames"."""
    seconds: NDArray[np.float64]
    """Start and end of each, "clips 2"."""

    def __len__(self) -> int:
        return len(self.seconds)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Clips)
            and self.video_id == other.video_id
            and np.array_equal(self.frames, other.frames)
            and np.array_equal(self.seconds, other.seconds)
        )

    @overload
    def __getitem__(self, place: int) -> Clip: ...

    @overload
    def __getitem__(self, place: slice) -> Clips: ...

    def __getitem__(self, place: int | slice) -> Clip | Clips:
        if isinstance(place, slice):
            return Clips(self.video_id, self.frames[place], self.seconds[place])
        return Clip(self.video_id, tuple(self.frames[place].tolist()), *self.seconds[place].tolist())


def timed_clips(video_id: str, frames: FrameNumbers, index: FrameIndex) -> Clips:
    """Start and end of each clip of "clips frames" in its file.

    The last frame is shown until the next one begins, so times are correct for variable frame rates.
    """
    starts, ends = index.frame_seconds[frames.min(axis=1)], index.end_seconds[frames.max(axis=1)]
    return Clips(video_id, frames, np.stack([starts, ends], axis=1))


def random_clips(
    num_video_frames: int,
    *,
    num_clips: int,
    spec: ClipSpec,
    rng: np.random.Generator,
) -> FrameNumbers:
    """Clips for training [clips, frames]: all possible starts are equally likely.

    Starts are independent, as in the paper, so clips may overlap.
    """
    _check(num_video_frames, num_clips)
    starts = rng.integers(_last_start(num_video_frames, spec) + 1, size=num_clips)
    return _frames(starts, num_video_frames, spec)


def uniform_clips(num_video_frames: int, *, num_clips: int, spec: ClipSpec) -> FrameNumbers:
    """Clips for evaluation [clips, frames], evenly spaced: the first at the start, the last at the end.

    These are the positions of VCOP, floor(linspace(0, last start, clips)), without its rounding errors. One
    clip alone is taken from the middle.
    """
    _check(num_video_frames, num_clips)
    last = _last_start(num_video_frames, spec)
    starts = np.arange(num_clips) * last // (num_clips - 1) if num_clips > 1 else np.array([last // 2])
    return _frames(starts, num_video_frames, spec)


def strided_clips(num_video_frames: int, *, spec: ClipSpec, stride: int) -> FrameNumbers:
    """A clip every `stride` frames [clips, frames], for time lines of long videos.

    If frames would be left over, one more clip ends at the last frame.
    """
    _check(num_video_frames, 1)
    if stride < 1:
        raise ConfigError(f"The stride between clips is {stride}, but it must be at least 1.")
    last = _last_start(num_video_frames, spec)
    starts = np.append(np.arange(0, last, stride), last)
    return _frames(starts, num_video_frames, spec)


def dense_clips(
    num_video_frames: int, duration_seconds: float, *, num_clips: int, spec: ClipSpec, step_seconds: float
) -> FrameNumbers:
    """Evenly spaced clips, one every `step_seconds` or more, and at least `num_clips`.

    Every n-th of them is one of `uniform_clips` with `num_clips`; see `overview_of`.
    """
    gaps = num_clips - 1 if num_clips > 1 else 2  # one alone is in the middle
    # No clip twice: there are only as many positions as frames.
    finer = min(
        math.ceil(duration_seconds / step_seconds / gaps), _last_start(num_video_frames, spec) // gaps
    )
    count = gaps * finer + 1 if finer else num_clips
    return uniform_clips(num_video_frames, num_clips=count, spec=spec)


def overview_of(num_dense: int, num_clips: int) -> slice:
    """Which of the clips of `dense_clips` are the `num_clips` evenly spaced ones."""
    if num_clips == 1:
        return slice(num_dense // 2, num_dense // 2 + 1)
    return slice(None, None, (num_dense - 1) // (num_clips - 1))


def _last_start(num_video_frames: int, spec: ClipSpec) -> int:
    return max(num_video_frames - spec.span, 0)


def _frames(starts: FrameNumbers, num_video_frames: int, spec: ClipSpec) -> FrameNumbers:
    offsets = np.arange(spec.num_frames, dtype=np.int64) * spec.frame_step
    return (starts.astype(np.int64)[:, None] + offsets) % num_video_frames


def _check(num_video_frames: int, num_clips: int) -> None:
    if num_video_frames < 1:
        raise ValueError("A video without frames has no clips.")
    if num_clips < 1:
        raise ConfigError(f"The number of clips is {num_clips}, but it must be at least 1.")
