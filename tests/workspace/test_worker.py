"""The worker waits for words and for files, and says when it ended before its time."""

from __future__ import annotations

import queue
import shutil
import threading
import time
from pathlib import Path

import pytest

from provico.workspace import worker
from provico.workspace.folder import Workspace
from provico.workspace.status import StatusWriter
from provico.workspace.worker import Worker, WorkerOptions, _Working


def test_new_files_are_seen_when_they_stand_still(
    colour_videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "SECONDS_BETWEEN_LISTINGS", 0.05)
    videos = tmp_path / "videos"
    videos.mkdir()
    source = next(colour_videos.rglob("*.mp4"))
    shutil.copy(source, videos / "a.mp4")
    told: queue.Queue[str] = queue.Queue()
    working = _Working(Workspace.open(videos), WorkerOptions(watch=True), told)
    before, woken = working._listing(), list[str]()
    waiting = threading.Thread(target=lambda: woken.append(working._wait(before)))
    waiting.start()
    time.sleep(0.3)
    assert woken == []
    shutil.copy(source, videos / "b.mp4")
    waiting.join(60)
    assert woken == ["update"]
    told.put("learn")
    assert working._wait(None) == "learn"


def test_it_says_what_went_wrong_waits_for_words_and_ends_with_its_parent(tmp_path: Path) -> None:
    videos = tmp_path / "videos"
    videos.mkdir()
    workspace = Workspace.open(videos)
    one = Worker(workspace, WorkerOptions())
    one.start()
    while one.status().is_working:
        time.sleep(0.05)
    assert "There is no video in" in (one.status().problem or "")
    companion = one._companion
    assert companion is not None
    assert companion.is_running
    one.close()
    assert not companion.is_running
    companion.tell("nobody hears this")


def test_work_that_ended_before_it_was_done_is_said(tmp_path: Path) -> None:
    videos = tmp_path / "videos"
    videos.mkdir()
    workspace = Workspace.open(videos)
    StatusWriter(workspace.path, stages=["list"], is_watching=False)
    status = Worker(workspace, WorkerOptions()).status()
    assert (status.is_working, status.problem) == (False, "The work stopped before it was finished.")


def test_what_was_told_and_not_yet_heard_is_work_to_be_done(tmp_path: Path) -> None:
    """Nobody sees the end of the work before in place of that of the work that was asked for."""
    videos = tmp_path / "videos"
    videos.mkdir()
    one = Worker(Workspace.open(videos), WorkerOptions())
    one.start()
    try:
        for number in range(3):
            while one.status().is_working:
                time.sleep(0.05)
            assert one.status().num_heard == number
            one.tell("update")
            status = one.status()
            assert status.is_working or status.num_heard == number + 1
    finally:
        one.close()


def test_what_changes_during_the_work_is_seen_after_it(
    colour_videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the first video of a folder that had none."""
    monkeypatch.setattr(worker, "SECONDS_BETWEEN_LISTINGS", 0.05)
    videos = tmp_path / "videos"
    videos.mkdir()
    working = _Working(Workspace.open(videos), WorkerOptions(watch=True), queue.Queue())
    before = working._listing()
    shutil.copy(next(colour_videos.rglob("*.mp4")), videos / "a.mp4")
    assert working._wait(before) == "update"
