"""Prepared frames are the frames of the video, and no accident makes them anything else."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from provico.data.cache import PrepareReport, copy_path, estimate_bytes, prepare, read_clips
from provico.data.encode import write_video
from provico.data.frame_file import Header, writing_to
from provico.data.library import Library
from provico.data.stores import STORES, Pixels, header_of, read_copy, write_copy
from provico.data.video import index_video, read_frames
from provico.errors import ChangedVideoError, ConfigError, UnreadableVideoError, VideoError

SHORT_SIDE = 48
HEIGHT, WIDTH = 72, 98  # 48 x 65 when resized: an odd width, which H.264 does not like


@dataclass(frozen=True)
class Listed:
    """What a catalog holds."""

    path: Path


def moving_picture(num_frames: int, *, seed: int = 0) -> Iterator[Pixels]:
    """A smooth picture that drifts, so that every frame differs from its neighbours."""
    rng = np.random.default_rng(seed)
    waves = rng.uniform(0.5, 2.5, (3, 2)), rng.uniform(0, 6, 3)
    y, x = np.mgrid[:HEIGHT, :WIDTH] / HEIGHT * np.pi
    for number in range(num_frames):
        planes = [
            np.sin(fy * y + fx * x + phase + 0.35 * number) for (fy, fx), phase in zip(*waves, strict=True)
        ]
        yield (127.5 + 100 * np.stack(planes, -1)).astype(np.uint8)


def make_videos(folder: Path, num_videos: int, *, num_frames: int = 40) -> list[Listed]:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(num_videos):
        write_video(folder / f"{number}.mp4", moving_picture(num_frames + number, seed=number), gop_size=12)
    return [Listed(folder / f"{number}.mp4") for number in range(num_videos)]


def psnr(one: Pixels, other: Pixels) -> float:
    return float(10 * np.log10(255**2 / max(1e-9, np.square(one.astype(float) - other).mean())))


def source_frames(path: Path, numbers: object) -> Pixels:
    return read_frames(path, np.asarray(numbers), index=index_video(path), short_side=SHORT_SIDE)


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("one"), 1)[0].path


@pytest.fixture(scope="module")
def copies(video: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One copy of the video in each store."""
    folder = tmp_path_factory.mktemp("copies")
    index = index_video(video)
    frames = source_frames(video, range(index.num_frames))
    paths = {store: folder / f"copy{STORES[store].suffix}" for store in STORES}
    for store, path in paths.items():
        size = write_copy(path, frames, Header.of(index, store=store, short_side=SHORT_SIDE))
        assert size == path.stat().st_size
    return paths


# ----------------------------------------------------------------------------------------------------
# What is read is what was asked for


@pytest.mark.parametrize("store", STORES)
def test_copies_hold_every_frame_of_the_video(store: str, video: Path, copies: dict[str, Path]) -> None:
    expected = source_frames(video, range(40))
    found = read_copy(copies[store], np.arange(40)[None])[0]
    assert found.shape == expected.shape == (40, 48, 65, 3)
    if store == "raw":
        np.testing.assert_array_equal(found, expected)
    assert psnr(found, expected) > 30
    # Each stored frame is closer to its own source frame than to any other.
    distances = [[np.square(a.astype(float) - b).mean() for b in expected] for a in found]
    assert np.argmin(distances, axis=1).tolist() == list(range(40))


@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("store", STORES)
def test_any_numbers_and_windows_equal_a_cut_of_the_whole(
    store: str, copies: dict[str, Path], data: st.DataObject
) -> None:
    num_clips, num_frames = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 6))
    height, width = data.draw(st.integers(1, 48)), data.draw(st.integers(1, 65))
    corner = st.tuples(st.integers(0, 48 - height), st.integers(0, 65 - width))
    corners = data.draw(st.lists(corner, min_size=num_clips, max_size=num_clips))
    clip = st.lists(st.integers(0, 39), min_size=num_frames, max_size=num_frames) | st.integers(
        0, 40 - num_frames
    ).map(lambda first: list(range(first, first + num_frames)))
    numbers = data.draw(st.lists(clip, min_size=num_clips, max_size=num_clips))

    crops = [(top, left, height, width) for top, left in corners]
    out = np.empty((num_clips, num_frames, height, width, 3), np.uint8)
    found = read_copy(copies[store], numbers, crops=crops, out=out)

    assert found is out
    whole = read_copy(copies[store], np.arange(40)[None])[0]
    for place, (top, left) in enumerate(corners):
        window = whole[numbers[place], top : top + height, left : left + width]
        np.testing.assert_array_equal(out[place], window)


