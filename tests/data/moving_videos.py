"""Small videos of a smooth picture that drifts, and what their frames must be once they are stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from provico.data.frames.encode import write_video
from provico.data.frames.stores import Pixels
from provico.data.frames.video import index_video, read_frames

SHORT_SIDE = 48
HEIGHT, WIDTH = 72, 98  # 48 x 65 when resized: an odd width, which H.264 does not like


@dataclass(frozen=True)
class Listed:
    """What a catalog holds."""

    path: Path


def moving_picture(num_frames: int, *, seed: int = 0) -> Iterator[Pixels]:
    """A smooth picture that drifts, so that every frame differs from its neighbours."""
    rng = np.random.default_rng(seed)
    waves = rng.uniform(0.5, 2.5, (3, 2)), rng.uniform(0, 6, 3)
    y, x = np.mgrid[:HEIGHT, :WIDTH] / HEIGHT * np.pi
    for number in range(num_frames):
        planes = [
            np.sin(fy * y + fx * x + phase + 0.35 * number) for (fy, fx), phase in zip(*waves, strict=True)
        ]
        yield (127.5 + 100 * np.stack(planes, -1)).astype(np.uint8)


def make_videos(folder: Path, num_videos: int, *, num_frames: int = 40) -> list[Listed]:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(num_videos):
        write_video(folder / f"{number}.mp4", moving_picture(num_frames + number, seed=number), gop_size=12)
    return [Listed(folder / f"{number}.mp4") for number in range(num_videos)]


def psnr(one: Pixels, other: Pixels) -> float:
    return float(10 * np.log10(255**2 / max(1e-9, np.square(one.astype(float) - other).mean())))


def source_frames(path: Path, numbers: object) -> Pixels:
    return read_frames(path, np.asarray(numbers), index=index_video(path), short_side=SHORT_SIDE)
