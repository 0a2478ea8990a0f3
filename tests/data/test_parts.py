"""A video can be a part of a file: only the frames of that part are ever read."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

from provico.data.catalog import open_catalog
from provico.data.clips import ClipSpec
from provico.data.library import Library
from provico.data.loader import ClipLoader, ClipSettings
from provico.data.scan import scan
from provico.errors import CatalogError


@pytest.fixture(scope="module")
def video(make_video, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_video(tmp_path_factory.mktemp("video") / "video.mp4", 90, fps=25)


@pytest.fixture
def parts(video: Path, tmp_path: Path) -> Path:
    """Two parts of one file of 90 frames at 25 a second, and a whole one."""
    for name in ("long.mp4", "whole.mp4"):
        shutil.copy(video, tmp_path / name)
    rows = [("long.mp4", 0.4, 1.2), ("long.mp4", 2.0, 2.8), ("whole.mp4", "", "")]
    with (tmp_path / "parts.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "start_seconds", "end_seconds"), *rows])
    return tmp_path / "parts.csv"


def test_parts_of_a_file_are_videos_of_their_own(parts: Path) -> None:
    catalog = open_catalog(parts)
    assert [video.id for video in catalog] == ["long.mp4#0.4-1.2", "long.mp4#2-2.8", "whole.mp4"]
    assert [video.span for video in catalog] == [(0.4, 1.2), (2.0, 2.8), None]


@pytest.mark.parametrize("sampling", ["random", "uniform"])
def test_only_frames_of_the_part_are_read(parts: Path, number_of, sampling: str) -> None:
    settings = ClipSettings(num_clips=4, spec=ClipSpec(4, 2), sampling=sampling, short_side=96, crop_size=96)  # type: ignore[arg-type]
    loader = ClipLoader(
        open_catalog(parts), settings, batch_size=3, shuffle=False, max_broken_share=0.0, library=Library()
    )
    (batch,) = loader
    for clips, (first, last) in zip(batch.clips, [(10, 29), (50, 69), (0, 89)], strict=True):
        frames = [number for clip in clips for number in clip.frames]
        assert first <= min(frames)
        assert max(frames) <= last
        assert all(clip.start_seconds >= first / 25 - 1e-9 for clip in clips)
    if sampling == "uniform":  # the first clip begins the part, the last one ends it
        assert (batch.clips[1][0].frames[0], batch.clips[1][-1].frames[-1]) == (50, 69)


def test_a_part_after_the_end_is_a_broken_video(parts: Path) -> None:
    parts.write_text(f"path,start_seconds,end_seconds\n{parts.parent / 'long.mp4'},9,10\n")
    report = scan(open_catalog(parts), num_workers=1)
    assert "no frame between 9 and 10 s; it lasts 3.60 s" in report.videos[0].reason


def test_a_scan_keeps_parts_and_calls_them_no_duplicates(parts: Path, tmp_path: Path) -> None:
    report = scan(open_catalog(parts), num_workers=1)
    assert [video.frames for video in report.videos] == [20, 20, 90]
    assert [video.flags for video in report.videos] == ["", "", "duplicate"]
    again = open_catalog(report.write(tmp_path / "scan"))
    assert [(video.id, video.span) for video in again] == [(v.id, v.span) for v in open_catalog(parts)]


@pytest.mark.parametrize("span", ["1,0.5", "-1,2", "1,", "a,b", "0,inf"])
def test_times_must_make_sense(parts: Path, span: str) -> None:
    parts.write_text(f"path,start_seconds,end_seconds\nlong.mp4,{span}\n")
    with pytest.raises(CatalogError, match="line 2: found"):
        open_catalog(parts)