@pytest.mark.parametrize("store", STORES)
def test_pixels_can_go_into_every_other_row_of_a_batch(store: str, copies: dict[str, Path]) -> None:
    batch = np.zeros((4, 3, 48, 65, 3), np.uint8)
    read_copy(copies[store], [[0, 1, 2], [7, 8, 9]], out=batch[::2])
    np.testing.assert_array_equal(batch[::2], read_copy(copies[store], [[0, 1, 2], [7, 8, 9]]))
    assert not batch[1::2].any()


@pytest.mark.parametrize(
    ("numbers", "crops", "error"),
    [
        ([[40]], None, IndexError),
        ([[-1]], None, IndexError),
        (np.zeros((1, 0)), None, IndexError),
        ([[0]], [(0, 0, 49, 1)], ValueError),
        ([[0]], [(-1, 0, 4, 4)], ValueError),
        ([[0]], [(0, 0, 0, 4)], ValueError),
        ([[0]], [(0, 0, 4)], ValueError),
        ([[0], [1]], [(0, 0, 4, 4), (0, 0, 4, 5)], ValueError),
    ],
)
def test_impossible_requests_are_refused(
    copies: dict[str, Path], numbers: object, crops: object, error: type[Exception]
) -> None:
    with pytest.raises(error):
        read_copy(copies["raw"], numbers, crops=crops)  # type: ignore[arg-type]


def test_an_mp4_copy_is_a_video_like_any_other(copies: dict[str, Path]) -> None:
    index = index_video(copies["mp4"])
    assert index.num_frames == 40
    assert index.facts.codec == "h264"
    assert index.facts.num_errors == 0
    assert max(b - a for a, b in pairwise([*index.keyframes.tolist(), 40])) <= 8


def test_real_videos_lose_next_to_nothing(real_data: Path, tmp_path: Path) -> None:
    ratios: dict[str, list[float]] = {"jpeg": [], "mp4": []}
    for path in sorted((real_data / "originals").glob("*.avi"))[::2]:
        index = index_video(path)
        numbers = np.arange(24) + index.num_frames // 3
        frames = read_frames(path, numbers, index=index, short_side=128)
        for store, found in ratios.items():
            header = Header.of(index, store=store, short_side=128)
            header = Header(**{**vars(header), "num_frames": 24})
            write_copy(tmp_path / "copy.mp4", frames, header)
            found.append(psnr(read_copy(tmp_path / "copy.mp4", [range(24)])[0], frames))
    # Vivid colours lose most, because colour is stored at half the size, as it is in the videos themselves.
    assert {store: np.median(found) > 37 for store, found in ratios.items()} == {"jpeg": True, "mp4": True}
    assert {store: min(found) > 30 for store, found in ratios.items()} == {"jpeg": True, "mp4": True}


# ----------------------------------------------------------------------------------------------------
# Damaged and foreign files


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("damage", ["cut", "beheaded", "longer", "empty", "foreign", "other version"])
def test_damaged_files_are_named(store: str, damage: str, copies: dict[str, Path], tmp_path: Path) -> None:
    data = copies[store].read_bytes()
    path = tmp_path / copies[store].name
    path.write_bytes(
        {
            "cut": data[:-100],
            "beheaded": data[100:],
            "longer": data + b"more",
            "empty": b"",
            "foreign": b"This is a shopping list: " + bytes(500),
            "other version": data.replace(b'"version":1', b'"version":9'),
        }[damage]
    )
    with pytest.raises(VideoError, match="prepare") as caught:
        read_copy(path, [[0, 1]])
    assert caught.value.path == path


def test_a_missing_copy_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableVideoError, match=r"gone\.raw"):
        header_of(tmp_path / "gone.raw")


