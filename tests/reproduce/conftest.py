"""One small set of videos and one folder of runs for all tests of a session, so that runs are shared."""

from __future__ import annotations

from pathlib import Path

import pytest

from provico.data.demo_set.videos import write_demo_set
from provico.data.library import Library
from provico.reproduce.reproduce import SMOKE_SET


@pytest.fixture(scope="session")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos") / "demo"
    write_demo_set(folder, **SMOKE_SET, num_workers=1)
    return folder


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduced")
