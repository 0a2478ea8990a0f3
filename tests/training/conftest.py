"""A small set of real videos, indexed and prepared once."""

from __future__ import annotations

from pathlib import Path

import pytest

from provico.data.catalog import Catalog, open_catalog
from provico.data.library import Library


@pytest.fixture(scope="session")
def videos(demo_set: Path) -> Path:
    return demo_set


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session")
def catalog(videos: Path) -> Catalog:
    return open_catalog(videos, subset="train")
