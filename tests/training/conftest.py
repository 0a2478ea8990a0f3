"""A small set of real videos, indexed and prepared once."""

from __future__ import annotations

from pathlib import Path

import pytest

from provico.data.catalog import Catalog, open_catalog
from provico.data.demo_set.videos import write_demo_set
from provico.data.library import Library


@pytest.fixture(scope="session")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos") / "demo"
    write_demo_set(folder, num_classes=2, videos_per_class=9, num_workers=1)
    return folder


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session")
def catalog(videos: Path) -> Catalog:
    return open_catalog(videos, subset="train")
