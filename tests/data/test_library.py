"""The library remembers what is still true, and nothing else."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from provico.data import library as library_module
from provico.data.library import Library, PreparedCopy, home_folder
from provico.errors import ConfigError, UnreadableVideoError


@pytest.fixture
def decodes(monkeypatch):
    """Counts how often a file is really decoded."""
    calls: list[Path] = []
    really = library_module.index_video

    def counted(path, **options):
        calls.append(path)
        return really(path, **options)

    monkeypatch.setattr(library_module, "index_video", counted)
    return calls


def test_a_file_is_decoded_once(make_video, tmp_path, decodes):
    path = make_video(tmp_path / "a.mp4", 12)
    first = Library(tmp_path / "home").index(path)
    again = Library(tmp_path / "home").index(path)
    assert len(decodes) == 1
    assert np.array_equal(first.signatures, again.signatures)


def test_a_changed_file_is_decoded_again(make_video, tmp_path, decodes):
    library = Library(tmp_path / "home")
    path = make_video(tmp_path / "a.mp4", 12)
    library.index(path)
    make_video(path, 20)
    assert library.index(path).num_frames == 20
    assert len(decodes) == 2


def test_the_same_file_by_another_name_is_known(make_video, tmp_path, decodes):
    path = make_video(tmp_path / "a.mp4", 12)
    (tmp_path / "link.mp4").symlink_to(path)
    library = Library(tmp_path / "home")
    library.index(path)
    library.index(tmp_path / "link.mp4")
    assert len(decodes) == 1


def test_an_unreadable_file_is_remembered_with_its_reason(tmp_path, decodes):
    path = tmp_path / "a.mp4"
    path.write_text("no video")
    for _ in range(2):
        with pytest.raises(UnreadableVideoError, match="cannot be opened"):
            Library(tmp_path / "home").index(path)
    assert len(decodes) == 1


def test_names_that_are_not_text(make_video, tmp_path):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.mp4"))
    make_video(tmp_path / "a.mp4", 12).rename(path)
    library = Library(tmp_path / "home")
    assert library.index(path).num_frames == 12
    assert library.recall(path) is not None


def test_prepared_copies_are_forgotten_with_their_source(make_video, tmp_path):
    library = Library(tmp_path / "home")
    path, copy = make_video(tmp_path / "a.mp4", 12), tmp_path / "copy.jpegs"
    copy.touch()
    library.remember_prepared(path, PreparedCopy("jpeg", copy), short_side=64)
    assert library.prepared(path, short_side=64) == PreparedCopy("jpeg", copy)
    assert library.prepared(path, short_side=128) is None
    copy.unlink()
    assert library.prepared(path, short_side=64) is None
    copy.touch()
    make_video(path, 13)
    assert library.prepared(path, short_side=64) is None


def test_many_processes_write_at_once(make_video, tmp_path):
    paths = [make_video(tmp_path / f"{number}.mp4", 8, start=number) for number in range(6)]
    script = "import sys; from provico.data.library import Library; Library().index(sys.argv[1])"
    environment = {**os.environ, "PROVICO_HOME": str(tmp_path / "home")}
    processes = [subprocess.Popen([sys.executable, "-c", script, path], env=environment) for path in paths]
    assert [process.wait(timeout=500) for process in processes] == [0] * 6
    library = Library(tmp_path / "home")
    assert all(library.recall(path) is not None for path in paths)


def test_a_pickled_library_opens_its_own_connection(make_video, tmp_path):
    library = Library(tmp_path / "home")
    path = make_video(tmp_path / "a.mp4", 8)
    library.index(path)
    assert pickle.loads(pickle.dumps(library)).recall(path) is not None


FORKING = """
import functools, gc, os, sqlite3, sys
from pathlib import Path
from provico.data.library import Library

class Watched(sqlite3.Connection):
    def __del__(self):
        print("closed", flush=True)

sqlite3.connect = functools.partial(sqlite3.connect, factory=Watched)
library, video = Library(Path(sys.argv[1])), sys.argv[2]
library.index(video)
if (child := os.fork()) == 0:
    print(library.recall(video).num_frames, flush=True)
    gc.collect()
    os._exit(0)
os.waitpid(child, 0)
print(library.recall(video).num_frames, flush=True)
os._exit(0)
"""


def test_a_forked_child_does_not_close_the_connection_of_its_parent(make_video, tmp_path):
    make_video(tmp_path / "a.mp4", 10)
    command = [sys.executable, "-c", FORKING, tmp_path / "home", tmp_path / "a.mp4"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["10", "10"]


def test_a_folder_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="PROVICO_HOME"):
        Library(tmp_path / "file" / "home").recall(__file__)


def test_home_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("PROVICO_HOME", str(tmp_path))
    assert home_folder() == tmp_path
    monkeypatch.delenv("PROVICO_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert home_folder() == tmp_path / "cache" / "provico"
