"""One small set of videos and one folder of runs for all tests of a session, so that runs are shared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from provico.data.library import Library
from provico.reproduce.reproduce import SMOKE_SET

from ..short_demo_set import write_short_demo_set


@pytest.fixture(scope="session")
def videos(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    return made_once("smoke-set", lambda out: write_short_demo_set(out, **SMOKE_SET))


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduced")


@pytest.fixture(scope="module", autouse=True)
def _without_charts(without_charts: object) -> None:
    """Of the many runs of the experiments nobody looks at the pages."""
