"""Decoding takes no more memory than it may; a file that would is refused by name."""

from __future__ import annotations

import resource
import threading
from pathlib import Path

import numpy as np
import pytest

from provico.data import memory
from provico.data.frames import video
from provico.data.frames.video import KeptFrames, index_video, read_frames
from provico.data.memory import GIGABYTE, limited
from provico.errors import UnreadableVideoError, VideoMemoryError

from ..abuse.swollen import write_growing, write_line, write_many_streams, write_slow

MEGABYTE = 2**20


@pytest.fixture
def in_a_process_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory._Process, "is_ours", True)
    monkeypatch.setattr(memory, "DECODING_BYTES", 32 * MEGABYTE)


def soft_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_DATA)[0]


@pytest.mark.usefixtures("in_a_process_of_ours")
def test_what_a_file_takes_is_limited_and_nothing_else() -> None:
    before = soft_limit()
    with pytest.raises(VideoMemoryError, match=r"a\.mp4: decoding it takes more memory"), limited("a.mp4"):
        np.ones(GIGABYTE, np.uint8)
    assert soft_limit() == before
    with limited("a.mp4", more_bytes=GIGABYTE):
        assert soft_limit() != before
        np.empty(GIGABYTE, np.uint8)  # what the caller asked for
    np.empty(GIGABYTE, np.uint8)
    assert soft_limit() == before


@pytest.mark.usefixtures("in_a_process_of_ours")
def test_files_that_are_decoded_together_keep_what_each_may_take() -> None:
    before = soft_limit()
    begun, ended = threading.Event(), threading.Event()

    def other() -> None:
        with limited("b.mp4"):
            begun.set()
            ended.wait()

    with limited("a.mp4", more_bytes=GIGABYTE):
        thread = threading.Thread(target=other)
        thread.start()
        begun.wait()
        np.empty(GIGABYTE, np.uint8)
    assert soft_limit() != before  # the other one goes on
    ended.set()
    thread.join()
    assert soft_limit() == before


def test_a_process_of_somebody_else_is_not_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory._Process, "is_ours", False)  # other tests run commands in this process
    before = soft_limit()
    with limited("a.mp4"):
        assert soft_limit() == before
    with pytest.raises(VideoMemoryError, match=r"a\.mp4"), limited("a.mp4"):
        raise MemoryError


def test_more_streams_than_anybody_needs(tmp_path: Path) -> None:
    path = tmp_path / "streams.mp4"
    write_many_streams(path, memory.MAX_STREAMS)
    assert index_video(path).num_frames == 4
    write_many_streams(path, memory.MAX_STREAMS + 1)
    with pytest.raises(VideoMemoryError, match="over 256 streams"):
        index_video(path)


def test_a_line_of_pixels(tmp_path: Path) -> None:
    write_line(tmp_path / "line.gif")
    with pytest.raises(UnreadableVideoError, match="32768 x 2 pixels, but the longer side"):
        index_video(tmp_path / "line.gif")


def test_pictures_that_grow_on_the_way_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "growing.h264"
    write_growing(path, 640, 480)
    monkeypatch.setattr(video, "MAX_KEPT_BYTES", MEGABYTE)
    kept = KeptFrames()
    index = index_video(path, keep=kept)
    assert index.num_frames == 24
    assert (index.facts.width, index.facts.height) == (64, 48)
    assert kept.frames == []
    assert read_frames(path, [0, 23], index=index).shape == (2, 48, 64, 3)


def test_enormous_durations(tmp_path: Path) -> None:
    path = tmp_path / "years.mkv"
    write_slow(path, 10**9, 20)
    index = index_video(path)
    assert index.num_frames == 20
    assert 9e8 < index.duration_seconds < 1.1e9
