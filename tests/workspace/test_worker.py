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
    woken: list[str] = []
    waiting = threading.Thread(target=lambda: woken.append(working._wait()))
    waiting.start()
    time.sleep(0.3)
    assert woken == []
    shutil.copy(source, videos / "b.mp4")
    waiting.join(60)
    assert woken == ["update"]
    told.put("learn")
    assert working._wait() == "learn"


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
