"""The library remembers what is still true, and nothing else."""

from __future__ import annotations

import os
import pickle
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from provico.data import library as library_module
from provico.data.library import Library, PreparedCopy
from provico.errors import ConfigError, UnreadableVideoError
from provico.files import home_folder


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


def spoil_all(path: Path) -> None:
    path.write_bytes(b"garbage " * 4000)


def spoil_the_end(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 + 100])


def spoil_pages(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)


def spoil_columns(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as other:
        other.execute("create table videos (name text)")
    other.close()


@pytest.mark.parametrize("spoil", [spoil_all, spoil_the_end, spoil_pages, spoil_columns])
def test_a_damaged_library_is_set_aside_and_made_again(make_video, tmp_path, decodes, spoil, caplog):
    home = tmp_path / "home"
    path = make_video(tmp_path / "a.mp4", 12)
    Library(home).index(path)
    spoil(home / "library.sqlite")
    assert Library(home).index(path).num_frames == 12
    assert Library(home).recall(path) is not None
    assert len(decodes) == 2
    (aside,) = home.glob("library.damaged-*.sqlite")
    assert str(aside) in caplog.text


def test_one_that_is_damaged_while_it_is_open_too(make_video, tmp_path, caplog):
    home = tmp_path / "home"
    library = Library(home)
    path = make_video(tmp_path / "a.mp4", 12)
    library.index(path)
    spoil_all(home / "library.sqlite")
    library.remember_features(path, np.ones((2, 3), np.float32), maker="m")
    assert library.index(path).num_frames == 12
    assert len([*home.glob("library.damaged-*.sqlite")]) == 1


@pytest.mark.parametrize("blob", [b"", b"PVIX1\n{}\n", b"PVIX1\n[", "text", 7, b"PVIX1\n" + b"\xff" * 50])
def test_what_is_damaged_of_one_video_is_made_again(make_video, tmp_path, decodes, blob):
    library = Library(tmp_path / "home")
    path = make_video(tmp_path / "a.mp4", 12)
    library.index(path)
    library.remember_features(path, np.ones((2, 3), np.float32), maker="m")
    library.remember_prepared(path, PreparedCopy("jpeg", path), short_side=64)
    with sqlite3.connect(tmp_path / "home" / "library.sqlite") as other:
        other.execute("update videos set frame_index = ?", (blob,))
        other.execute("update features set numbers = ?", (blob,))
        other.execute("update prepared set file = ?", (blob,))
    other.close()
    assert library.index(path).num_frames == 12
    assert len(decodes) == 2
    assert library.features(path, maker="m") is None
    assert library.prepared(path, short_side=64) is None


def test_only_this_user_can_look_into_it(make_video, tmp_path):
    library = Library(tmp_path / "home")
    library.index(make_video(tmp_path / "a.mp4", 12))
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700
