"""Small videos of four colours, and an encoder without training that tells colours apart well enough."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from provico.data.frames.encode import write_video
from provico.models import Encoder, EncoderConfig, InputSpec

COLOURS = {"blue": (70, 70, 150), "green": (70, 150, 70), "grey": (110, 110, 110), "red": (150, 70, 70)}
VIDEOS_OF_A_COLOUR = 10


@pytest.fixture(scope="session")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders; the first half of each video is darker than the second."""
    folder = tmp_path_factory.mktemp("videos")
    rng = np.random.default_rng(0)
    for name, colour in COLOURS.items():
        (folder / name).mkdir()
        for number in range(VIDEOS_OF_A_COLOUR):
            light = np.linspace(0.7, 1.3, 16)[:, None, None, None]
            shade = rng.normal(0, 30, size=3)
            frames = light * rng.normal(np.array(colour) + shade, 30, size=(16, 40, 52, 3))
            write_video(folder / name / f"{number}.mp4", np.clip(frames, 0, 255).astype(np.uint8), fps=8)
    return folder


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that --checkpoint accepts."""
    torch.manual_seed(0)
    spec = InputSpec(size=32, num_frames=4, frame_step=1)
    folder = tmp_path_factory.mktemp("encoder") / "encoder"
    Encoder(EncoderConfig.for_backbone("tiny", dim=8, input=spec)).eval().save_pretrained(folder)
    return folder
