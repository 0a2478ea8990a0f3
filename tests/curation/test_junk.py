"""Junk is told by its pictures, and what is not junk is left alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from provico.curation.junk import JUNK, junk_of, look
from provico.data.frames.encode import write_video
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


def test_bars_make_no_screen_of_a_film(tmp_path: Path, library: Library) -> None:
    """A calm shot of a wall with straight edges, between black bars, is no recorded screen and no card."""
    rng = np.random.default_rng(0)
    wall = 120 + 50 * np.sign(np.sin(np.arange(160) / 9))[None, :, None] + rng.normal(0, 4, (52, 160, 3))
    frames = np.zeros((40, 120, 160, 3))
    frames[:, 34:86] = wall
    for number, frame in enumerate(frames):
        frame[60:68, 20 + number : 28 + number] = 220
    path = tmp_path / "letterboxed.mp4"
    write_video(path, np.clip(frames, 0, 255).astype(np.uint8), fps=12, quality=12)
    index = library.index(path)
    assert junk_of(look(path, index), duration_seconds=index.duration_seconds) is None
