"""Frames are prepared once, no accident makes them anything else, and reading takes them where they are."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from provico.data.frames import prepared
from provico.data.frames.encode import write_video
from provico.data.frames.frame_file import writing_to
from provico.data.frames.prepared import PrepareReport, copy_path, prepare, read_clips
from provico.data.frames.stores import STORES, Pixels, header_of, read_copy, write_copy
from provico.data.library import Library
from provico.errors import ChangedVideoError, ConfigError

from .moving_videos import SHORT_SIDE, Listed, make_videos, moving_picture, psnr, source_frames
from .prepare_worker import NUM_WHOLE


def prepare_here(videos: list[Listed], home: Path, **settings: object) -> PrepareReport:
    options = {"short_side": SHORT_SIDE, "num_workers": 1, "library": Library(home), **settings}
    return prepare(videos, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("store", STORES)
def test_reading_takes_the_copy_when_there_is_one(store: str, tmp_path: Path) -> None:
    videos = make_videos(tmp_path / "videos", 2)
    library = Library(tmp_path / "home")
    path, index = videos[1].path, library.index(videos[1].path)
    numbers, crops = [[3, 4, 5], [30, 31, 32]], [(1, 2, 40, 40), (8, 25, 40, 40)]

    def read() -> Pixels:
        return read_clips(path, numbers, index=index, short_side=SHORT_SIDE, library=library, crops=crops)

    before = read()
    said: list[str] = []
    report = prepare_here(videos, tmp_path / "home", store=store, announce=said.append)
    assert (report.num_prepared, report.num_skipped, report.failed) == (2, 0, ())
    assert len(said) == 1
    assert "Preparing 2 videos" in said[0]
    copy = library.prepared(path, short_side=SHORT_SIDE)
    assert copy is not None
    assert copy.store == store
    assert header_of(copy.file).frames_hash == index.frames_hash

    np.testing.assert_array_equal(read(), read_copy(copy.file, numbers, crops=crops))
    assert psnr(read(), before) > 30
    if store == "raw":
        np.testing.assert_array_equal(read(), before)
    # It really was the copy: without the library's knowledge of it, the source is decoded as before.
    np.testing.assert_array_equal(
        read_clips(
            path,
            numbers,
            index=index,
            short_side=SHORT_SIDE,
            library=Library(tmp_path / "elsewhere"),
            crops=crops,
            out=np.empty_like(before),
        ),
        before,
    )
    copy.file.write_bytes(b"")
    with pytest.raises(ChangedVideoError):
        read()


def test_a_second_run_writes_nothing_and_a_changed_video_is_done_again(tmp_path: Path) -> None:
    videos = make_videos(tmp_path / "videos", 3)
    library = Library(tmp_path / "home")
    first = prepare_here(videos, tmp_path / "home")
    files = {
        video: copy.file for video in videos if (copy := library.prepared(video.path, short_side=SHORT_SIDE))
    }
    times = {video: file.stat().st_mtime_ns for video, file in files.items()}
    again = prepare_here(videos, tmp_path / "home")
    assert (again.num_prepared, again.num_skipped) == (0, 3)
    assert stat.S_IMODE((tmp_path / "home" / "prepared").stat().st_mode) == 0o700  # as videos may be private
    assert again.num_bytes == first.num_bytes == sum(file.stat().st_size for file in files.values())
    assert {video: file.stat().st_mtime_ns for video, file in files.items()} == times

    write_video(videos[1].path, moving_picture(25, seed=9))
    assert library.prepared(videos[1].path, short_side=SHORT_SIDE) is None
    third = prepare_here(videos, tmp_path / "home")
    assert (third.num_prepared, third.num_skipped) == (1, 2)
    assert header_of(files[videos[1]]).num_frames == 25
    assert files[videos[0]].stat().st_mtime_ns == times[videos[0]]


def test_a_damaged_copy_is_made_again(tmp_path: Path) -> None:
    videos = make_videos(tmp_path / "videos", 2)
    prepare_here(videos, tmp_path / "home", store="raw")
    broken = copy_path(tmp_path / "home" / "prepared", videos[0].path, "raw", SHORT_SIDE)
    whole = broken.read_bytes()
    broken.write_bytes(whole[:-1])
    assert prepare_here(videos, tmp_path / "home", store="raw").num_prepared == 1
    assert broken.read_bytes() == whole


def test_copies_are_found_again_by_a_library_that_forgot(tmp_path: Path) -> None:
    videos = make_videos(tmp_path / "videos", 2)
    prepare_here(videos, tmp_path / "home", folder=tmp_path / "frames")
    shutil.rmtree(tmp_path / "home")
    report = prepare_here(videos, tmp_path / "home", folder=tmp_path / "frames")
    assert (report.num_prepared, report.num_skipped) == (0, 2)
    assert Library(tmp_path / "home").prepared(videos[0].path, short_side=SHORT_SIDE) is not None


def test_another_store_takes_the_place_of_the_first(tmp_path: Path) -> None:
    videos = make_videos(tmp_path / "videos", 2)
    for store in ("jpeg", "raw"):
        assert prepare_here(videos, tmp_path / "home", store=store).num_prepared == 2
    prepare_here(videos, tmp_path / "home", store="raw", short_side=32)
    found = sorted(path.suffix for path in (tmp_path / "home" / "prepared").glob("*/*"))
    assert found == [".raw"] * 4


def test_broken_videos_are_listed_and_the_others_done(tmp_path: Path) -> None:
    videos = make_videos(tmp_path / "videos", 2)
    noise = tmp_path / "videos" / "noise.mp4"
    noise.write_bytes(b"not a video" * 100)
    missing = tmp_path / "videos" / "missing.mp4"
    steps: list[tuple[int, int]] = []
    report = prepare_here(
        [*videos, Listed(noise), Listed(missing), videos[0]],
        tmp_path / "home",
        num_workers=2,
        progress=lambda done, total: steps.append((done, total)),
    )
    assert (report.num_prepared, report.num_skipped) == (2, 0)
    assert {path for path, _ in report.failed} == {noise, missing}
    assert all(reason for _, reason in report.failed)
    assert steps[-1] == (2, 2)
    assert json.loads(json.dumps(report.summary()))["failed"].keys() == {str(noise), str(missing)}


def test_raw_is_estimated_exactly_and_the_others_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimates: list[int] = []
    monkeypatch.setattr(prepared, "_check_space", lambda needed, folder, **options: estimates.append(needed))
    videos = make_videos(tmp_path / "videos", 6, num_frames=24)
    for store in STORES:
        written = prepare_here(videos, tmp_path / "home", store=store).num_bytes
        assert estimates[-1] == written if store == "raw" else 0.75 < estimates[-1] / written < 1.33
    prepare_here([], tmp_path / "home")
    assert estimates[-1] == 0


def test_too_little_space_is_refused_with_both_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    videos = make_videos(tmp_path / "videos", 1)
    library = Library(tmp_path / "home")
    needed = prepare_here(videos, tmp_path / "elsewhere", store="raw").num_bytes
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=needed - 1))
    with pytest.raises(ConfigError, match=r"needs about 0\.4 MB .* where 0\.4 MB are free"):
        prepare_here(videos, tmp_path / "home", store="raw")
    assert library.prepared(videos[0].path, short_side=SHORT_SIDE) is None
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=needed))
    assert prepare_here(videos, tmp_path / "home", store="raw").num_prepared == 1


@pytest.mark.parametrize(
    "wrong", [{"store": "zip"}, {"short_side": 8}, {"folder": Path(__file__) / "in a file"}]
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        prepare_here(make_videos(tmp_path / "videos", 1), tmp_path / "home", **wrong)


# ----------------------------------------------------------------------------------------------------
# A kill

NUM_PREPARED = 8


@pytest.mark.parametrize("store", STORES)
def test_a_killed_run_goes_on_where_it_stopped(store: str, tmp_path: Path) -> None:
    """The run stops by itself in the middle of two files, so that the kill is midway on any machine."""
    videos = make_videos(tmp_path / "videos", NUM_PREPARED, num_frames=16)
    home, folder = tmp_path / "home", tmp_path / "home" / "prepared"
    worker = Path(__file__).with_name("prepare_worker.py")
    process = subprocess.Popen(
        [sys.executable, worker, home, tmp_path / "videos", store], start_new_session=True
    )
    pattern = f"*{STORES[store].suffix}"
    while len(finished(folder, pattern)) < 2 * NUM_WHOLE or len(partials(folder)) < 2:
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)  # the children too, in the middle of what they write
    process.wait()
    before = finished(folder, pattern)
    assert (len(before), len(partials(folder))) == (2 * NUM_WHOLE, 2)

    report = prepare_here(videos, home, store=store, num_workers=2)

    assert report.failed == ()
    assert (report.num_skipped, report.num_prepared) == (len(before), NUM_PREPARED - len(before))
    after = finished(folder, pattern)
    assert len(after) == NUM_PREPARED
    assert before.items() <= after.items()
    assert partials(folder) == []
    for listed in videos:
        copy = Library(home).prepared(listed.path, short_side=SHORT_SIDE)
        assert copy is not None
        header = header_of(copy.file)
        fresh = tmp_path / f"fresh{STORES[store].suffix}"
        write_copy(fresh, source_frames(listed.path, range(header.num_frames)), header)
        assert copy.file.read_bytes() == fresh.read_bytes()


def partials(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if "partial" in path.name]


def finished(folder: Path, pattern: str) -> dict[Path, int]:
    """Complete copies and when they were written."""
    return {
        path: path.stat().st_mtime_ns for path in folder.glob(f"*/{pattern}") if not path.name.startswith(".")
    }


def test_what_another_process_writes_is_no_leftover(tmp_path: Path) -> None:
    partial = tmp_path / "frames" / "ab" / ".copy.1.partial.raw"
    with writing_to(tmp_path / "frames"):
        partial.parent.mkdir()
        partial.write_bytes(b"still growing")
        with writing_to(tmp_path / "frames"):  # a lock of its own, as another process would have
            assert partial.exists()
    with writing_to(tmp_path / "frames"):
        assert not partial.exists()
