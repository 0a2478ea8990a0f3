"""Decisions are kept at once, seen by all, and never lost to another tab or process."""

from __future__ import annotations

import re
import shutil
import threading
from pathlib import Path

import httpx
import pytest

from provico.curation.decisions import DecisionLog
from provico.curation.folder import CuratedVideo, CurationFolder
from provico.curation.job import CurationReport
from provico.data.catalog import open_catalog
from provico.data.library import Library
from provico.search.follow import read_gone
from provico.search.index import Index
from provico.search.store.lance import LanceStore
from provico.show import show_curated
from provico.workspace.folder import Workspace

from ..full_disk import files_of_at_most

GUARD = {"X-ProViCo": "1"}
FIRST, SECOND = "Fire/1.mp4", "Grass/2.mp4"


def decide(client: httpx.Client, name: str, choice: str, **more: object) -> httpx.Response:
    body = {"id": name, "decision": choice, **more}
    return client.post("/api/curation/decisions", json=body, headers=GUARD)


def undo(client: httpx.Client, **body: object) -> httpx.Response:
    return client.post("/api/curation/undo", json=body, headers=GUARD)


def queue(client: httpx.Client, **params: object) -> dict:
    answer = client.get("/api/curation", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_every_index_has_a_queue_and_what_needs_a_person_comes_first(client, tmp_path):
    buckets = {"Fire/1.mp4": "review", "Fire/2.mp4": "trim", "Fire/3.mp4": "drop", "Grass/1.mp4": "review"}
    proposed = [
        CuratedVideo(path=name, id=name, bucket=bucket, reason="because") for name, bucket in buckets.items()
    ]
    CurationFolder(tmp_path / "curation").write(proposed)
    found = queue(client)
    assert (found["revision"], found["total"], len(found["items"])) == (0, 12, 12)
    assert sum(found["counts"].values()) == 12
    urgency = ["review", "trim", "drop", "keep"]
    order = [(urgency.index(item["bucket"]), -item["uncertainty"]) for item in found["items"]]
    assert order == sorted(order)
    assert all(item["reason"] for item in found["items"])


def test_a_decision_is_on_the_disk_and_in_the_manifest(client, tmp_path, collection):
    answer = decide(client, FIRST, "drop", revision=0)
    assert answer.status_code == 200, answer.text
    assert answer.json()["revision"] == 1
    trimmed = decide(client, SECOND, "trim", segments=[[0.5, 2.0]], revision=1).json()
    assert trimmed["decision"] == {"decision": "trim", "segments": [[0.5, 2.0]], "revision": 2}
    log = DecisionLog(tmp_path / "curation" / "decisions.jsonl").current()
    assert {name: one.choice for name, one in log.items()} == {FIRST: "drop", SECOND: "trim"}
    videos = {video.id: video for video in open_catalog(tmp_path / "curation" / "manifest.csv")}
    assert FIRST not in videos
    (kept,) = [video for name, video in videos.items() if SECOND in name]
    assert kept.span == (0.5, 2.0)


def test_a_decision_is_seen_everywhere(client):
    decide(client, FIRST, "drop")
    assert client.get("/api/video", params={"id": FIRST}).json()["decision"]["decision"] == "drop"
    assert [item["id"] for item in queue(client, bucket="drop")["items"]] == [FIRST]
    assert [c["id"] for c in client.get("/api/videos", params={"bucket": "drop"}).json()["items"]] == [FIRST]
    assert client.get("/api/stats").json()["buckets"]["drop"] == 1
    assert FIRST not in [item["id"] for item in queue(client, undecided=True)["items"]]
    cards = client.get("/api/search", params={"id": FIRST}).json()["cards"]
    assert cards[FIRST]["bucket"] == "drop"
    undo(client)
    cards = client.get("/api/search", params={"id": FIRST}).json()["cards"]
    assert cards[FIRST]["bucket"] != "drop"


def test_undo_goes_back_step_by_step(client):
    before = queue(client)["counts"]
    decide(client, FIRST, "keep")
    decide(client, FIRST, "drop")
    assert undo(client, revision=2).json()["decision"]["decision"] == "keep"
    assert undo(client, revision=3).json() | {"counts": None} == {
        "revision": 4,
        "id": FIRST,
        "decision": None,
        "counts": None,
    }
    assert undo(client).json()["id"] is None
    assert queue(client)["counts"] == before


def test_two_tabs_do_not_overwrite_each_other(open_client):
    """Two servers on one folder are two processes' worth of tabs: they share nothing but the disk."""
    one, other = open_client(), open_client()
    assert decide(one, FIRST, "drop", revision=0).status_code == 200
    refused = decide(other, FIRST, "keep", revision=0)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    assert decide(other, SECOND, "keep", revision=0).status_code == 200  # another video is no conflict
    assert undo(one, revision=1).status_code == 409
    assert queue(one)["revision"] == queue(other)["revision"] == 2
    assert decide(other, FIRST, "keep", revision=2).status_code == 200


def test_a_line_cut_short_by_a_crash_does_not_count(client, tmp_path):
    decide(client, FIRST, "drop")
    log = tmp_path / "curation" / "decisions.jsonl"
    with log.open("a") as file:
        file.write('{"id": "Grass/2.mp4", "choice": "dr')
    assert queue(client)["revision"] == 1
    assert decide(client, SECOND, "keep", revision=1).json()["revision"] == 2


@pytest.mark.parametrize(
    "body",
    [
        {"decision": "burn"},
        {"decision": "trim"},
        {"decision": "keep", "segments": [[0, 1]]},
        {"decision": "trim", "segments": [[1, 1]]},
        {"decision": "trim", "segments": [[-1, 1]]},
        {"decision": "trim", "segments": [[0, 2], [1, 3]]},
        {"decision": "trim", "segments": [[0, 99]]},
        {"decision": "trim", "segments": [[0]]},
        {"decision": "keep", "revision": -1},
        {"decision": "keep", "surprise": 1},
        {},
    ],
)
def test_decisions_that_make_no_sense_are_refused(client, tmp_path, body):
    answer = client.post("/api/curation/decisions", json={"id": FIRST, **body}, headers=GUARD)
    assert answer.status_code == 422
    assert queue(client)["revision"] == 0


def test_unknown_videos_cannot_be_decided_on(client, tmp_path):
    assert decide(client, "../../etc/passwd", "drop").status_code == 404
    assert not (tmp_path / "curation").exists()


def test_the_page_says_what_the_command_proposes(open_client, tmp_path):
    folder = tmp_path / "curation"
    client = open_client(curation=folder)
    decide(client, SECOND, "keep")
    proposed = [
        CuratedVideo(path=name, id=name, bucket="review", reason="because", detail="by 2.7")
        for name in (FIRST, SECOND)
    ]
    CurationFolder(folder).write(proposed)
    found = {item["id"]: item for item in queue(client)["items"]}
    assert (found[FIRST]["reason"], found[FIRST]["detail"]) == ("because", "by 2.7")
    assert found[FIRST]["bucket"] == "review"
    assert found[SECOND]["bucket"] == "keep"
    shutil.rmtree(folder)
    assert queue(client)["revision"] == 0


def test_the_page_and_the_table_of_the_command_count_the_same(client, tmp_path, capsys):
    buckets = {"Fire/1.mp4": "review", "Fire/2.mp4": "trim", "Fire/3.mp4": "drop", "Grass/1.mp4": "drop"}
    proposed = [
        CuratedVideo(path=name, id=name, bucket=buckets.get(name, "keep"), reason="because")
        for name in (item["id"] for item in queue(client)["items"])
    ]
    broken = CuratedVideo(path="", id="broken.mp4", bucket="drop", reason="no video", kind="unreadable")
    folder = CurationFolder(tmp_path / "curation")
    folder.write([*proposed, broken])  # a file that cannot be read is in no index
    show_curated(CurationReport(folder=folder.path, videos=folder.current()))
    said = capsys.readouterr().out
    counted = {name: int(number) for name, number in re.findall(r"^(\w+) +(\d+)$", said, re.MULTILINE)}
    assert counted == queue(client)["counts"]
    assert "1 file that cannot be read\n    broken.mp4: no video\n" in said


def test_by_default_decisions_lie_in_the_index(open_client, collection, tmp_path):
    index = Path(shutil.copytree(collection.index, tmp_path / "index"))
    assert decide(open_client(index=index, curation=None), FIRST, "drop").status_code == 200
    assert (index / "curation" / "decisions.jsonl").is_file()


def test_damaged_decisions_are_named_without_a_path_and_the_others_hold(client, tmp_path):
    decide(client, FIRST, "drop", revision=0)
    with (tmp_path / "curation" / "decisions.jsonl").open("ab") as file:
        file.write(b"nonsense\n\xff\n")
    found = queue(client)
    assert [line.partition(" is ")[0] for line in found["damaged"]] == [
        "line 2 of decisions.jsonl",
        "line 3 of decisions.jsonl",
    ]
    assert str(tmp_path) not in client.get("/api/curation").text
    assert decide(client, SECOND, "keep", revision=found["revision"]).status_code == 200
    assert queue(client)["counts"]["drop"] == 1


@pytest.mark.parametrize("content", [b"path,id\n1", b"\xff\x00", b"path,id,bucket\na,b,burn\n"])
def test_damaged_proposals_are_said_without_a_path(client, tmp_path, content):
    folder = tmp_path / "curation"
    folder.mkdir()
    (folder / "segments.csv").write_text("id,start_seconds,end_seconds\n")
    (folder / "proposals.csv").write_bytes(content)
    answer = client.get("/api/curation")
    if answer.status_code != 200:
        assert answer.json()["error"]["code"] == "damaged"
    assert str(tmp_path) not in answer.text


def test_a_full_disk_is_said_with_what_is_kept(client, tmp_path):
    log = DecisionLog(tmp_path / "curation" / "decisions.jsonl")
    decide(client, FIRST, "drop", revision=0)
    size = log.path.stat().st_size
    with files_of_at_most(size + 10):
        lost = decide(client, SECOND, "keep", revision=1)
    assert (lost.status_code, lost.json()["error"]["code"]) == (507, "disk_full")
    assert "not kept" in lost.json()["error"]["message"]
    assert set(log.current()) == {FIRST}
    with files_of_at_most(size + 200):
        kept = decide(client, SECOND, "keep", revision=1)
    assert (kept.status_code, kept.json()["error"]["code"]) == (507, "disk_full")
    assert "The decision is kept" in kept.json()["error"]["message"]
    assert set(log.current()) == {FIRST, SECOND}
    assert decide(client, FIRST, "keep", revision=2).status_code == 200


def test_what_was_said_goes_with_a_file_that_is_moved(open_client, collection, tmp_path):
    """On the page, by hand, and through the trash; meanwhile nothing is said of what is not there."""
    videos = Path(shutil.copytree(collection.videos, tmp_path / "videos"))
    workspace = Workspace.open(videos)
    index = Index.create(workspace.next_index(), Index.open(collection.index).encoder, num_clips=2)
    index.add(open_catalog(videos), library=Library(collection.home))
    workspace.change(current=index.path.name)
    client = open_client(index=workspace.path, workspace=workspace, curation=None)

    def said(path: str, **body: object) -> httpx.Response:
        return client.post(f"/api/{path}", json=body, headers=GUARD)

    def decided() -> dict[str, str]:
        log = DecisionLog(workspace.path / "curation" / "decisions.jsonl")
        return {name: one.choice for name, one in log.current().items()}

    assert decide(client, FIRST, "drop").status_code == 200
    assert said("judgements", query=FIRST, hit=SECOND, verdict="right").status_code == 200
    moved = said("actions", do="move", ids=[FIRST], to="sorted")
    assert moved.json()["ids"] == [FIRST], moved.text
    # The page still shows it where it was.
    refused = (
        decide(client, FIRST, "keep"),
        said("judgements", query=SECOND, hit=FIRST, verdict="wrong"),
        said("actions", do="tag", ids=[FIRST], to="red"),
        said("duplicates/rejections", pairs=[[FIRST, SECOND]]),
    )
    assert {(one.status_code, one.json()["error"]["code"]) for one in refused} == {(409, "moved")}
    index.add(open_catalog(videos), prune=True, library=Library(collection.home))
    assert decided() == {"sorted/1.mp4": "drop"}
    assert [*index.judgements.read().current] == [("sorted/1.mp4", SECOND)]
    # At once of the version that has the new names.
    assert decide(client, FIRST, "keep").status_code == 404
    tagged = said("actions", do="tag", ids=["sorted/1.mp4"], to="red")
    assert tagged.status_code == 200, tagged.text
    trashed = said("actions", do="trash", ids=["sorted/1.mp4"])
    assert trashed.json()["ids"] == ["sorted/1.mp4"], trashed.text
    index.add(open_catalog(videos), prune=True, library=Library(collection.home))
    assert "sorted/1.mp4" not in index
    for action in ("trash", "tag", "move"):
        undone = said("actions/undo")
        assert len(undone.json()["ids"]) == 1, (action, undone.text)
    (videos / FIRST).rename(videos / "by hand.mp4")
    index.add(open_catalog(videos), prune=True, library=Library(collection.home))
    assert decided() == {"by hand.mp4": "drop"}
    assert [*index.judgements.read().current] == [("by hand.mp4", SECOND)]
    assert read_gone(index.path) == {}


def test_nothing_is_said_of_a_video_while_it_gets_another_name(
    open_client, collection, tmp_path, monkeypatch
):
    """A file is moved back while the index still learns that it was moved, or when that was killed."""
    videos = Path(shutil.copytree(collection.videos, tmp_path / "videos"))
    workspace = Workspace.open(videos)
    index = Index.create(workspace.next_index(), Index.open(collection.index).encoder, num_clips=2)
    library = Library(collection.home)
    index.add(open_catalog(videos), library=library)
    workspace.change(current=index.path.name)
    client = open_client(index=workspace.path, workspace=workspace, curation=None)
    log = DecisionLog(workspace.path / "curation" / "decisions.jsonl")
    assert decide(client, FIRST, "drop").status_code == 200
    answers = []

    def moved_back(_: object, names: list[str]) -> None:
        if names:
            (videos / "moved.mp4").rename(videos / FIRST)
            asking.start()
            asking.join(1.0)
            assert asking.is_alive()
            raise KeyboardInterrupt

    asking = threading.Thread(target=lambda: answers.append(decide(client, FIRST, "keep")))
    (videos / FIRST).rename(videos / "moved.mp4")
    with monkeypatch.context() as patch:
        patch.setattr(LanceStore, "remove", moved_back)
        with pytest.raises(KeyboardInterrupt):
            index.add(open_catalog(videos), prune=True, library=library)
    asking.join()
    assert answers[0].status_code in (404, 409), answers[0].text
    index.add(open_catalog(videos), prune=True, library=library)
    assert {name: one.choice for name, one in log.current().items()} == {FIRST: "drop"}
    assert decide(client, FIRST, "keep").status_code == 200
    assert {name: one.choice for name, one in log.current().items()} == {FIRST: "keep"}
