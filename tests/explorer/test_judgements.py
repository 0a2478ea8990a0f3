"""Judgements by the API: kept at once, seen by all, guarded like decisions; and answers that are withheld."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from provico.search.index import Index
from provico.search.judgements import JudgementLog

GUARD = {"X-ProViCo": "1"}
QUERY, HIT, OTHER = "Fire/1.mp4", "Fire/2.mp4", "Grass/2.mp4"
FILES = ("judgements.csv", "lots.json", "calibration.json")


@pytest.fixture(autouse=True)
def forgotten(collection) -> Iterator[None]:
    """Judgements lie in the index, which all tests share."""
    yield
    for name in FILES:
        (collection.index / name).unlink(missing_ok=True)


def judge(
    client: httpx.Client, verdict: str, *, query: str = QUERY, hit: str = HIT, **more
) -> httpx.Response:
    body = {"query": query, "hit": hit, "verdict": verdict, **more}
    return client.post("/api/judgements", json=body, headers=GUARD)


def undo(client: httpx.Client, **body) -> httpx.Response:
    return client.post("/api/judgements/undo", json=body, headers=GUARD)


def known(client: httpx.Client, query: str = QUERY) -> dict:
    answer = client.get("/api/judgements", params={"query": query})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_judgement_is_on_the_disk_and_seen_by_all(client, collection):
    assert known(client)["hits"] == []
    answer = judge(client, "right").json()
    assert (answer["query"], answer["hit"], answer["verdict"]) == (QUERY, HIT, "right")
    judge(client, "wrong", hit=OTHER)
    log = JudgementLog(collection.index).read().current
    assert {pair: one.verdict for pair, one in log.items()} == {
        (QUERY, HIT): "right",
        (QUERY, OTHER): "wrong",
    }
    found = known(client)
    assert found["hits"] == [{"hit": HIT, "verdict": "right"}, {"hit": OTHER, "verdict": "wrong"}]
    assert found["num_judged"] == 2
    assert known(client, HIT)["hits"] == []


def test_undo_takes_back_the_last_and_says_what_holds(client):
    judge(client, "right")
    judge(client, "wrong")
    assert undo(client).json()["verdict"] == "right"
    undone = undo(client).json()
    assert (undone["hit"], undone["verdict"], undone["num_judged"]) == (HIT, None, 0)
    assert undo(client).json()["hit"] is None


def test_another_tab_is_a_conflict_and_nothing_is_lost(client):
    seen = known(client)["revision"]
    judge(client, "right", revision=seen)
    late = judge(client, "wrong", revision=seen)
    assert late.status_code == 409
    assert late.json()["error"]["code"] == "conflict"
    assert judge(client, "wrong", hit=OTHER, revision=seen).status_code == 200
    assert undo(client, revision=seen).status_code == 409
    assert [one["verdict"] for one in known(client)["hits"]] == ["right", "wrong"]


def test_a_judgement_is_guarded_and_must_make_sense(client, collection):
    body = {"query": QUERY, "hit": HIT, "verdict": "right"}
    assert client.post("/api/judgements", json=body).status_code == 403
    foreign = GUARD | {"Origin": "http://elsewhere.example"}
    assert client.post("/api/judgements", json=body, headers=foreign).status_code == 403
    assert judge(client, "maybe").status_code == 422
    assert judge(client, "right", hit="none.mp4").status_code == 404
    assert not (collection.index / "judgements.csv").exists()


def test_a_damaged_line_is_named_and_harms_nothing(client, collection):
    judge(client, "right")
    with (collection.index / "judgements.csv").open("a") as file:
        file.write("nonsense\n")
    judge(client, "wrong", hit=OTHER)
    found = known(client)
    assert len(found["hits"]) == 2
    assert "line 3" in found["damaged"][0]


def test_what_to_judge_first_names_queries_and_their_best_hits(client, collection):
    found = client.get("/api/judgements/first", params={"limit": 5}).json()
    assert len({item["query"] for item in found["items"]}) == 5
    index = Index.open(collection.index)
    for item in found["items"]:
        assert index.search(item["query"], k=1, exclude_same="group").hits[0].id == item["hit"]
        assert {item["query"], item["hit"]} <= set(found["cards"])
        assert item["is_drawn"] is False
    first = found["items"][0]
    judge(client, "right", query=first["query"], hit=first["hit"])
    again = client.get("/api/judgements/first", params={"limit": 12}).json()
    assert first["query"] not in {item["query"] for item in again["items"]}


def test_an_answer_is_withheld_with_a_reason_and_anew_after_each_judgement(client, collection):
    refused = client.get("/api/search", params={"id": QUERY, "max_error": 0.6})
    assert refused.status_code == 422
    assert "at least" in refused.json()["error"]["message"]
    drawn = Index.open(collection.index).select(num=12, by_lot=True, max_error=0.6)
    first = client.get("/api/judgements/first", params={"limit": 20}).json()["items"]
    assert [(one["query"], one["hit"]) for one in first] == [(one.query, one.hit) for one in drawn]
    assert all(one["is_drawn"] for one in first)
    for one in drawn:
        judge(client, "right", query=one.query, hit=one.hit)
    answer = client.get("/api/search", params={"id": QUERY, "max_error": 0.6}).json()["answer"]
    assert answer["withheld"] is None
    assert answer["max_error"] == 0.6
    assert answer["hits"]
    for one in drawn:
        judge(client, "wrong", query=one.query, hit=one.hit)
    answer = client.get("/api/search", params={"id": QUERY, "max_error": 0.6}).json()["answer"]
    assert answer["hits"] == []
    assert answer["withheld"].startswith("withheld: ")
