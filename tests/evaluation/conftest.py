"""Embeddings that are made up, for laws that need no video, and videos of noise for files of embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from provico.evaluation.embedding import Embeddings
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture

from .small_files import NUM_VIDEOS, write

MakeEmbeddings = Callable[..., Embeddings]


@pytest.fixture(scope="session")
def make_embeddings() -> MakeEmbeddings:
    """Random videos of which some share labels and groups; `prefix` tells the ids of two sets apart."""

    def make(
        num_videos: int,
        *,
        seed: int,
        prefix: str = "video",
        num_labels: int = 3,
        num_clips: int = 2,
        dim: int = 4,
        log_var: float = -1.0,
        groups: Sequence[str | None] | None = None,
    ) -> Embeddings:
        generator = torch.Generator().manual_seed(seed)
        mean = torch.randn(num_videos, num_clips, dim, generator=generator)
        spread = torch.randn(num_videos, num_clips, dim, generator=generator)
        labels = torch.randint(num_labels, (num_videos,), generator=generator).tolist()
        return Embeddings(
            ids=tuple(f"{prefix}{number}" for number in range(num_videos)),
            videos=Mixture(Gaussian(mean, log_var + 0.3 * spread)),
            labels=tuple(f"class{label}" for label in labels),
            groups=tuple(groups or [None] * num_videos),
        )

    return make


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders of videos that no test changes."""
    folder = tmp_path_factory.mktemp("originals")
    for number in range(NUM_VIDEOS):
        (folder / "AB"[number % 2]).mkdir(exist_ok=True)
        write(folder / "AB"[number % 2] / f"{number}.mp4", number)
    return folder
