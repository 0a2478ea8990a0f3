"""A picture that is dropped into the page: hits, or a sentence from an encoder that sees motion."""

from __future__ import annotations

import numpy as np
import pytest

from provico.search.index import Index

from ..search.test_pictures import write_picture

GUARD = {"X-ProViCo": "1"}


@pytest.fixture
def picture(tmp_path):
    pixels = np.random.default_rng(0).normal((30, 70, 220), 40, size=(40, 48, 3))
    return write_picture(tmp_path / "lake.png", np.clip(pixels, 0, 255).astype(np.uint8))


def send(client, path):
    files = {"file": (path.name, path.read_bytes())}
    return client.post("/api/search", files=files, data={"k": 11}, headers=GUARD)


def test_a_picture_is_answered_as_the_index_answers(open_client, worded_index, picture):
    answer = send(open_client(index=worded_index, runs=()), picture)
    assert answer.status_code == 200
    found = answer.json()["answer"]
    expected = Index.open(worded_index).search(picture, k=11, max_chance=None)
    assert found["query"] == "lake.png"
    assert found["uncertainty"] == pytest.approx(expected.uncertainty, rel=1e-4)
    assert {hit["id"] for hit in found["hits"]} == {hit.id for hit in expected.hits}


def test_an_encoder_of_motion_says_why_not(shared_client, picture):
    answer = send(shared_client, picture)
    assert answer.status_code == 422
    assert "is a single picture, but the encoder is on tiny" in answer.text
