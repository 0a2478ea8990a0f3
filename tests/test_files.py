"""A file that is replaced is the old one or the new one, whatever happens on the way; locks keep apart."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from provico import files
from provico.files import (
    Lock,
    Signature,
    is_partial,
    remove_partials,
    replace_bytes,
    replace_rows,
    replace_text,
    replacing,
)


def test_text_bytes_and_rows_take_the_place_of_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    replace_text(path, "äöü\n")
    assert path.read_text(encoding="utf-8") == "äöü\n"
    replace_bytes(path, b"\0\r\n")
    assert path.read_bytes() == b"\0\r\n"
    odd = os.fsdecode(b"caf\xe9, \n.mp4")  # neither text nor free of what csv must quote
    replace_rows(path, ("path", "label"), [{"path": odd, "label": "run", "more": 1}, {"path": "b.mp4"}])
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        rows = list(csv.DictReader(file))
    assert rows == [{"path": odd, "label": "run"}, {"path": "b.mp4", "label": ""}]
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_appears_whole_also_in_place_of_an_empty_one(tmp_path: Path) -> None:
    for name in ("new", "empty"):
        out = tmp_path / name
        if name == "empty":
            out.mkdir()
        with replacing(out) as partial:
            (partial / "inner").mkdir(parents=True)
            (partial / "inner" / "a.txt").write_text("a")
            assert not any(path.is_file() for path in out.rglob("*"))
        assert (out / "inner" / "a.txt").read_text() == "a"
    with pytest.raises(OSError, match="not empty"), replacing(tmp_path / "new") as partial:
        partial.mkdir()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "new"]


def test_an_error_half_way_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    def rows() -> Iterator[dict[str, str]]:
        yield {"path": "a.mp4"}
        raise KeyboardInterrupt

    replace_text(tmp_path / "a.csv", "old")
    with pytest.raises(KeyboardInterrupt):
        replace_rows(tmp_path / "a.csv", ("path",), rows())
    assert (tmp_path / "a.csv").read_text() == "old"

    def write_folder() -> None:
        with replacing(tmp_path / "folder") as partial:
            (partial / "inner").mkdir(parents=True)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_folder()
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_two_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    with replacing(tmp_path / "a.txt") as one, replacing(tmp_path / "a.txt") as other:
        one.write_text("one")
        other.write_text("other")
    assert (tmp_path / "a.txt").read_text() == "one"  # the last to end
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_all_that_is_published_is_on_disk_before_its_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync", synced.append)
    with replacing(tmp_path / "folder") as partial:
        (partial / "inner").mkdir(parents=True)
        (partial / "inner" / "a.txt").write_text("a")
    *written, names = synced
    assert set(written) == {partial, partial / "inner", partial / "inner" / "a.txt"}
    assert names == tmp_path


def test_what_a_kill_leaves_is_recognised(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from provico.files import replacing\n"
        "with replacing(Path(sys.argv[1])) as partial:\n"
        "    partial.write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path / "a.mp4")], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert is_partial(left)
    assert left.suffix == ".mp4"
    (tmp_path / "b.partial.mp4").touch()  # a user's name
    remove_partials(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["b.partial.mp4"]


def test_locks_of_handles_keep_threads_of_one_process_apart(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with Lock(path, of="handle") as one, Lock(path, of="handle") as other:
        assert one.take()
        path.read_bytes()  # reading the locked file does not release it
        assert not other.take(wait=False)
        assert one.take(is_shared=True)
        assert other.take(is_shared=True, wait=False)
    with Lock(path, of="handle") as one:
        assert one.take(wait=False)


HOLD = """
import os, sys, time
from pathlib import Path
from provico.files import Lock

with Lock(Path(sys.argv[1]), of=sys.argv[2]) as lock:
    lock.take()
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    print(child, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(("kind", "is_free"), [("process", True), ("handle", False)])
def test_after_a_kill_only_a_lock_of_a_handle_is_held_by_forked_processes(
    tmp_path: Path, kind: str, is_free: bool
) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        try:
            with Lock(path, of=kind) as lock:
                assert not lock.take(wait=False)
            holder.kill()
            holder.wait()
            with Lock(path, of=kind) as lock:
                assert lock.take(wait=False) == is_free
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_signature_tells_a_changed_file_from_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    assert Signature.of(path) == (-1, -1)
    path.write_bytes(b"abc")
    before = Signature.of(path)
    assert before == Signature.of(path) == (3, path.stat().st_mtime_ns)
    os.utime(path, ns=(0, before.modified_ns + 1))
    assert Signature.of(path) != before