def test_a_jpeg_that_does_not_decode_is_named(copies: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "rotten.jpegs"
    path.write_bytes(bytes(400) + copies["jpeg"].read_bytes()[400:])
    with pytest.raises(ChangedVideoError, match="a frame cannot be decoded"):
        read_copy(path, [[0, 1]])
    assert read_copy(path, [[20]]).any()


@pytest.mark.parametrize("store", STORES)
def test_a_copy_of_other_frames_is_refused(store: str, copies: dict[str, Path]) -> None:
    with pytest.raises(ChangedVideoError, match="other frames"):
        read_copy(copies[store], [[0]], content_hash="another")


@pytest.mark.parametrize("num_given", [3, 5])
@pytest.mark.parametrize("store", STORES)
def test_a_wrong_number_of_frames_leaves_no_file(
    store: str, num_given: int, video: Path, tmp_path: Path
) -> None:
    header = Header.of(index_video(video), store=store, short_side=SHORT_SIDE)
    header = Header(**{**vars(header), "num_frames": 4})
    with pytest.raises(ValueError, match=f"{num_given} frames, but 4"):
        write_copy(tmp_path / "copy.mp4", source_frames(video, range(num_given)), header)
    assert list(tmp_path.iterdir()) == []


# ----------------------------------------------------------------------------------------------------
# prepare


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
    assert header_of(copy.file).content_hash == index.content_hash

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


def test_raw_is_estimated_exactly_and_the_others_well(tmp_path: Path) -> None:
    videos = make_videos(tmp_path / "videos", 10, num_frames=40)
    library = Library(tmp_path / "home")
    for store in STORES:
        estimate = estimate_bytes(videos, library=library, store=store, short_side=SHORT_SIDE)
        written = prepare_here(videos, tmp_path / "home", store=store).num_bytes
        assert estimate == written if store == "raw" else 0.75 < estimate / written < 1.33
    assert estimate_bytes([], library=library) == 0


def test_too_little_space_is_refused_with_both_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    videos = make_videos(tmp_path / "videos", 1)
    library = Library(tmp_path / "home")
    needed = estimate_bytes(videos, library=library, store="raw", short_side=SHORT_SIDE)
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


PREPARE_SCRIPT = """
import sys
from pathlib import Path
from types import SimpleNamespace
from provico.data.cache import prepare
from provico.data.library import Library
home, videos, store = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
listed = [SimpleNamespace(path=path) for path in sorted(videos.glob("*.mp4"))]
prepare(listed, library=Library(home), store=store, short_side=48, num_workers=2)
"""


@pytest.mark.parametrize("store", STORES)
def test_a_killed_run_goes_on_where_it_stopped(store: str, tmp_path: Path) -> None:
    videos = make_videos(tmp_path / "videos", 8, num_frames=60)
    home, folder = tmp_path / "home", tmp_path / "home" / "prepared"
    process = subprocess.Popen(
        [sys.executable, "-c", PREPARE_SCRIPT, str(home), str(tmp_path / "videos"), store],
        start_new_session=True,
    )
    pattern = f"*{STORES[store].suffix}"
    deadline = time.monotonic() + 120
    while len(finished(folder, pattern)) < 2 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)  # the children too, in the middle of what they write
    process.wait()
    before = finished(folder, pattern)
    assert 2 <= len(before) < 8
    # The kill may or may not have hit a file in the making; make sure that there is one.
    leftover = folder / "00" / f".cut.1.partial{STORES[store].suffix}"
    leftover.parent.mkdir(exist_ok=True)
    leftover.write_bytes(b"half a file")

    report = prepare_here(videos, home, store=store, num_workers=2)

    assert report.failed == ()
    assert report.num_prepared + report.num_skipped == 8
    assert report.num_skipped == len(before)
    after = finished(folder, pattern)
    assert len(after) == 8
    assert before.items() <= after.items()
    assert [path for path in folder.rglob("*") if "partial" in path.name] == []
    for listed in videos:
        copy = Library(home).prepared(listed.path, short_side=SHORT_SIDE)
        assert copy is not None
        num_frames = header_of(copy.file).num_frames
        frames = source_frames(listed.path, range(num_frames))
        fresh = tmp_path / f"fresh{STORES[store].suffix}"
        write_copy(fresh, frames, header_of(copy.file))
        assert fresh.read_bytes() == copy.file.read_bytes()


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
