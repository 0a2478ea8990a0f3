"""Where a collection lies, which index is current, and what commands make of a folder that was opened."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from provico.cli import main
from provico.data.catalog import open_catalog
from provico.errors import CatalogError, ConfigError, VideoIndexError
from provico.locations import current_index, home_of
from provico.models import Encoder
from provico.search.index import Index
from provico.workspace.folder import Workspace, why_not
from provico.workspace.learning import Measured, measure
from provico.workspace.status import Status, StatusWriter


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    folder = tmp_path / "videos"
    folder.mkdir()
    return folder


def test_it_lies_beside_the_videos_or_in_our_own_folder(
    videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace.open(videos)
    assert (workspace.path, workspace.root) == (videos / ".provico", videos)
    assert workspace.path.stat().st_mode & 0o077 == 0
    a_list = videos / "some.txt"
    a_list.write_text("a.mp4\n")
    assert Workspace.open(a_list).path == videos / ".provico-some"
    other = videos / "read-only"
    other.mkdir()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert Workspace.open(other).path.is_relative_to(os.environ["PROVICO_HOME"])
    assert [*other.iterdir()] == []


def test_what_cannot_be_opened_is_refused(videos: Path, tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="is an address"):
        Workspace.open("ftp://host/videos")
    with pytest.raises(CatalogError, match="does not exist"):
        Workspace.open(tmp_path / "nothing")
    Workspace.open(videos, folder=tmp_path / "kept")
    (tmp_path / "others").mkdir()
    with pytest.raises(ConfigError, match="belongs to"):
        Workspace.open(tmp_path / "others", folder=tmp_path / "kept")
    videos.rename(tmp_path / "moved")
    assert Workspace.open(tmp_path / "moved", folder=tmp_path / "kept").root == tmp_path / "moved"


def test_one_process_serves_it_at_a_time(videos: Path) -> None:
    one, other = Workspace.open(videos), Workspace.open(videos)
    assert one.take()
    one.address = "http://127.0.0.1:1"
    assert not other.take()
    assert other.address == "http://127.0.0.1:1"
    one.let_go()
    assert other.take()
    other.let_go()


def test_the_current_index_is_found_by_every_command(
    videos: Path, shaded_encoder: Path, colour_videos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = Workspace.open(videos)
    with pytest.raises(VideoIndexError):
        Index.open(videos)
    index = Index.create(workspace.next_index(), Encoder.from_pretrained(shaded_encoder), num_clips=2)
    index.add(open_catalog(colour_videos, layout="folder"))
    workspace.change(current=index.path.name)
    assert current_index(videos) == current_index(workspace.path) == index.path
    assert home_of(index.path) == workspace.path
    assert len(Index.open(videos)) == len(index)
    main(["curate", str(videos), "--json"])
    assert (workspace.path / "curation" / "proposals.csv").is_file()
    left_over = workspace.next_index()
    assert left_over.name == "index-2"
    Index.create(left_over, index.encoder, num_clips=2)
    workspace.remove_others()
    assert not left_over.exists()
    assert workspace.index == index.path
    # Another encoder, another index.
    assert Workspace.open(videos, checkpoint=str(shaded_encoder)).index is None
    # One of another version is made anew, and what people did stays.
    workspace.change(current=index.path.name)
    assert workspace.drop_unusable() is None
    settings = (index.path / "index.json").read_text()
    (index.path / "index.json").write_text(settings.replace('"format_version": ', '"format_version": 9'))
    assert "format" in (workspace.drop_unusable() or "")
    assert workspace.index is None
    for name in ("../outside", "/etc", "curation"):
        workspace.change(current=name)
        assert current_index(videos) is None


def test_a_damaged_collection_is_said(videos: Path) -> None:
    workspace = Workspace.open(videos)
    (workspace.path / "collection.json").write_text('{"source": 1}')
    with pytest.raises(ConfigError, match=r"collection\.json cannot be read"):
        Workspace.open(videos)


def test_halves_of_videos_find_each_other(videos: Path, shaded_encoder: Path, colour_videos: Path) -> None:
    index = Index.create(videos / "index", Encoder.from_pretrained(shaded_encoder), num_clips=4)
    index.add(open_catalog(colour_videos, layout="folder"))
    found = measure(index)
    assert found.reciprocal_ranks.shape == (len(index),)
    assert 1 / len(index) < found.mean <= 1
    better = Measured(np.array([1.0, 1.0, 0.5, 1.0] * 10))
    worse = Measured(np.array([0.5, 1.0, 0.5, 0.25] * 10))
    assert better.is_surely_above(worse)
    assert not worse.is_surely_above(better)
    assert not better.is_surely_above(better)
    assert not Measured(np.array([1.0, 0.5])).is_surely_above(Measured(np.array([0.5, 1.0])))


def test_the_status_says_how_long_it_takes(videos: Path) -> None:
    writer = StatusWriter(videos, stages=["list", "read", "fit"], is_watching=False)
    stage = writer.begin("read")
    progress = writer.progress(stage)
    progress(10, 100)
    writer._began -= 20.0
    progress(20, 100)
    assert stage.seconds_left == pytest.approx(160, rel=0.05)
    progress(100, 100)
    writer.end(stage, "100 videos")
    writer.skip_rest()
    writer.write()
    read = Status.read(videos)
    assert [(one.name, one.state) for one in read.stages] == [(n, "done") for n in ("list", "read", "fit")]
    (videos / "status.json").write_text("nonsense")
    assert Status.read(videos) == Status()


def test_why_the_work_ended_is_said_in_words() -> None:
    full = RuntimeError("Error while serializing: I/O error: File too large (os error 27)")  # of safetensors
    assert "Free some space" in why_not(full)
    assert why_not(ConfigError("So it is.")) == "So it is."
    assert why_not(RuntimeError("unknown")) == "RuntimeError: unknown"
