"""Copies hold the frames of the video in every store, and a damaged copy is named, never read."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from provico.data.frames.frame_file import Header
from provico.data.frames.stores import STORES, header_of, read_copy, write_copy
from provico.data.frames.video import index_video, read_frames
from provico.errors import ChangedVideoError, UnreadableVideoError, VideoError

from .moving_videos import SHORT_SIDE, make_videos, psnr, source_frames


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
        read_copy(copies[store], [[0]], frames_hash="another")


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
