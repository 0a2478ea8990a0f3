"""A folder that is opened where nothing may be written, with a clock that jumps, or among traps."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from provico.data.catalog import open_catalog
from provico.models import Encoder
from provico.search.index import Index
from provico.workspace.folder import Workspace

from ..warm_processes import ForkServer
from .chaos import CLOCK, Chaos, said_once, same_index, unshare, with_mount
from .opened import MOST_SECONDS, done, opened
from .traps import set_traps, sprung

READ_ONLY = "mount --bind '{0}' '{0}' && mount -o remount,ro,bind '{0}'"


@pytest.fixture
def videos(colour_videos: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(colour_videos / "test", tmp_path / "videos"))


@pytest.fixture
def peaceful(videos: Path, shaded_encoder: Path, tmp_path: Path) -> Index:
    index = Index.create(tmp_path / "peaceful", Encoder.from_pretrained(shaded_encoder), num_clips=10)
    index.add(open_catalog(videos))
    return index


@pytest.fixture
def chaos(fork_server: ForkServer, tmp_path: Path) -> Chaos:
    return Chaos(fork_server, tmp_path / "home", random.Random(0))


def test_a_clock_that_jumps(videos: Path, shaded_encoder: Path, peaceful: Index, chaos: Chaos) -> None:
    """Whatever the clock says, and whatever the files say of their age."""
    for number, video in enumerate(sorted(videos.rglob("*.mp4"))):
        os.utime(video, (number * 4e8, number * 4e8))
    words = ["open", videos, "--checkpoint", shaded_encoder, "--no-browser", "--port", "0"]
    with opened(chaos.start("-c", CLOCK, *words)) as (process, client):
        assert done(process, client)["problem"] is None
        for verb in ("tag", "trash"):
            body = {"do": verb, "ids": [peaceful.ids[0]], "to": "red"}
            assert client.post("/api/actions", json=body).json()["failed"] == {}
            assert client.post("/api/actions/undo", json={}).status_code == 200
        assert done(process, client)["problem"] is None
    found = Workspace(videos / ".provico").index
    assert found is not None
    same_index(found, peaceful.path)


def test_videos_that_may_only_be_read(
    videos: Path, shaded_encoder: Path, peaceful: Index, chaos: Chaos, tmp_path: Path
) -> None:
    """What is known of them is kept elsewhere, and nothing is moved; or, if that may not be, one sentence."""
    if unshare() is None:
        pytest.skip("This machine lets nobody mount a disk of their own.")
    words = ["-m", "provico", "open", videos, "--checkpoint", shaded_encoder, "--no-browser", "--port", "0"]
    mount = READ_ONLY.format(videos)
    with opened(chaos.start(*with_mount(mount, *words, "--folder", tmp_path / "kept"))) as (process, client):
        assert done(process, client)["problem"] is None
        name = peaceful.ids[0]
        moved = client.post("/api/actions", json={"do": "trash", "ids": [name]})
        assert moved.status_code == 403, moved.text
        assert client.post("/api/curation/decisions", json={"id": name, "decision": "drop"}).is_success
    index = Workspace(tmp_path / "kept").index
    assert index is not None
    same_index(index, peaceful.path)
    refused = chaos.start(*with_mount(mount, *words, "--folder", videos / "kept"))
    assert refused.wait(MOST_SECONDS) == 2, refused.stderr
    said_once(refused.stderr)


def test_no_code_among_the_videos_is_run(
    videos: Path, shaded_encoder: Path, tmp_path: Path, fork_server: ForkServer
) -> None:
    """Neither by the page, nor by its worker and its children."""
    set_traps(videos)
    code = "import os, sys\nsys.path.remove(os.getcwd())\nfrom provico.cli import main\nmain(sys.argv[1:])\n"
    words = ["open", ".", "--checkpoint", shaded_encoder, "--no-browser", "--port", "0"]
    environment = os.environ | {"PROVICO_HOME": str(tmp_path / "home")}
    process = fork_server.start("-c", code, *words, folder=videos, environment=environment)
    with opened(process) as (_, client):
        assert done(process, client)["problem"] is None
        name = client.get("/api/videos").json()["items"][0]["id"]
        for path in ("thumbnail", "preview", "frame"):
            assert client.get(f"/media/{path}", params={"id": name}).status_code == 200, path
    assert sprung(videos) == []
