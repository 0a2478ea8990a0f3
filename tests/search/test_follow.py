"""What people said of a video is said of its file, wherever that goes and whatever is killed meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from provico.curation.decisions import DecisionLog
from provico.curation.folder import CurationFolder
from provico.data.catalog import Catalog, open_catalog
from provico.data.library import Library
from provico.duplicates.kept import KeptDuplicates, ordered
from provico.files import Signature
from provico.models import Encoder
from provico.search.follow import names_state_of, read_gone, remember, unsettled
from provico.search.index import Index
from provico.search.judgements import Judgement
from provico.search.lots import LotFile
from provico.search.store.folder import NAMES_LOCK_NAME
from provico.search.store.lance import LanceStore
from provico.workspace.actions import ActionLog, ActionTarget

RED, GREY, BLUE, GREEN = (f"{colour}/0.mp4" for colour in ("red", "grey", "blue", "green"))
MOMENTS = ((LotFile, "rename"), (LanceStore, "write"), (LanceStore, "remove"))
"""A kill may come between two logs, before any row has another name, and when some have two."""


@dataclass(frozen=True)
class Said:
    """An index of some videos, of which people said something."""

    videos: Path
    index: Index
    library: Library

    def add(self, catalog: Catalog | None = None) -> None:
        self.index.add(catalog or open_catalog(self.videos), prune=True, library=self.library)

    def move(self, *names: tuple[str, str]) -> None:
        """Files, all at once."""
        for old, _ in names:
            (self.videos / old).rename(self.videos / f"{old}.moved")
        for old, new in names:
            (self.videos / new).parent.mkdir(exist_ok=True)
            (self.videos / f"{old}.moved").rename(self.videos / new)

    @property
    def decisions(self) -> DecisionLog:
        return CurationFolder.of(self.index.path).decisions

    def decided(self) -> dict[str, str]:
        return {name: one.choice for name, one in self.decisions.current().items()}

    def judged(self) -> dict[tuple[str, str], str]:
        return {pair: one.verdict for pair, one in self.index.judgements.read().current.items()}

    def drawn(self) -> list[str]:
        return [one.query for one in LotFile(self.index.path).read()[0].drawn]


@pytest.fixture
def said(encoder: Encoder, colour_videos: Path, library: Library, tmp_path: Path) -> Said:
    videos = Path(shutil.copytree(colour_videos / "test", tmp_path / "videos"))
    index = Index.create(tmp_path / "index", encoder, num_clips=3)
    found = Said(videos, index, library)
    found.add()
    index.select(num=7, by_lot=True, max_error=0.6)
    found.decisions.record(RED, "drop")
    found.decisions.record(BLUE, "keep")
    index.judge([Judgement(query=RED, hit=BLUE, verdict="right")])
    return found


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Does something that is killed when it comes to a function."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def run(doing: Callable[[], None], where: tuple[type, str]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(*where, interrupted)
            with pytest.raises(KeyboardInterrupt):
                doing()

    return run


def check(said: Said, red: str, blue: str) -> None:
    """All is said of the two files by what they are called now, and of nothing else."""
    assert said.decided() == {red: "drop", blue: "keep"}
    assert said.judged() == {(red, blue): "right"}
    names = {RED: red, BLUE: blue}
    there = {path.relative_to(said.videos).as_posix() for path in said.videos.rglob("*.mp4")}
    assert {names.get(name, name) for name in (RED, BLUE)} <= {*said.drawn()}
    assert {*said.drawn()} <= there
    assert unsettled(said.index.path) == frozenset()
    assert read_gone(said.index.path) == {}


def test_what_people_said_goes_with_the_file(
    encoder: Encoder, colour_videos: Path, library: Library, tmp_path: Path, killed: Callable[..., None]
) -> None:
    """Decisions, tags, judgements, lots and rejected pairs: of what was moved or swapped, not of copies."""
    videos = Path(shutil.copytree(colour_videos / "test", tmp_path / "videos"))
    index = Index.create(tmp_path / "index", encoder, num_clips=3)
    index.add(open_catalog(videos), library=library)
    names = {RED: "films/one.mp4", BLUE: GREEN, GREEN: BLUE}
    decisions, kept = CurationFolder.of(index.path).decisions, KeptDuplicates(index.path)
    actions = ActionLog(index.path, root=None)
    for name, choice in ((RED, "keep"), (RED, "drop"), (GREY, "drop"), (BLUE, "keep"), (GREEN, "drop")):
        decisions.record(name, choice)
    file = Signature.of(videos / RED)
    actions.do("tag", [ActionTarget(id=RED, path=videos / RED, file=file)], to="dog")
    lot = index.select(num=7, by_lot=True, max_error=0.6)
    assert {one.query for one in lot} >= names.keys()
    index.judge(
        [Judgement(query=RED, hit=BLUE, verdict="right"), Judgement(query=GREY, hit=RED, verdict="wrong")]
    )
    kept.reject([(RED, GREEN), (GREY, BLUE)])
    (videos / "films").mkdir()
    (videos / RED).rename(videos / "films" / "one.mp4")
    shutil.copy(videos / GREY, videos / "films" / "two.mp4")
    (videos / BLUE).rename(videos / "swap")
    (videos / GREEN).rename(videos / BLUE)
    (videos / "swap").rename(videos / GREEN)

    def check() -> None:
        choices = {name: one.choice for name, one in decisions.current().items()}
        assert choices == {"films/one.mp4": "drop", GREY: "drop", GREEN: "keep", BLUE: "drop"}
        assert all(name == one.id for name, one in decisions.current().items())
        assert actions.read().tags == {"films/one.mp4": ["dog"]}
        judged = {pair: one.verdict for pair, one in index.judgements.read().current.items()}
        assert judged == {("films/one.mp4", GREEN): "right", (GREY, "films/one.mp4"): "wrong"}
        assert kept.rejected() == {ordered("films/one.mp4", BLUE), ordered(GREY, GREEN)}
        drawn = [(one.query, one.hit) for one in LotFile(index.path).read()[0].drawn]
        assert drawn == [(names.get(one.query, one.query), names.get(one.hit, one.hit)) for one in lot]

    def add() -> None:
        index.add(open_catalog(videos), library=library)

    for where in MOMENTS:
        killed(add, where)
    add()
    check()
    add()
    check()
    assert decisions.undo() == BLUE
    assert decisions.undo() == GREEN
    assert [decisions.undo(), decisions.undo()] == [GREY, "films/one.mp4"]
    assert {name: one.choice for name, one in decisions.current().items()} == {"films/one.mp4": "keep"}


@pytest.mark.parametrize("where", MOMENTS, ids=lambda where: ".".join((where[0].__name__, where[1])))
@pytest.mark.parametrize("then", [("films/0.mp4", "a/1.mp4"), (RED, BLUE), (BLUE, RED), ("b/2.mp4", BLUE)])
def test_a_file_that_moves_on_after_a_kill(
    said: Said, killed: Callable[..., None], where: tuple[type, str], then: tuple[str, str]
) -> None:
    """On to another name, or back to its first one, while something is said of others."""
    said.move((RED, "a/1.mp4"), (BLUE, "b/2.mp4"))
    killed(said.add, where)
    said.decisions.record(GREY, "keep")
    said.decisions.undo()
    said.move(*[(old, new) for old, new in zip(("a/1.mp4", "b/2.mp4"), then, strict=True) if old != new])
    for _ in range(2):
        said.add()
        check(said, *then)


def test_names_that_were_swapped_are_swapped_once(said: Said, killed: Callable[..., None]) -> None:
    said.move((RED, BLUE), (BLUE, GREEN), (GREEN, RED))
    for where in MOMENTS:
        killed(said.add, where)
        said.decisions.record(GREY, "keep")
        said.decisions.undo()
    said.add()
    check(said, BLUE, GREEN)


def test_a_file_that_moves_while_it_is_read(said: Said) -> None:
    """It was listed under its old name, and is found again later."""
    listed = open_catalog(said.videos)
    said.move((RED, "films/one.mp4"))
    said.add(listed)
    assert RED not in said.index
    said.add()
    check(said, "films/one.mp4", BLUE)


@pytest.mark.parametrize("is_told", [True, False])
def test_a_file_that_comes_back_is_remembered_until_it_is_in_the_index(
    said: Said, tmp_path: Path, killed: Callable[..., None], is_told: bool
) -> None:
    (said.videos / RED).rename(tmp_path / "away")
    said.add()
    assert read_gone(said.index.path).keys() == {RED}
    (tmp_path / "away").rename(said.videos / "back.mp4")
    killed(said.add, (LanceStore, "write") if is_told else (LotFile, "rename"))
    said.move(("back.mp4", "again.mp4"))
    said.add()
    check(said, "again.mp4", BLUE)


def test_a_file_that_cannot_be_read_for_a_while(said: Said) -> None:
    content = (said.videos / RED).read_bytes()
    (said.videos / RED).write_bytes(b"not a video")
    said.add()
    assert RED not in said.index
    (said.videos / RED).unlink()
    (said.videos / "films.mp4").write_bytes(content)
    said.add()
    check(said, "films.mp4", BLUE)


def test_what_is_said_of_a_copy_stays_with_it(said: Said) -> None:
    """Another catalog of the same folder does not say that all other videos are gone."""
    remember(said.index.path)
    shutil.copy(said.videos / RED, said.videos / "copy.mp4")
    whole = open_catalog(said.videos)
    part = whole.subset([row for row, video in enumerate(whole) if video.id not in (RED, BLUE)])
    said.index.add(part, library=said.library)
    assert said.decided() == {RED: "drop", BLUE: "keep"}
    said.add()
    check(said, RED, BLUE)


def test_an_index_that_takes_the_place_of_another_knows_what_was_said(said: Said, tmp_path: Path) -> None:
    """Also of files that move while it is made."""
    home = tmp_path / "home"
    home.mkdir()
    shutil.move(said.index.path, home / "index-1")
    for path in [*(home / "index-1").iterdir()]:
        if path.name in ("curation", "judgements.csv", "lots.json", "gone.json"):
            shutil.move(path, home / path.name)
    (home / "collection.json").write_text("{}")
    remember(home / "index-1")
    listed = open_catalog(said.videos)
    said.move((RED, "films/one.mp4"))
    following = Index.create(home / "index-2", said.index.encoder, num_clips=3)
    following.add(listed, library=said.library)
    new = Said(said.videos, following, said.library)
    assert new.decided() == {RED: "drop", BLUE: "keep"}
    new.add()
    check(new, "films/one.mp4", BLUE)


def test_who_knows_older_names_can_tell(said: Said) -> None:
    before = names_state_of(said.index.path)
    (said.videos / GREY).touch()
    said.add()
    assert names_state_of(said.index.path) == before
    said.move((GREY, "elsewhere.mp4"))
    said.add()
    changed = names_state_of(said.index.path)
    assert changed != before
    said.add()
    assert names_state_of(said.index.path) == changed
    assert (said.index.path / NAMES_LOCK_NAME).is_file()
