"""Videos of noise for files of embeddings."""

from __future__ import annotations

from pathlib import Path

import pytest

from .small_files import NUM_VIDEOS, write


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders of videos that no test changes."""
    folder = tmp_path_factory.mktemp("originals")
    for number in range(NUM_VIDEOS):
        (folder / "AB"[number % 2]).mkdir(exist_ok=True)
        write(folder / "AB"[number % 2] / f"{number}.mp4", number)
    return folder
