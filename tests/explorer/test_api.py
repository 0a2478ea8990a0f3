"""The API says of the collection what the index knows, and nothing of this machine."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from provico.data.catalog import open_catalog
from provico.data.frames.encode import write_video
from provico.data.library import Library
from provico.explorer import collection as collection_module
from provico.search.index import Index

from .found_duplicates import keep_duplicates, same

ODD = "Rain/50% off & more #1?.mp4"


@pytest.fixture
def client(shared_client: httpx.Client) -> httpx.Client:
    return shared_client


@pytest.fixture
def index(collection) -> Index:
    return Index.open(collection.index)


def get(client: httpx.Client, path: str, **params: object):
    answer = client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_stats_count_what_the_index_holds(client, index):
    found = get(client, "/api/stats")
    assert (found["num_videos"], found["version"]) == (12, index.version)
    assert {one["label"]: one["count"] for one in found["labels"]} == {"Fire": 4, "Grass": 4, "Rain": 4}
    uncertainty = index.loaded.uncertainty.double().numpy()
    assert found["uncertainty"]["median"] == pytest.approx(np.median(uncertainty))
    assert sum(found["uncertainty"]["histogram"]["counts"]) == 12
    assert found["encoder"]["hash"] == index.settings.embedding.encoder_hash
    assert sum(found["buckets"].values()) == 12


@pytest.mark.parametrize("column", ["id", "uncertainty", "disagreement", "duration"])
@pytest.mark.parametrize("sign", ["", "-"])
def test_pages_together_are_the_whole_list_in_order(client, column, sign):
    items = []
    for offset in range(0, 12, 5):
        page = get(client, "/api/videos", offset=offset, limit=5, sort=sign + column)
        assert page["total"] == 12
        items += page["items"]
    assert len({item["id"] for item in items}) == 12
    values = [item["duration_seconds" if column == "duration" else column] for item in items]
    assert values == sorted(values, reverse=bool(sign))


def test_filters_hold_together(client):
    everything = get(client, "/api/videos")["items"]
    middle = sorted(item["uncertainty"] for item in everything)[6]
    found = get(client, "/api/videos", label=["Rain", "Fire"], min_uncertainty=middle, text="1")["items"]
    expected = [
        item["id"]
        for item in everything
        if item["label"] in ("Rain", "Fire") and item["uncertainty"] >= middle and "1" in item["id"]
    ]
    assert [item["id"] for item in found] == expected
    assert get(client, "/api/videos", label="Snow") == {"total": 0, "offset": 0, "items": []}
    assert get(client, "/api/videos", min_seconds=100)["total"] == 0
    assert get(client, "/api/videos", offset=10**9)["items"] == []


def test_a_video_is_described_by_its_clips(client, index):
    found = get(client, "/api/video", id=ODD)
    row = index.loaded.store.read(("clip_log_var", "start_seconds"), [index.ids.index(ODD)])
    expected = np.exp(row["clip_log_var"][0].astype(float).mean(axis=1))
    assert [clip["uncertainty"] for clip in found["clips"]] == pytest.approx(expected)
    assert [clip["start_seconds"] for clip in found["clips"]] == pytest.approx(row["start_seconds"][0])
    assert found["path_name"] == Path(ODD).name
    assert found["decision"] is None
    for link in ("thumbnail", "preview", "source"):
        assert client.get(found[link]).status_code == 200


def test_the_mean_of_the_clips_lies_where_the_map_shows_the_video(client):
    found = get(client, "/api/map")
    place = found["ids"].index(ODD)
    clips = get(client, "/api/video", id=ODD)["clips"]
    assert np.mean([clip["x"] for clip in clips]) == pytest.approx(found["x"][place], abs=1e-5)
    assert np.mean([clip["y"] for clip in clips]) == pytest.approx(found["y"][place], abs=1e-5)


def test_a_map_has_as_many_axes_as_asked_for(client):
    for dim in (2, 3):
        found = get(client, "/api/map", dim=dim)
        assert (found["dim"], found["is_sampled"], len(found["explained"])) == (dim, False, dim)
        assert len(found["ids"]) == len(found["x"]) == len(found["radius"]) == len(found["clusters"]) == 12
        assert (found["z"] is None) == (dim == 2)
        assert all(radius > 0 for radius in found["radius"])
    assert client.get("/api/map?dim=4").status_code == 422


def test_a_large_collection_is_sampled_and_that_is_said(open_client, monkeypatch):
    monkeypatch.setattr(collection_module, "MAX_POINTS", 5)
    found = get(open_client(), "/api/map")
    assert found["is_sampled"] is True
    assert found["num_videos"] == 12
    assert len(found["ids"]) == 4


def test_search_answers_as_the_index_does(client, index):
    found = get(client, "/api/search", id=ODD, k=5)
    expected = index.search(ODD, k=5)
    hits = found["answer"]["hits"]
    assert [hit["id"] for hit in hits] == [hit.id for hit in expected.hits]
    assert [hit["log_probability"] for hit in hits] == [hit.log_probability for hit in expected.hits]
    assert found["answer"]["certificate"]["is_exact"] is True
    assert set(found["cards"]) == {ODD, *(hit.id for hit in expected.hits)}
    # What a video is, its card says; why it was found, the hit. Nothing comes twice.
    assert all(set(hit) & set(found["cards"][hit["id"]]) == {"id"} for hit in hits)


def test_search_takes_the_options_of_the_command_line(client, index):
    found = get(client, "/api/search", id=ODD, label="Fire", metric="cosine", k=3, exclude_same="group")
    assert {found["cards"][hit["id"]]["label"] for hit in found["answer"]["hits"]} == {"Fire"}
    assert found["answer"]["metric"] == "cosine"
    refused = client.get("/api/search", params={"id": ODD, "min_probability": 0.5})
    assert refused.status_code == 422
    assert "--max-chance" in refused.text
    itself = get(client, "/api/search", id=ODD, exclude_same="nothing", k=12)["answer"]["hits"]
    assert ODD in {hit["id"] for hit in itself}


def test_the_same_question_is_answered_from_memory(client, monkeypatch):
    first = client.get("/api/search", params={"id": ODD}).content
    monkeypatch.setattr(Index, "search", None)
    assert client.get("/api/search", params={"id": ODD}).content == first
    assert client.get("/api/search", params={"id": ODD, "k": 77}).status_code == 500


def test_a_part_of_a_video_is_embedded_by_itself(client, index, collection):
    found = get(client, "/api/search", id=ODD, start=0.5, end=2, k=3)["answer"]
    expected = index.search((ODD, 0.5, 2.0), k=3, library=Library(collection.home))
    assert found["span"] == {"start_seconds": 0.5, "end_seconds": 2.0}
    assert [hit["id"] for hit in found["hits"]] == [hit.id for hit in expected.hits]
    assert found["uncertainty"] == pytest.approx(expected.uncertainty, rel=1e-4)
    for wrong in ({"start": 2, "end": 1}, {"start": 1}, {"start": 100, "end": 101}):
        assert client.get("/api/search", params={"id": ODD, **wrong}).status_code == 422


def test_a_file_that_is_sent_finds_its_copy(client, collection):
    path = collection.videos / "Fire" / "2.mp4"
    with path.open("rb") as file:
        answer = client.post("/api/search", files={"file": file}, data={"k": 3}, headers={"X-ProViCo": "1"})
    assert answer.status_code == 200, answer.text
    found = answer.json()["answer"]
    assert found["query"] == "2.mp4"
    assert [hit["id"] for hit in found["hits"] if hit["mean_distance"] < 1e-3] == ["Fire/2.mp4"]
    assert len(found["hits"]) == 3


def test_nothing_says_where_on_this_machine_anything_lies(client, collection):
    secret = str(collection.index.parent)
    for path in ("stats", "videos", f"video?id={'Fire/1.mp4'}", "search?id=Fire/1.mp4", "map", "runs"):
        assert secret not in client.get(f"/api/{path}").text
    for path in ("reports", "curation", "duplicates", "openapi.json", "video?id=nothing"):
        assert secret not in client.get(f"/api/{path}").text


def test_media_are_what_they_are_called(client):
    card = get(client, "/api/videos", text="50%")["items"][0]
    assert card["id"] == ODD
    picture = client.get(card["thumbnail"])
    assert (picture.headers["content-type"], picture.content[:2]) == ("image/jpeg", b"\xff\xd8")
    again = client.get(card["thumbnail"], headers={"If-None-Match": picture.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    video = client.get(card["preview"])
    assert (video.headers["content-type"], video.content[4:8]) == ("video/mp4", b"ftyp")
    frame = client.get("/media/frame", params={"id": ODD, "seconds": 1.5, "height": 36})
    assert (frame.headers["content-type"], frame.content[:2]) == ("image/jpeg", b"\xff\xd8")


def test_frames_at_different_times_differ(client):
    frames = [client.get("/media/frame", params={"id": ODD, "seconds": s}).content for s in (0, 1, 99, 1e6)]
    assert frames[0] != frames[1]
    assert frames[2] == frames[3]  # both are after the end, where the last frame stays


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [("bytes=0-99", 0, 100), ("bytes=100-", 100, None), ("bytes=-50", -50, None), ("bytes=5-5", 5, 6)],
)
def test_parts_of_a_file_can_be_asked_for(client, collection, asked, start, end):
    whole = (collection.videos / ODD).read_bytes()
    part = client.get("/media/source", params={"id": ODD}, headers={"Range": asked})
    assert part.status_code == 206
    assert part.content == whole[start:end]
    first = start % len(whole)
    assert part.headers["content-range"] == f"bytes {first}-{first + len(part.content) - 1}/{len(whole)}"


def test_parts_that_are_not_there_are_refused(client, collection):
    whole = (collection.videos / ODD).read_bytes()
    beyond = client.get("/media/source", params={"id": ODD}, headers={"Range": f"bytes={len(whole)}-"})
    assert beyond.status_code == 416
    assert beyond.headers["content-range"] == f"bytes */{len(whole)}"
    for ignored in ("bytes=5-2", "bytes=0-1,5-6", "lines=1-2", "bytes=-", "bytes=a-b"):
        answer = client.get("/media/source", params={"id": ODD}, headers={"Range": ignored})
        assert (answer.status_code, answer.content) == (200, whole)
    stale = client.get("/media/source", params={"id": ODD}, headers={"Range": "bytes=0-9", "If-Range": '"x"'})
    assert (stale.status_code, stale.content) == (200, whole)


def test_runs_are_followed_while_they_train(open_client, collection, tmp_path):
    runs = Path(shutil.copytree(collection.runs, tmp_path / "runs"))
    client = open_client(runs=(runs,))
    (run,) = get(client, "/api/runs")
    assert (run["name"], run["method"], run["epochs_done"], run["epochs"]) == ("first", "provico", 3.0, 4)
    assert run["is_finished"] is False
    first = get(client, "/api/runs/first/metrics")
    assert [line["step"] for line in first["lines"]] == [0, 5, 10, 15, 20, 25, 30]
    log = runs / "first" / "metrics.jsonl"
    with log.open("a") as file:
        file.write('{"step": 35, "epoch": 3.5}\n{"step": 40')  # the last line is being written
    more = get(client, "/api/runs/first/metrics", after=first["next"])
    assert ([line["step"] for line in more["lines"]], more["next"], more["is_restarted"]) == ([35], 8, False)
    log.write_text('{"step": 1}\n')  # resumed from an earlier checkpoint
    again = get(client, "/api/runs/first/metrics", after=8)
    assert (again["lines"], again["next"], again["is_restarted"]) == ([{"step": 1}], 1, True)
    assert client.get("/api/runs/second/metrics").status_code == 404


def test_reports_are_listed_and_shown_in_a_sandbox(client):
    (report,) = get(client, "/api/reports")
    assert (report["name"], report["kind"]) == ("first", "run")
    page = client.get(report["url"])
    assert "The story of a run." in page.text
    assert page.headers["content-security-policy"].startswith("sandbox;")


def test_duplicates_are_those_that_are_kept_with_the_index_but_for_the_rejected(
    open_client, collection, tmp_path
):
    index = Path(shutil.copytree(collection.index, tmp_path / "index"))
    client = open_client(index=index)
    assert get(client, "/api/duplicates")["is_known"] is False
    pairs = (same("Fire/1.mp4", "Fire/2.mp4"), same("gone.mp4", "Fire/3.mp4"))
    keep_duplicates(index, *pairs)
    found = get(client, "/api/duplicates")
    (group,) = found["groups"]
    assert (group["keep"]["card"]["id"], group["reason"]) == ("Fire/1.mp4", "its file is the oldest")
    assert [(copy["card"]["id"], copy["edit"]) for copy in group["copies"]] == [("Fire/2.mp4", "re-encoded")]
    overview = get(client, "/api/overview")["duplicates"]
    assert (overview["num_groups"], overview["num_copies"]) == (1, 1)
    assert get(client, "/api/search", id="Fire/1.mp4", k=11)["duplicates"] == [["Fire/1.mp4", "Fire/2.mp4"]]
    guard = {"X-ProViCo": "1"}
    body = {"pairs": [["Fire/2.mp4", "Fire/1.mp4"]]}
    assert client.post("/api/duplicates/rejections", json=body, headers=guard).json() == {"num_rejected": 1}
    assert get(open_client(index=index), "/api/duplicates")["groups"] == []
    again = client.post("/api/duplicates/rejections", json=body | {"rejected": False}, headers=guard)
    assert again.json() == {"num_rejected": 0}
    assert len(get(client, "/api/duplicates")["groups"]) == 1
    (index / "duplicates.json").write_text("[]")
    assert get(client, "/api/duplicates")["is_known"] is False


def test_files_of_an_index_cannot_be_moved_but_tagged(open_client, collection, tmp_path):
    """An index may be somebody else's, and its rows could name any file."""
    index = Path(shutil.copytree(collection.index, tmp_path / "index"))
    client, guard = open_client(index=index), {"X-ProViCo": "1"}
    for verb in ("trash", "move", "link"):
        refused = client.post(
            "/api/actions", json={"do": verb, "ids": ["Fire/1.mp4"], "to": "a"}, headers=guard
        )
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_movable")
    done = client.post(
        "/api/actions", json={"do": "tag", "ids": ["Fire/1.mp4"], "to": " hot "}, headers=guard
    )
    assert (done.json()["revision"], done.json()["tags"]) == (1, ["hot"])
    (card,) = get(client, "/api/videos", tag="hot")["items"]
    assert (card["id"], card["tags"]) == ("Fire/1.mp4", ["hot"])
    undone = client.post("/api/actions/undo", json={"revision": 1}, headers=guard)
    assert undone.json()["tags"] == []
    assert client.post("/api/actions/undo", json={"revision": 1}, headers=guard).status_code == 409
    assert client.post("/api/work", json={"do": "learn"}, headers=guard).status_code == 403


