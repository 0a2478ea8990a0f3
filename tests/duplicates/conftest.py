"""Small videos of things that move: every take has its own motion, and takes can share a scene."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from provico.data.frames.encode import write_video
from provico.data.library import Library
from provico.duplicates.fingerprint import Fingerprint, read_fingerprint

Frames = NDArray[np.uint8]
FPS = 20


def film(scene: int, take: int, *, seconds: float = 4.0, height: int = 72, width: int = 96) -> Frames:
    """Four discs that wander over a cloudy background; the scene is the background, the take the motion."""
    generator = torch.Generator().manual_seed(scene)
    clouds = F.interpolate(torch.rand(1, 3, 6, 8, generator=generator), (height, width), mode="bicubic")
    background = 40 + 150 * clouds[0].permute(1, 2, 0).clamp(0, 1).numpy()
    rng = np.random.default_rng((scene, take, 1))
    num_frames = round(seconds * FPS)
    y, x = np.mgrid[:height, :width]
    frames = np.repeat(background[None], num_frames, axis=0)
    for _ in range(4):
        # Smooth steps, so that nothing jumps.
        steps = np.cumsum(rng.normal(size=(num_frames + 10, 2)), axis=0)
        path = np.stack([np.convolve(steps[:, i], np.ones(10) / 10, "valid") for i in range(2)], axis=1)
        centre = rng.uniform(0.3, 0.7, size=2) * (height, width) + 3 * path[:num_frames]
        colour, radius = rng.uniform(0, 255, size=3), rng.uniform(7, 12)
        for frame, (cy, cx) in zip(frames, centre, strict=True):
            frame[np.hypot(y - cy % height, x - cx % width) < radius] = colour
    return frames.astype(np.uint8)


@pytest.fixture(scope="session")
def make_film() -> Callable[..., Frames]:
    return film


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session")
def fingerprint(
    tmp_path_factory: pytest.TempPathFactory, library: Library
) -> Callable[[Frames], Fingerprint]:
    folder = tmp_path_factory.mktemp("films")

    def of(frames: Frames, *, quality: int = 23) -> Fingerprint:
        path = folder / f"{len(list(folder.iterdir()))}.mp4"
        write_video(path, frames, fps=FPS, quality=quality)
        return read_fingerprint(path, library)

    return of


@pytest.fixture(scope="session")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Originals, copies of the first one, other takes of its scene, black and grey videos."""
    folder = tmp_path_factory.mktemp("copies")
    first, second = film(1, 1), film(2, 1, seconds=3)
    videos = {
        "a.mp4": first,
        "a_small.mp4": first[:, ::2, ::2],
        "a_part.mp4": first[25:65],
        "b.mp4": second,
        "joined.mp4": np.concatenate([second, first]),
        "other_take.mp4": film(1, 2),
        "third_take.mp4": film(1, 3),
        "c.mp4": film(3, 1, seconds=3),
    }
    rng = np.random.default_rng(0)
    for number in range(5):
        grey = np.full((30 + 5 * number, 72, 96, 3), 10 * number, np.int64)
        videos[f"blank_{number}.mp4"] = np.clip(grey + rng.integers(-2, 3, size=grey.shape), 0, 255)
    for name, frames in videos.items():
        write_video(folder / name, frames.astype(np.uint8), fps=FPS)
    return folder
