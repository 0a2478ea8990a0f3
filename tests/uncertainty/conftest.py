"""Small videos of four colours, and an encoder without training that tells colours apart well enough."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def videos(shaded_videos: Path) -> Path:
    return shaded_videos


@pytest.fixture(scope="session")
def run(shaded_encoder: Path) -> Path:
    return shaded_encoder
