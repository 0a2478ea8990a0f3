"""Rivals measure what they say, on videos whose brightness, motion and length are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from provico.data.catalog import Video
from provico.data.frames.encode import write_video
from provico.embedding.embeddings import Embeddings
from provico.evaluation.rivals import brightness_and_motion, look_at, nearest_distance, rival_doubts
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture


def constant(folder: Path, name: str, values: list[int], *, fps: int = 10) -> Video:
    """A video whose frames are grey, of the given values."""
    frames = np.array(values, np.uint8)[:, None, None, None] * np.ones((1, 48, 64, 3), np.uint8)
    write_video(folder / name, frames, fps=fps)
    return Video(path=folder / name, id=name)


def embeddings(means: torch.Tensor) -> Embeddings:
    clips = Gaussian(means.unsqueeze(1), torch.zeros_like(means).unsqueeze(1))
    names = tuple(str(number) for number in range(len(means)))
    return Embeddings(names, Mixture(clips), (None,) * len(means), (None,) * len(means))


def test_brightness_motion_and_length_are_those_of_the_video(tmp_path: Path) -> None:
    still = look_at(constant(tmp_path, "still.mp4", [128] * 30))
    assert still.brightness == pytest.approx(128 / 255, abs=0.03)
    assert still.motion_energy == pytest.approx(0, abs=0.01)
    assert still.seconds == pytest.approx(3.0, abs=0.01)
    flicker = look_at(constant(tmp_path, "flicker.mp4", [60, 120] * 10))
    assert flicker.motion_energy == pytest.approx(60 / 255, abs=0.04)
    assert flicker.seconds == pytest.approx(2.0, abs=0.01)


def test_a_video_of_one_frame_does_not_move(tmp_path: Path) -> None:
    assert look_at(constant(tmp_path, "one.mp4", [200])).motion_energy == 0


def test_only_the_span_of_a_video_is_looked_at(tmp_path: Path) -> None:
    whole = constant(tmp_path, "half.mp4", [20] * 20 + [220] * 20)
    dark = look_at(Video(path=whole.path, id="dark", span=(0.0, 1.9)))
    assert dark.brightness < 0.15 < look_at(whole).brightness
    assert dark.seconds == pytest.approx(2.0, abs=0.15)


def test_grey_values_weigh_colours_as_eyes_do() -> None:
    pixels = np.zeros((1, 2, 4, 4, 3), np.uint8)
    pixels[..., 1] = 255
    assert brightness_and_motion(pixels)[0] == pytest.approx(0.587)


def test_nearest_distance_by_a_loop() -> None:
    queries, gallery = torch.randn(5, 3), torch.randn(7, 3)
    expected = [min(float((q - g).norm()) for g in gallery) for q in queries]
    assert nearest_distance(queries, gallery).tolist() == pytest.approx(expected, rel=1e-5)


def test_more_of_a_doubt_is_more_reason_to_doubt(tmp_path: Path) -> None:
    videos = [
        constant(tmp_path, "dark.mp4", [30] * 10),
        constant(tmp_path, "light.mp4", [150, 210] * 10),
    ]
    features = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[3.0, 4.0], [3.0, 4.0]]])
    near = embeddings(torch.tensor([[9.0, 0.0], [0.0, 0.0]]))
    doubts = rival_doubts(videos, features, near, embeddings(torch.tensor([[0.0, 1.0]])))
    for name, values in doubts.items():
        assert values[0] > values[1], name
    assert doubts["small feature norm"].tolist() == pytest.approx([-1, -5])
    assert doubts["far from its nearest"].tolist() == pytest.approx([82**0.5, 1])