def test_a_growing_index_is_followed(open_client, collection, tmp_path, monkeypatch):
    monkeypatch.setattr(collection_module, "SECONDS_BETWEEN_LOOKS", 0.0)
    monkeypatch.setattr(collection_module, "LOADING_SHARE", 0.0)
    index = Path(shutil.copytree(collection.index, tmp_path / "index"))
    client = open_client(index=index)
    before = get(client, "/api/search", id=ODD, k=50)
    video = tmp_path / "more" / "Snow" / "new.mp4"
    video.parent.mkdir(parents=True)
    write_video(video, np.random.default_rng(5).integers(0, 255, (24, 40, 52, 3), dtype=np.uint8))
    Index.open(index).add(open_catalog(video.parent.parent), library=Library(collection.home))
    assert get(client, "/api/stats")["num_videos"] == 13
    after = get(client, "/api/search", id=ODD, k=50)
    assert len(after["answer"]["hits"]) == len(before["answer"]["hits"]) + 1


def test_an_empty_index_is_no_error(open_client, collection, tmp_path):
    index = Path(shutil.copytree(collection.index, tmp_path / "index"))
    opened = Index.open(index)
    opened.remove(opened.ids)
    client = open_client(index=index)
    assert get(client, "/api/stats")["uncertainty"]["median"] is None
    assert get(client, "/api/videos")["items"] == []
    assert get(client, "/api/map")["x"] == []
    assert get(client, "/api/map", dim=3)["z"] == []
    assert get(client, "/api/curation")["items"] == []
    assert client.get("/api/search?id=a").status_code == 404


def test_every_page_is_rendered(client):
    for path in ("/", "/browse", "/duplicates", "/search", "/video?id=a", "/map", "/runs", "/curate"):
        page = client.get(path)
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    script = client.get("/static/plotly.min.js")
    assert script.headers["content-type"].startswith("text/javascript")
    wrong = client.get("/nothing", headers={"Accept": "text/html"})
    assert (wrong.status_code, wrong.headers["content-type"]) == (404, "text/html; charset=utf-8")


def test_numbers_are_finite_or_absent(client):
    """JSON has neither infinity nor NaN, and browsers refuse them."""
    for metric in ("match", "cosine", "bhattacharyya"):
        text = client.get("/api/search", params={"id": ODD, "metric": metric}).text
        assert json.loads(text, parse_constant=lambda name: pytest.fail(name))["answer"]["metric"] == metric
    assert math.isfinite(get(client, "/api/search", id=ODD)["answer"]["best_log_probability"])


def test_links_lead_back_here(client):
    card = get(client, "/api/videos")["items"][0]
    assert urlsplit(card["thumbnail"]).netloc == ""
