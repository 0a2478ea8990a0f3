"""Words on the page: what the index answers, a sentence where it knows none, and names of groups."""

from __future__ import annotations

import numpy as np
import pytest

from provico.search.index import Index

FIRE = "Fire/1.mp4"


@pytest.fixture
def worded_client(open_client, worded_index):
    return open_client(index=worded_index, runs=(), words=("at night", "a person diving"))


def ask(client, **values):
    return client.get("/api/search/words", params=values)


def test_the_answer_is_that_of_the_index(worded_client, worded_index):
    assert worded_client.get("/api/stats").json()["knows_words"]
    found = ask(worded_client, text="a dog at night", k=11).json()
    expected = Index.open(worded_index).search_words("a dog at night", k=11, max_chance=None)
    assert found["query"] == "a dog at night"
    assert found["num_videos"] == len(found["cards"]) == 11
    assert [hit["id"] for hit in found["hits"]] == [hit.id for hit in expected.hits]
    for hit, known in zip(found["hits"], expected.hits, strict=True):
        assert hit["score"] == pytest.approx(known.score)
        assert hit["spread"] == pytest.approx(known.spread)
        assert hit["expected_by_chance"] is None  # of so few videos nothing can be said
        assert hit["is_whole"] == (hit["id"] != "long.mp4")
    (moment,) = [hit["moment"] for hit in found["hits"] if hit["id"] == "long.mp4"]
    assert 0 < moment["end_seconds"] - moment["start_seconds"] < 25


def test_words_and_videos_together(worded_client, worded_index):
    parts = {"like": "long.mp4", "unlike": "a red dog"}
    found = ask(worded_client, text="at night", **parts).json()
    lists = {name: [part] for name, part in parts.items()}
    expected = Index.open(worded_index).search_words("at night", **lists, k=12, max_chance=None)
    assert [hit["id"] for hit in found["hits"]] == [hit.id for hit in expected.hits]
    assert "long.mp4" not in [hit["id"] for hit in found["hits"]]
    assert "long.mp4" in found["cards"]


def test_what_cannot_be_asked_is_said(worded_client, shared_client):
    assert not shared_client.get("/api/stats").json()["knows_words"]
    refused = ask(shared_client, text="a dog")
    assert refused.status_code == 409
    error = refused.json()["error"]
    assert "cannot be searched by words: tiny" in error["message"]
    assert "--backbone" in error["hint"]
    assert ask(worded_client, text=" ").status_code == 422
    assert ask(worded_client, text="a", like="no such").status_code == 404
    assert ask(worded_client, text="a" * 301).status_code == 422


def test_given_words_name_groups_and_file_names_do_where_none_fits(worded_client, open_client, worded_index):
    found = worded_client.get("/api/overview").json()
    assert found["words_note"] == ""
    for group in found["clusters"]:
        assert all(0 < word["chance"] <= 0.05 for word in group["words"])
        assert group["named_by"] == ("words" if group["words"] else "files")
    plain = open_client(index=worded_index, runs=()).get("/api/overview").json()
    assert {"dusk", "lake"} <= {group["title"] for group in plain["clusters"]}
    assert {group["number"] for group in plain["clusters"]} == {
        group["number"] for group in found["clusters"]
    }


def test_words_that_cannot_be_used_are_no_error(open_client):
    found = open_client(words=("at night",)).get("/api/overview").json()
    assert "tiny has no text tower" in found["words_note"]
    assert {group["named_by"] for group in found["clusters"]} == {"labels"}


def test_the_uncertainty_over_time_covers_all_of_a_long_video(worded_client, worded_index):
    clips = worded_client.get("/api/video", params={"id": "long.mp4"}).json()["clips"]
    known = Index.open(worded_index).loaded.store.read(("id", "timeline_log_var"))
    log_var = known["timeline_log_var"][known["id"].index("long.mp4")]
    assert len(clips) == len(log_var) > 20
    ends = [0.0, *(clip["end_seconds"] for clip in clips)]
    assert [clip["start_seconds"] for clip in clips] == pytest.approx(ends[:-1])
    assert ends[-1] == pytest.approx(25)
    expected = np.exp(log_var.astype(np.float64).mean(axis=1))
    assert [clip["uncertainty"] for clip in clips] == pytest.approx(expected)
