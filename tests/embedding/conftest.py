"""Videos of noise for files of embeddings."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from provico.models import Encoder

from .small_files import NUM_VIDEOS, write


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders of videos that no test changes."""
    folder = tmp_path_factory.mktemp("originals")
    for number in range(NUM_VIDEOS):
        (folder / "AB"[number % 2]).mkdir(exist_ok=True)
        write(folder / "AB"[number % 2] / f"{number}.mp4", number)
    return folder


@pytest.fixture
def sizes_seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many clips networks are shown together, each time from now on."""
    sizes = []
    features = Encoder.features

    def counted(self: Encoder, clips: torch.Tensor) -> torch.Tensor:
        sizes.append(len(clips))
        return features(self, clips)

    monkeypatch.setattr(Encoder, "features", counted)
    return sizes
