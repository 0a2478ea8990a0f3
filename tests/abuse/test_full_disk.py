"""A folder that is opened on a full disk: the page says so, keeps what is there, and goes on with room."""

from __future__ import annotations

import errno
import random
import shutil
from pathlib import Path

import pytest

from provico.data.catalog import open_catalog
from provico.models import Encoder
from provico.search.index import Index
from provico.workspace.folder import DISK_FULL, Workspace

from ..warm_processes import ForkServer
from .chaos import FULL_DISK, Chaos, said_once, same_index, unshare, with_mount
from .opened import MOST_SECONDS, done, opened


@pytest.fixture
def videos(colour_videos: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(colour_videos / "test", tmp_path / "videos"))


@pytest.fixture
def chaos(fork_server: ForkServer, tmp_path: Path) -> Chaos:
    return Chaos(fork_server, tmp_path / "home", random.Random(0))


def fill(path: Path, *, but: int = 0) -> None:
    """Write a file until the disk is full, but for so many bytes."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017
        file.truncate(max(0, file.tell() - but))


def test_the_page_opens_says_so_and_goes_on_with_more_room(
    videos: Path, shaded_encoder: Path, tmp_path: Path, chaos: Chaos
) -> None:
    if unshare() is None:
        pytest.skip("This machine lets nobody mount a disk of their own.")
    (disk := tmp_path / "disk").mkdir()
    words = ["-m", "provico", "open", videos, "--checkpoint", shaded_encoder, "--folder", disk / "kept"]
    words += ["--no-browser", "--port", "0"]
    mount = f"mount -t tmpfs -o size=64m none '{disk}'"

    # Nothing can be written down at all: one sentence.
    refused = chaos.start(*with_mount(f"{mount} && (cat /dev/zero > '{disk}/filler' || true)", *words))
    assert refused.wait(MOST_SECONDS) == 2, refused.stderr
    said_once(refused.stderr)

    process = chaos.start(*with_mount(f"{mount} && head -c 67092480 /dev/zero > '{disk}/filler'", *words))
    with opened(process) as (_, client):
        inside = Path(f"/proc/{process.pid}/root") / disk.relative_to("/")
        # Not even that the disk is full can be written down.
        found = done(process, client)
        assert found["problem"] == DISK_FULL
        assert "running" not in {stage["state"] for stage in found["stages"]}
        # Some of it can be done.
        fill(inside / "filler", but=300_000)
        client.post("/api/work", json={"do": "go on"})
        assert done(process, client)["problem"] == DISK_FULL
        # All of it.
        (inside / "filler").write_bytes(b"")
        client.post("/api/work", json={"do": "go on"})
        found = done(process, client)
        assert found["problem"] is None
        assert {stage["state"] for stage in found["stages"]} == {"done"}
        peaceful = Index.create(tmp_path / "peaceful", Encoder.from_pretrained(shaded_encoder), num_clips=10)
        peaceful.add(open_catalog(videos))
        index = Workspace(inside / "kept").index
        assert index is not None
        same_index(index, peaceful.path)
        # Full once more: what is there is shown, nothing is half done, and nothing is said that is not so.
        fill(inside / "filler")
        name = peaceful.ids[0]
        answers = (
            client.post("/api/curation/decisions", json={"id": name, "decision": "drop"}),
            client.post("/api/actions", json={"do": "trash", "ids": [name]}),
            client.post("/api/actions", json={"do": "tag", "ids": [name], "to": "red"}),
        )
        assert {answer.status_code for answer in answers[:1] + answers[2:]} == {507}, [
            answer.text for answer in answers
        ]
        assert answers[1].status_code == 403  # the trash would be on another disk
        assert client.get("/api/videos").json()["total"] == len(peaceful.ids)
        assert client.get("/api/curation").json()["revision"] == 0
        client.post("/api/work", json={"do": "go on"})
        done(process, client)
        assert (videos / name).is_file()
        (inside / "filler").unlink()
        answer = client.post("/api/curation/decisions", json={"id": name, "decision": "drop"})
        assert answer.status_code == 200, answer.text


def test_files_that_cannot_grow(videos: Path, shaded_encoder: Path, tmp_path: Path, chaos: Chaos) -> None:
    """As on a full disk, where no other one can be mounted."""
    words = ["open", videos, "--checkpoint", shaded_encoder, "--no-browser", "--port", "0"]
    process = chaos.start("-c", FULL_DISK.format(most=600), *words)
    with opened(process) as (_, client):
        assert done(process, client)["problem"] == DISK_FULL
        # Not that anything was read, and no path of this machine.
        assert str(tmp_path) not in client.get("/api/work").text
        assert client.get("/api/videos").status_code == 409
