"""A scan tells good files from bad ones, flags what looks wrong, and goes on where it stopped."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from provico.data.catalog import open_catalog
from provico.data.child_process import CallLimits
from provico.data.frames.encode import write_video
from provico.data.frames.video import index_video
from provico.data.isolated import run_isolated
from provico.data.library import Library
from provico.data.scan import _index_or_refuse, scan
from provico.errors import UnreadableVideoError

NUM_SCANNED = 24
SCAN_SCRIPT = """
import signal, sys
from provico.data.catalog import open_catalog
from provico.data.scan import scan
scan(open_catalog(sys.argv[1]), num_workers=1, progress=lambda done, total: done < 16 or signal.pause())
"""
"""A scan that does not end: however long the test waits for its turn on a busy machine, it is midway."""


@pytest.fixture(scope="module")
def written(make_video, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    make_video(folder / "good.mp4", 40)
    make_video(folder / "short.mp4", 9, start=200)
    make_video(folder / "twin-a.mp4", 20, start=60)
    make_video(folder / "twin-b.mkv", 20, start=60)
    write_video(folder / "black.mp4", [np.zeros((48, 64, 3), np.uint8)] * 20)
    write_video(folder / "frozen.mp4", [np.full((48, 64, 3), 90, np.uint8)] * 20)
    damaged = make_video(folder / "damaged.mp4", 60, gop_size=10, start=300)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 3 : len(content) // 3 + 900] = b"\xff" * 900
    damaged.write_bytes(content)
    (folder / "empty.mp4").touch()
    return folder


@pytest.fixture
def collection(written, tmp_path):
    return shutil.copytree(written, tmp_path / "videos")


def test_every_file_is_described(collection, tmp_path):
    seen: list[tuple[int, int]] = []
    report = scan(open_catalog(collection), num_workers=2, progress=lambda *at: seen.append(at))
    rows = {Path(video.path).name: video for video in report.videos}
    assert {name: row.flags for name, row in rows.items() if row.flags} == {
        "short.mp4": "short",
        "twin-b.mkv": "duplicate",
        "black.mp4": "black frozen",
        "frozen.mp4": "frozen",
        "damaged.mp4": "damaged",
    }
    assert rows["twin-b.mkv"].duplicate_of == rows["twin-a.mp4"].path
    assert rows["good.mp4"].frames == 40
    assert (rows["good.mp4"].width, rows["good.mp4"].height, rows["good.mp4"].fps) == (160, 96, 25.0)
    assert rows["good.mp4"].duration_seconds == pytest.approx(1.6, abs=1e-3)
    assert [row.path for row in report.unreadable] == [rows["empty.mp4"].path]
    assert "cannot be opened" in report.unreadable[0].reason
    assert seen[-1] == (8, 8)


def test_the_manifest_is_a_catalog_of_the_readable_videos(collection, tmp_path):
    manifest = scan(open_catalog(collection)).write(tmp_path / "scan")
    assert len(open_catalog(manifest)) == 7
    names = {video.id: video.path for video in open_catalog(collection)}
    assert all(names[video.id] == video.path for video in open_catalog(manifest))
    bad = list(csv.DictReader((tmp_path / "scan" / "bad_videos.csv").read_text().splitlines()))
    assert [Path(row["path"]).name for row in bad] == ["empty.mp4"]
    summary = json.loads((tmp_path / "scan" / "summary.json").read_text())
    assert (summary["videos"], summary["readable"], summary["flags"]["duplicate"]) == (8, 7, 1)


def test_what_is_known_is_not_decoded_again(collection, monkeypatch):
    first = scan(open_catalog(collection))

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a known file was decoded again")

    monkeypatch.setattr("provico.data.scan.index_video", refuse)
    monkeypatch.setattr("provico.data.child_process.Child._start", refuse)
    assert scan(open_catalog(collection)).videos == first.videos


def test_a_killed_scan_goes_on_where_it_stopped(make_video, tmp_path):
    folder = tmp_path / "videos"
    folder.mkdir()
    make_video(folder / "000.mp4", 60)
    for number in range(1, NUM_SCANNED):
        shutil.copy(folder / "000.mp4", folder / f"{number:03}.mp4")
    home = tmp_path / "home"
    process = subprocess.Popen(
        [sys.executable, "-c", SCAN_SCRIPT, folder], env={**os.environ, "PROVICO_HOME": str(home)}
    )
    library = Library(home)
    catalog = open_catalog(folder)

    def known() -> list[bool]:
        return [library.recall(video.path) is not None for video in catalog]

    while library.recall(catalog[2].path) is None:
        assert process.poll() is None, "the scan ended before it could be killed"
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 1 <= sum(known()) < NUM_SCANNED, "the process was not killed midway"
    report = scan(catalog, library=library)
    assert report.summary()["readable"] == NUM_SCANNED
    assert all(known())


def test_a_vanished_file_is_reported(collection):
    catalog = open_catalog(collection)
    (collection / "good.mp4").unlink()
    report = scan(catalog)
    assert [row.reason.split(" (")[0] for row in report.unreadable] == [
        "it cannot be opened as a video",
        "there is no such file",
    ]


def test_a_file_that_takes_too_much_memory_is_named_and_tried_again_next_time(tmp_path):
    """Sixteen pictures are kept for reference, however small the file."""
    path = tmp_path / "large.mp4"
    options = {"preset": "ultrafast", "refs": "16", "x264-params": "ref=16"}
    write_video(path, np.zeros((24, 1080, 1920, 3), np.uint8), encoder_options=options)
    limits = CallLimits(silent_seconds=300, memory_bytes=16 * 2**20)
    index = partial(_index_or_refuse, timeout_seconds=300)
    (outcome,) = run_isolated(index, [path], num_workers=1, limits=limits)
    said = outcome.failure or str(outcome.result)
    assert "more memory than" in said
    (outcome,) = run_isolated(index, [path], num_workers=1, limits=CallLimits(silent_seconds=300))
    assert isinstance(outcome.result, bytes)


def test_pictures_that_no_decoder_should_hold_are_refused_at_once(tmp_path):
    path = tmp_path / "bomb.gif"
    size = struct.pack("<HH", 16000, 8000)
    picture = b"\x2c" + bytes(4) + size + b"\x00\x02\x01\x44\x00"
    path.write_bytes(b"GIF89a" + size + b"\x80\x00\x00" + bytes(6) + 50 * picture + b"\x3b")
    with pytest.raises(UnreadableVideoError, match="16000 x 8000 pixels, which would take more than 1024 MB"):
        index_video(path)
