"""Trivial baselines of a learnt uncertainty, which can be measured without it.

The sign of each is fixed so that larger means more doubt, without looking at errors: dark, still and short
videos show little, weak features carry little, and outliers are strange.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from provico.data.catalog import Video, frames_of
from provico.data.frames.video import read_frames
from provico.data.library import Library
from provico.embedding.embeddings import Embeddings
from provico.progress import Progress, silent

NUM_MOMENTS = 8
"""Evenly spaced pairs of neighbouring frames that are analysed per video."""
_SHORT_SIDE = 64
_GREY = np.array([0.299, 0.587, 0.114])  # luminance of red, green and blue


@dataclass(frozen=True)
class Appearance:
    """Statistics of a video's pixels."""

    brightness: float
    """Mean grey value, 0 to 1."""
    motion_energy: float
    """Mean absolute change of grey value between neighbouring frames, 0 to 1."""
    seconds: float


def look_at(video: Video, *, library: Library | None = None) -> Appearance:
    """Analyse pairs of neighbouring frames of a video."""
    index = (library or Library()).index(video.path)
    frames = frames_of(video, index)
    first = np.linspace(frames[0], max(frames[0], frames[-1] - 1), NUM_MOMENTS).round().astype(np.int64)
    frame_numbers = np.stack([first, np.minimum(first + 1, frames[-1])], axis=1)
    pixels = read_frames(video.path, frame_numbers, index=index, short_side=_SHORT_SIDE)
    brightness, motion = brightness_and_motion(pixels)
    return Appearance(brightness, motion, index.seconds_of(frames))


def brightness_and_motion(pixels: NDArray[np.uint8]) -> tuple[float, float]:
    """Brightness and motion of pairs of frames "moments 2 height width 3"."""
    grey = pixels @ (_GREY / 255)
    return float(grey.mean()), float(np.abs(grey[:, 1] - grey[:, 0]).mean())


def rival_doubts(
    videos: Sequence[Video],
    features: Float[Tensor, "videos clips feature"],
    queries: Embeddings,
    gallery: Embeddings,
    *,
    library: Library | None = None,
    progress: Progress = silent,
) -> dict[str, Float[Tensor, "videos"]]:
    """The doubt of each baseline about each query.

    features: the backbone's features; videos and features are in the order of the queries.
    """
    seen = []
    for number, video in enumerate(videos, start=1):
        seen.append(look_at(video, library=library))
        progress(number, len(videos))

    def column(name: str) -> Tensor:
        return torch.tensor([getattr(one, name) for one in seen], dtype=torch.float64)

    return {
        "dark": -column("brightness"),
        "little motion": -column("motion_energy"),
        "short": -column("seconds"),
        "small feature norm": -features.double().mean(dim=1).norm(dim=1),
        "far from its nearest": nearest_distance(queries.videos.mean, gallery.videos.mean),
    }


def nearest_distance(
    queries: Float[Tensor, "queries dim"], gallery: Float[Tensor, "videos dim"]
) -> Float[Tensor, "queries"]:
    """Distance from each query's mean to the nearest mean of the gallery."""
    parts = [torch.cdist(rows.double(), gallery.double()).amin(dim=1) for rows in torch.split(queries, 256)]
    return torch.cat(parts)
