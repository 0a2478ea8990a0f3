"""A page over several indexes shows what one over all of their videos shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from provico.data.catalog import open_catalog
from provico.data.library import Library
from provico.models import Encoder
from provico.search.index import Index

from .conftest import Collection, TestClient

GUARD = {"X-ProViCo": "1"}


@pytest.fixture(scope="module")
def parts(collection: Collection, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("parts")
    for number in (1, 2):
        encoder = Encoder.from_pretrained(collection.index / "encoder")
        index = Index.create(folder / str(number), encoder, num_clips=4, num_samples=4)
        index.add(open_catalog(collection.videos, part=(number, 2)), library=Library(collection.home))
    return [folder / "1", folder / "2"]


def test_a_page_over_parts_is_that_of_the_whole(
    parts: list[Path], collection: Collection, open_client: Callable[..., TestClient], tmp_path: Path
) -> None:
    whole = open_client()
    together = open_client(index=parts[0], also=(str(parts[1]),))
    other = Index.open(parts[1]).ids[0]
    uploaded = (collection.videos / other).read_bytes()
    for ask in (
        lambda page: page.get("/api/videos").json()["items"],
        lambda page: page.get("/api/stats").json()["labels"],
        lambda page: page.get("/api/search", params={"id": other}).json()["cards"],
        lambda page: page.get("/api/search", params={"id": other, "start": 0.5, "end": 2}).json()["cards"],
        lambda page: page.post("/api/search", files={"file": uploaded}, headers=GUARD).json()["cards"],
        lambda page: page.get("/media/thumbnail", params={"id": other}).content,
        lambda page: page.get("/media/frame", params={"id": other, "seconds": 1}).content,
        lambda page: page.get("/api/map").json(),
    ):
        assert ask(together) == ask(whole)
    assert together.get("/media/preview", params={"id": other}).headers["content-type"] == "video/mp4"
    assert Index.open(parts[1]).preview(other).is_file()
    answer = together.get("/api/search", params={"id": other}).json()["answer"]
    assert answer["certificate"]["is_exact"]
    assert answer["certificate"]["num_allowed"] == 11
    assert together.get("/api/stats").json()["trouble"] is None
    assert together.get("/api/judgements/first").json()["items"] == []
    body = {"query": other, "hit": Index.open(parts[0]).ids[0], "verdict": "right", "revision": 0}
    refused = together.post("/api/judgements", json=body, headers=GUARD)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "several_indexes")

    here = Index.open(parts[0]).ids[1]
    together = open_client(index=parts[0], also=(str(parts[1]),))  # which has not read the rows of any hit
    parts[1].joinpath("store").rename(tmp_path / "away")
    answer = together.get("/api/search", params={"id": here, "k": 50}).json()["answer"]
    assert [part["name"] for part in answer["unreached"]] == ["2"]
    assert str(parts[1]) not in str(answer["unreached"])
    assert not answer["certificate"]["is_exact"]
    assert "Parts of the collection cannot be reached: 2." in together.get("/api/stats").json()["trouble"]
