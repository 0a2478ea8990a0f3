"""Videos on an object store, served by moto's own server: what is copied, what is not, and what is said."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provico.cli import main
from provico.errors import CatalogError, ConfigError
from provico.workspace.folder import Workspace
from provico.workspace.store import NotRead, ObjectStore, checked_address, read_not_read, write_not_read

from ..warm_processes import ForkServer

Put = Callable[[str, bytes | None], None]
BUCKET = "videos"


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """One of its own for each test."""
    return f"{request.node.originalname or request.node.name}/deep"


@pytest.fixture
def put(object_store: dict[str, str], monkeypatch: pytest.MonkeyPatch, prefix: str) -> Put:
    """Puts an object under the prefix, or removes one."""
    for name, value in object_store.items():
        monkeypatch.setenv(name, value)

    def change(name: str, content: bytes | None) -> None:
        key = urllib.parse.quote(f"{prefix}/{name}")
        address = f"{object_store['AWS_ENDPOINT']}/{BUCKET}/{key}"
        method = "DELETE" if content is None else "PUT"
        headers = {"Content-Type": "video/mp4", "Authorization": "AWS any:any"}
        urllib.request.urlopen(urllib.request.Request(address, content, headers, method=method)).close()

    return change


@pytest.fixture
def store(put: Put, prefix: str, tmp_path: Path) -> Callable[[int], ObjectStore]:
    return lambda most: ObjectStore(f"s3://{BUCKET}/{prefix}/", tmp_path / "objects", max_bytes=most)


def copied(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_objects_are_copied_once_and_again_when_they_change(
    put: Put, store: Callable[[int], ObjectStore], tmp_path: Path
) -> None:
    names = [f"kind {number % 3}/50% off & more #{number}?.mp4" for number in range(30)]
    for name in names:
        put(name, name.encode())
    put("notes.txt", b"no video")
    put(".hidden/a.mp4", b"hidden")
    sizes = []
    said: list[tuple[int, int]] = []
    for not_read in store(10**6).fetch(lambda done, total, note="": said.append((done, total))):
        assert not_read == []
        sizes.append(len(copied(tmp_path / "objects")))
    assert sizes == [0, 12, 30]  # pictures come early
    assert said == [(number, 30) for number in range(1, 31)]
    assert copied(tmp_path / "objects") == {name: name.encode() for name in names}

    put(names[3], b"another video")
    put(names[4], None)
    said.clear()
    list(store(10**6).fetch(lambda done, total, note="": said.append((done, total))))
    assert said == [(1, 1)]
    expected = {name: name.encode() for name in names if name != names[4]} | {names[3]: b"another video"}
    assert copied(tmp_path / "objects") == expected
    said.clear()
    list(store(10**6).fetch(lambda done, total, note="": said.append((done, total))))
    assert said == []


def test_what_has_no_room_is_named_and_copies_never_take_more(
    put: Put, store: Callable[[int], ObjectStore], tmp_path: Path
) -> None:
    for name, size in (("a.mp4", 400), ("b.mp4", 700), ("c.mp4", 500), ("d.mp4", 200)):
        put(name, bytes(size))
    (*_, not_read) = store(1000).fetch()
    assert {*copied(tmp_path / "objects")} == {"a.mp4", "c.mp4"}
    assert [(one.name, one.num_bytes) for one in not_read] == [("b.mp4", 700), ("d.mp4", 200)]
    assert all("--cache-gb" in one.reason for one in not_read)
    write_not_read(tmp_path / "not_read.csv", not_read)
    assert read_not_read(tmp_path / "not_read.csv") == not_read
    (tmp_path / "not_read.csv").write_text("name,num_bytes,reason\na,many,b\n")
    assert read_not_read(tmp_path / "not_read.csv") == read_not_read(tmp_path / "nothing.csv") == []
    put("a.mp4", bytes(600))  # what was there before does not count as room for it
    (*_, not_read) = store(1000).fetch()
    assert sum(map(len, copied(tmp_path / "objects").values())) <= 1000
    assert [one.name for one in not_read] == ["a.mp4", "b.mp4"]
    (*_, not_read) = store(10**6).fetch()
    assert not_read == []
    assert {*copied(tmp_path / "objects")} == {"a.mp4", "b.mp4", "c.mp4", "d.mp4"}


def test_keys_that_lead_elsewhere_are_named_and_not_written(
    put: Put, store: Callable[[int], ObjectStore], tmp_path: Path
) -> None:
    bad = ["x/../../../out.mp4", "a.mp4/inside.mp4", "l" * 300 + ".mp4"]
    for name in ("a.mp4", "fine.mp4", *bad):
        put(name, b"video")
    (*_, not_read) = store(10**6).fetch()
    there = copied(tmp_path)
    assert "objects/fine.mp4" in there
    assert all(name.startswith("objects/") for name in there)
    names = {one.name for one in not_read}
    assert names == {bad[0], bad[2], "a.mp4"}  # a file cannot be the folder of another


def test_an_object_may_become_a_folder_and_a_folder_an_object(
    put: Put, store: Callable[[int], ObjectStore], tmp_path: Path
) -> None:
    put("fine.mp4", b"video")
    put("a.mp4", b"video")
    list(store(10**6).fetch())
    assert "objects/a.mp4" in copied(tmp_path)
    put("a.mp4", None)
    put("a.mp4/inside.mp4", b"video")
    list(store(10**6).fetch())
    assert "objects/a.mp4/inside.mp4" in copied(tmp_path)
    put("a.mp4/inside.mp4", None)
    put("a.mp4", b"another")
    list(store(10**6).fetch())
    assert (tmp_path / "objects" / "a.mp4").read_bytes() == b"another"


def test_what_a_store_says_is_said_in_words(
    put: Put, store: Callable[[int], ObjectStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CatalogError, match=r"There is no video under s3://videos/\S+/, only 0"):
        store(1).listing()
    with pytest.raises(CatalogError, match="there is no such bucket"):
        ObjectStore("s3://nowhere", tmp_path, max_bytes=1).listing()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(CatalogError, match="the store cannot be reached"):
        store(1).listing()
    for address in ("gs://bucket/videos", "https://bucket/videos"):
        with pytest.raises(CatalogError, match="is not known here"):
            checked_address(address)
    for address in ("s3://", "s3://key:secret@bucket/videos", "s3://../videos"):
        with pytest.raises(CatalogError, match="names no bucket"):
            checked_address(address)
    assert checked_address("s3://bucket/a/b//") == "s3://bucket/a/b"
    for value in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="--cache-gb"):
            Workspace.open("s3://bucket/videos", cache_gb=value)
    with pytest.raises(ConfigError, match="--cache-gb is for videos on an object store"):
        Workspace.open(tmp_path, cache_gb=3)


def test_it_is_kept_in_our_own_folder_and_nothing_is_moved(tmp_path: Path) -> None:
    one = Workspace.open("s3://bucket/videos/", cache_gb=3)
    assert one.path.is_relative_to(os.environ["PROVICO_HOME"])
    assert one.root is None
    again = Workspace.open("s3://bucket/videos")
    assert (again.path, again.settings.cache_gb) == (one.path, 3)
    assert Workspace.open("s3://bucket/other").path != one.path
    with pytest.raises(ConfigError, match="belongs to"):
        Workspace.open(tmp_path, folder=one.path)
    kept = Workspace.open(tmp_path, folder=tmp_path / "kept")
    with pytest.raises(ConfigError, match="belongs to"):
        Workspace.open("s3://bucket/videos", folder=kept.path)


def ask(address: str, body: Any = None) -> Any:
    content = None if body is None else json.dumps(body).encode()
    headers = {"X-ProViCo": "1", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(address, content, headers)) as answer:
        return json.load(answer)


def test_from_an_address_to_answers(
    put: Put, prefix: str, colour_videos: Path, shaded_encoder: Path, fork_server: ForkServer
) -> None:
    videos = sorted((colour_videos / "train").rglob("*.mp4"))
    for number, path in enumerate(videos):
        put(f"{path.parent.name}/{number}.mp4", path.read_bytes())
    put("huge.mp4", bytes(8_000_000))
    put("broken.mp4", b"no video at all")
    address = f"s3://{BUCKET}/{prefix}"
    process = fork_server.start(
        *("-m", "provico", "open", address, "--checkpoint", shaded_encoder, "--cache-gb", "0.007"),
        *("--no-browser", "--port", "0"),
        environment=os.environ,
    )
    try:
        while not (found := re.search(r"http://\S+", process.stderr)):
            assert process.poll() is None, process.stderr
            time.sleep(0.05)
        page = found.group()
        while (work := ask(f"{page}/api/work"))["is_working"] or work["is_empty"]:
            assert work["problem"] is None, work
            time.sleep(0.2)
        seen = ask(f"{page}/api/overview")
        assert (seen["name"], seen["num_videos"]) == ("deep", len(videos))
        assert {one["id"] for one in seen["unreadable"]} == {"huge.mp4", "broken.mp4"}
        (fetched,) = (stage for stage in work["stages"] if stage["name"] == "fetch")
        assert fetched["note"] == "1 not read, listed in not_read.csv"
        some = ask(f"{page}/api/videos")["items"][0]["id"]
        with urllib.request.urlopen(f"{page}/media/frame?id={urllib.parse.quote(some)}") as picture:
            assert picture.headers["Content-Type"] == "image/jpeg"
        for verb in ("trash", "move", "link"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                ask(f"{page}/api/actions", {"do": verb, "ids": [some], "to": "x", "revision": 0})
            assert "Nothing is changed on an object store" in refused.value.read().decode()
        tagged = ask(f"{page}/api/actions", {"do": "tag", "ids": [some], "to": "x", "revision": 0})
        assert tagged["ids"] == [some]
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
    workspace = Workspace.open(address)
    assert f"kept in {workspace.path}; copies take 0.007 GB at most" in process.stderr
    main(["curate", str(workspace.path), "--json"])
    assert [*read_not_read(workspace.path / "not_read.csv")] == [
        NotRead("huge.mp4", 8_000_000, "copies may take 0.007 GB; give more by --cache-gb")
    ]
