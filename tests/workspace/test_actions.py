"""What is done with videos is logged before a file is touched, stays in the folder, and can be undone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from provico.errors import ConfigError, ConflictError
from provico.files import Signature
from provico.workspace.actions import ActionLog, ActionTarget

NAMES = ("a.mp4", "deep/b.mp4", "deep/c.mp4")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "videos"
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    (folder / ".provico").mkdir()
    return folder


@pytest.fixture
def opened(root: Path) -> Callable[[], ActionLog]:
    return lambda: ActionLog(root / ".provico", root=root)


def wanted(root: Path, *names: str) -> list[ActionTarget]:
    return [ActionTarget(id=name, path=root / name, file=Signature.of(root / name)) for name in names]


def there(root: Path) -> set[str]:
    return {name for name in NAMES if (root / name).exists()}


def test_the_trash_and_the_way_back(root: Path, opened: Callable[[], ActionLog]) -> None:
    log = opened()
    done = log.do("trash", wanted(root, "a.mp4", "deep/b.mp4"), seen=0)
    assert (done.ids, done.failed) == (("a.mp4", "deep/b.mp4"), {})
    assert there(root) == {"deep/c.mp4"}
    assert (root / ".provico/trash/1/deep/b.mp4").read_bytes() == b"deep/b.mp4"
    assert opened().gone() == {"a.mp4", "deep/b.mp4"}
    with pytest.raises(ConflictError):  # another tab, which has not seen it
        opened().do("trash", wanted(root, "deep/c.mp4"), seen=0)
    with pytest.raises(ConflictError):
        opened().undo(seen=0)
    # Something else has taken the place of one of the two: nothing is overwritten.
    (root / "a.mp4").write_bytes(b"another")
    undone = log.undo(seen=1)
    assert (undone.ids, list(undone.failed)) == (("deep/b.mp4",), ["a.mp4"])
    assert (root / "a.mp4").read_bytes() == b"another"
    assert (root / ".provico/trash/1/a.mp4").read_bytes() == b"a.mp4"
    assert log.undo().action is None


def test_moving_linking_and_tagging_can_be_undone_one_after_the_other(
    root: Path, opened: Callable[[], ActionLog]
) -> None:
    log = opened()
    log.do("tag", wanted(root, *NAMES), to=" my  tag ")
    log.do("untag", wanted(root, "a.mp4"), to="my tag")
    assert log.read().tags == {"deep/b.mp4": ["my tag"], "deep/c.mp4": ["my tag"]}
    log.do("move", wanted(root, "deep/b.mp4"), to="sorted/dogs")
    assert (root / "sorted/dogs/b.mp4").exists()
    assert there(root) == {"a.mp4", "deep/c.mp4"}
    clean = root / ".provico/clean"
    log.do("link", wanted(root, "a.mp4", "deep/c.mp4"))
    assert (clean / "deep/c.mp4").samefile(root / "deep/c.mp4")
    again = opened()
    assert again.undo().ids == ("a.mp4", "deep/c.mp4")
    assert not [path for path in clean.rglob("*") if path.is_file()]
    assert there(root) == {"a.mp4", "deep/c.mp4"}
    again.undo()
    assert there(root) == set(NAMES)
    again.undo()
    assert again.read().tags["a.mp4"] == ["my tag"]


def test_a_video_that_was_moved_keeps_its_tags(root: Path, opened: Callable[[], ActionLog]) -> None:
    log = opened()
    log.do("tag", wanted(root, "deep/b.mp4"), to="dog")
    log.do("move", wanted(root, "deep/b.mp4"), to="sorted")
    # Until the folder is read again, the video has its former name.
    assert log.read().tags == {"deep/b.mp4": ["dog"], "sorted/b.mp4": ["dog"]}
    log.do("move", wanted(root, "sorted/b.mp4"), to="sorted/dogs")
    log.do("untag", wanted(root, "sorted/dogs/b.mp4"), to="dog")
    log.do("tag", wanted(root, "sorted/dogs/b.mp4"), to="cat")
    assert opened().read().tags["sorted/dogs/b.mp4"] == ["cat"]
    for _ in range(4):
        log.undo()
    assert log.read().tags == {"deep/b.mp4": ["dog"]}
    assert (root / "deep/b.mp4").exists()


def test_where_there_are_no_links_the_clean_copy_holds_copies(
    root: Path, opened: Callable[[], ActionLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(source: Path, to: Path) -> None:
        raise OSError("another disk")

    monkeypatch.setattr(os, "link", refused)
    log, clean = opened(), root / ".provico/clean"
    assert log.do("link", wanted(root, "a.mp4", "deep/b.mp4")).failed == {}
    assert (clean / "deep/b.mp4").read_bytes() == b"deep/b.mp4"
    assert not (clean / "deep/b.mp4").samefile(root / "deep/b.mp4")
    assert sorted(path.name for path in clean.rglob("*") if path.is_file()) == ["a.mp4", "b.mp4"]
    assert log.undo().ids == ("a.mp4", "deep/b.mp4")
    assert not [path for path in clean.rglob("*") if path.is_file()]


def test_an_undo_that_was_cut_short_is_finished(root: Path, opened: Callable[[], ActionLog]) -> None:
    opened().do("trash", wanted(root, "a.mp4", "deep/b.mp4"))
    with (root / ".provico/actions.jsonl").open("a") as file:
        file.write(json.dumps({"undo": 1}) + "\n")  # as a kill would leave it: said, and not done
        file.write('{"do": "trash", "ids": ["deep/c.')
    assert opened().gone() == frozenset()
    assert there(root) == set(NAMES)
    assert opened().do("trash", wanted(root, "deep/c.mp4"), seen=2).ids == ("deep/c.mp4",)
    assert opened().gone() == {"deep/c.mp4"}


def test_an_action_that_was_cut_short_is_what_was_done_of_it(
    root: Path, opened: Callable[[], ActionLog]
) -> None:
    opened().do("trash", wanted(root, "a.mp4", "deep/b.mp4"))
    (root / ".provico/trash/1/deep/b.mp4").rename(root / "deep/b.mp4")  # as if it had not been moved yet
    assert opened().gone() == {"a.mp4"}
    assert opened().undo().ids == ("a.mp4",)


def test_nothing_outside_of_the_folder_is_touched(
    root: Path, opened: Callable[[], ActionLog], tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious.mp4").write_bytes(b"precious")
    (root / "way out").symlink_to(outside)
    (root / "link.mp4").symlink_to(outside / "precious.mp4")
    changed = wanted(root, "a.mp4")
    (root / "a.mp4").write_bytes(b"another file by now")
    names = ["way out/precious.mp4", "../outside/precious.mp4", "link.mp4", "gone.mp4"]
    done = opened().do("trash", [*wanted(root, *names), *changed])
    assert done.ids == ()
    assert {*done.failed} == {*names, "a.mp4"}
    assert "changed" in done.failed["a.mp4"]
    for to in ("../outside", "/tmp", "way out", ".hidden", "", "a/../../outside"):
        with pytest.raises(ConfigError):
            opened().do("move", wanted(root, "deep/b.mp4"), to=to)
    assert (outside / "precious.mp4").read_bytes() == b"precious"
    assert [*outside.iterdir()] == [outside / "precious.mp4"]


@pytest.mark.parametrize(
    "line",
    [
        {"do": "trash", "ids": ["x"], "to": "", "places": [["a.mp4", "../../outside.mp4"]]},
        {"do": "move", "ids": ["x"], "to": "", "places": [["a.mp4", "../../outside.mp4"]]},
        {"do": "trash", "ids": ["x"], "to": "", "places": [["/etc/passwd", "trash/1/passwd"]]},
        {"do": "burn", "ids": ["x"], "to": "", "places": []},
        {"do": "trash", "ids": ["x", "y"], "to": "", "places": [["a.mp4", "trash/1/a.mp4"]]},
        {"undo": 7},
        [],
    ],
)
def test_a_tampered_log_leads_nowhere(root: Path, opened: Callable[[], ActionLog], line: object) -> None:
    (root.parent / "outside.mp4").write_bytes(b"precious")
    (root / ".provico/actions.jsonl").write_text(json.dumps(line) + "\n")
    log = opened()
    assert (log.read().held, log.read().lines) == ([], 1)
    assert log.undo().action is None
    assert (root.parent / "outside.mp4").exists()
    assert there(root) == set(NAMES)


def test_files_are_not_moved_where_that_is_not_possible(root: Path, tmp_path: Path) -> None:
    log = ActionLog(tmp_path, root=None)
    with pytest.raises(ConfigError, match="provico open"):
        log.do("trash", wanted(root, "a.mp4"))
    assert log.do("tag", wanted(root, "a.mp4"), to="x").ids == ("a.mp4",)
    if os.geteuid():
        root.chmod(0o500)
        assert "cannot be written" in (ActionLog(root / ".provico", root=root).why_not or "")
        root.chmod(0o700)
