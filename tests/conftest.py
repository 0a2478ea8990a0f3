"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# Two OpenMP threads per test process are many times slower than one when tests run in parallel.
torch.set_num_threads(1)

# How long an example takes depends on what else the machine does.
settings.register_profile("provico", deadline=None)
settings.load_profile("provico")


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what ProViCo remembers between runs away from the user's own cache."""
    monkeypatch.setenv("PROVICO_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real videos, which is never part of the repository."""
    here = os.environ.get("PROVICO_DATA")
    folder = Path(here) if here else Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real videos at {folder}; set PROVICO_DATA to their folder to run this test")
    return folder
