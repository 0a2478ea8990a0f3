"""What a child makes of a file is what the encoder says of it, or an error in words."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from provico.embedding.driver import embed_video
from provico.embedding.embeddings import VideoEmbedding
from provico.errors import WeightsError
from provico.explorer.child_work import EmbedRequest, FrameRequest, embed_file, read_frame
from provico.models import Encoder

from .conftest import Collection, TestClient


def request_for(collection: Collection, encoder: Path, span: tuple[float, float] | None) -> EmbedRequest:
    return EmbedRequest(
        path=collection.videos / "Fire" / "1.mp4",
        encoder=encoder,
        num_clips=4,
        short_side=36,
        allow_import=False,
        span=span,
        library=collection.home,
    )


def test_a_file_is_embedded_as_in_this_process(collection: Collection) -> None:
    folder = collection.index / "encoder"
    found = embed_file(request_for(collection, folder, None))
    assert isinstance(found, VideoEmbedding)
    path = collection.videos / "Fire" / "1.mp4"
    expected = Encoder.from_pretrained(folder).embed(path, num_clips=4, short_side=36)
    assert found.clips == expected.clips
    assert torch.equal(found.gaussians.mean, expected.gaussians.mean)


@pytest.mark.parametrize("span", [None, (0.5, 2.0)])
def test_numbers_that_are_not_finite_are_refused(
    collection: Collection, tmp_path: Path, span: tuple[float, float] | None
) -> None:
    """Whatever the metric: the match probability would refuse them later, cosine would not."""
    encoder = Encoder.from_pretrained(collection.index / "encoder")
    with torch.no_grad():
        next(encoder.head.parameters()).fill_(torch.nan)
    encoder.save_pretrained(tmp_path / "encoder")
    request = request_for(collection, tmp_path / "encoder", span)
    with request.path.open("rb") as file:
        found = embed_file(request, file.fileno())
    assert isinstance(found, WeightsError)
    assert "not finite for 1 of 1 videos" in str(found)


def test_a_frame_is_of_the_file_that_was_opened(collection: Collection, tmp_path: Path) -> None:
    """Whatever takes its place meanwhile: here a link to another video."""
    path = tmp_path / "a.mp4"
    path.write_bytes((collection.videos / "Fire" / "1.mp4").read_bytes())
    with path.open("rb") as file:
        request = FrameRequest(path, 1.0, 64)
        expected = read_frame(request, file.fileno())
        assert isinstance(expected, bytes)
        path.unlink()
        path.symlink_to(collection.videos / "Grass" / "1.mp4")
        assert read_frame(request, file.fileno()) == expected
    with path.open("rb") as file:
        assert read_frame(request, file.fileno()) != expected


def test_a_span_is_of_the_file_that_was_opened(collection: Collection, tmp_path: Path) -> None:
    """With what is remembered of the file, and without."""
    request = request_for(collection, collection.index / "encoder", (0.5, 1.5))
    path = tmp_path / "a.mp4"
    path.write_bytes(request.path.read_bytes())
    expected = embed_video(Encoder.from_pretrained(request.encoder), path, span=(0.5, 1.5), num_clips=4)
    with path.open("rb") as file:
        for replace in (
            lambda: None,
            path.unlink,
            lambda: path.symlink_to(collection.videos / "Grass/1.mp4"),
        ):
            replace()
            found = embed_file(dataclasses.replace(request, path=path), file.fileno())
            assert isinstance(found, VideoEmbedding)
            assert found.clips == expected.clips
            assert torch.equal(found.gaussians.mean, expected.gaussians.mean)
        beyond = embed_file(dataclasses.replace(request, path=path, span=(90.0, 99.0)), file.fileno())
        assert str(beyond).startswith("The span 1:30.0-1:39.0 of a.mp4 has no frame in it")


def test_a_child_that_cannot_be_had_is_no_fault_of_the_video(
    open_client: Callable[..., TestClient], collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = open_client()
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    content = (collection.videos / "Fire" / "1.mp4").read_bytes()
    answers = (
        client.get("/media/frame?id=Fire/1.mp4&seconds=1"),
        client.post("/api/search", files={"file": ("a.mp4", content)}, headers={"X-ProViCo": "1"}),
    )
    assert {(one.status_code, one.json()["error"]["code"]) for one in answers} == {(503, "busy")}
    monkeypatch.undo()
    assert client.get("/media/frame?id=Fire/1.mp4&seconds=1").status_code == 200
