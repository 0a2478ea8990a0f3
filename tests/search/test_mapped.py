"""Columns in a file without a name are those of the store, and are in memory where no file can be written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from provico.files import home_folder
from provico.models import Encoder
from provico.search.index import Index
from provico.search.store import mapped as mapped_module
from provico.search.store.mapped import mapped

from ..full_disk import files_of_at_most
from .crowd import crowd_rows

NAMES = ("mean", "sample_mean", "uncertainty")
NUMBER = 700


@pytest.fixture(scope="module")
def index(shaded_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mapped") / "index"
    made = Index.create(path, Encoder.from_pretrained(shaded_encoder), num_clips=2, num_samples=4)
    with made._folder.changing(made.settings) as store:
        store.write(crowd_rows(made.settings, NUMBER))
    return path


def test_they_are_those_of_the_store(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Index.open(index)
    store, columns = opened.loaded.store, opened.settings.columns
    expected = store.read(NAMES)
    assert not isinstance(mapped(store, NAMES, columns)["mean"], np.memmap)
    monkeypatch.setattr(mapped_module, "IN_MEMORY", 0)
    monkeypatch.setattr(mapped_module, "ROWS_AT_ONCE", 300)
    found = mapped(store, NAMES, columns)
    with files_of_at_most(100):
        in_memory = mapped(store, NAMES, columns)
    for name in NAMES:
        assert isinstance(found[name], np.memmap)
        assert not isinstance(in_memory[name], np.memmap)
        assert found[name].dtype == in_memory[name].dtype == expected[name].dtype
        np.testing.assert_array_equal(found[name], expected[name])
        np.testing.assert_array_equal(in_memory[name], expected[name])
    assert not [path for path in home_folder().iterdir() if path.name.startswith("tmp")]  # they have no name


def test_answers_are_the_same(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answers() -> list[list[tuple[str, float, bool]]]:
        opened = Index.open(index)
        names = [opened.ids[row] for row in (0, 1, 350)]
        return [
            [(hit.id, hit.score, answer.certificate.is_exact) for hit in answer.hits]
            for name in names
            for metric in ("match", "bhattacharyya", "cosine")
            for answer in [opened.search(name, k=5, metric=metric, max_chance=None)]
        ]

    in_memory = answers()
    monkeypatch.setattr(mapped_module, "IN_MEMORY", 0)
    assert answers() == in_memory
