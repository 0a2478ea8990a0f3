"""Junk is told by its pictures, and what is not junk is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from provico.curation.junk import JUNK, junk_of, look
from provico.data.library import Library

from .. import mixed_folder


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, library: Library) -> dict[str, str | None]:
    folder = tmp_path_factory.mktemp("mixed")
    mixed_folder.write_mixed_folder(folder)
    kinds: dict[str, str | None] = {}
    for path in sorted(folder.iterdir()):
        if path.name != "broken.mp4":
            index = library.index(path)
            kinds[path.name] = junk_of(look(path, index), duration_seconds=index.duration_seconds)
    return kinds


def test_each_kind_is_told(found: dict[str, str | None]) -> None:
    told = {name: kind for name, kind in mixed_folder.JUNK.items() if kind in ("noise", "card", "screen")}
    assert {name: found[name] for name in told} == told
    assert {*told.values()} < {*JUNK}


def test_what_shows_something_is_not_junk(found: dict[str, str | None]) -> None:
    assert [name for name, kind in found.items() if kind and name not in mixed_folder.JUNK] == []


def test_real_videos_are_seldom_taken_for_junk(real_data: Path, library: Library) -> None:
    paths = (
        sorted((real_data / "ucf101-5").rglob("*.avi"))[::60]
        + sorted((real_data / "hmdb51-12").rglob("*.avi"))[::150]
    )
    wrong = []
    for path in paths:
        index = library.index(path)
        kind = junk_of(look(path, index), duration_seconds=index.duration_seconds)
        wrong += [(path.name, kind)] if kind else []
    assert len(wrong) <= len(paths) // 10, wrong
