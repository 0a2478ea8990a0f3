"""A single picture as a query: what it looks like is compared, and it finds the moment that it shows."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from provico.cli import main
from provico.data.catalog import open_catalog
from provico.data.frames.encode import write_video
from provico.data.frames.video import index_video, read_frames
from provico.data.layouts.video_files import PICTURE_FORMATS, find_videos
from provico.data.library import Library
from provico.errors import ConfigError, UnreadableVideoError
from provico.models import Encoder
from provico.models.backbones.changes import with_usual_change
from provico.search.index import Index
from provico.training.start import untrained_encoder

FPS, PART_SECONDS, NUM_PARTS = 8, 4, 8
CODECS = {
    ".png": ("png", "rgb24"),
    ".jpg": ("mjpeg", "yuvj444p"),
    ".jpeg": ("mjpeg", "yuvj444p"),
    ".webp": ("libwebp", "yuv420p"),
    ".bmp": ("bmp", "bgr24"),
}


def write_picture(path: Path, pixels: NDArray[np.uint8]) -> Path:
    codec, layout = CODECS[path.suffix]
    encoder = av.CodecContext.create(codec, "w")
    assert isinstance(encoder, av.VideoCodecContext)
    encoder.height, encoder.width = pixels.shape[:2]
    encoder.pix_fmt, encoder.time_base = layout, Fraction(1, 25)
    frame = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format=layout)
    path.write_bytes(b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)]))
    return path


@pytest.mark.parametrize("suffix", PICTURE_FORMATS)
def test_a_picture_is_a_video_of_one_frame(suffix: str, tmp_path: Path) -> None:
    pixels = np.kron(np.random.default_rng(0).integers(0, 255, (6, 8, 3)), np.ones((16, 16, 1)))
    path = write_picture(tmp_path / f"a{suffix}", pixels.astype(np.uint8))
    index = index_video(path)
    assert index.num_frames == 1
    found = read_frames(path, [0, 0], index=index)
    assert np.abs(found - pixels).mean() < 8
    assert not find_videos(tmp_path).videos


def test_what_a_name_says_is_how_a_picture_is_read(tmp_path: Path) -> None:
    """A video under the name of a picture is no picture, and a pattern of names is a name."""
    write_video(tmp_path / "a.mp4", np.zeros((9, 32, 32, 3), np.uint8), fps=FPS)
    (tmp_path / "b.png").write_bytes((tmp_path / "a.mp4").read_bytes())
    for number in range(3):
        write_picture(tmp_path / f"c{number}.png", np.full((32, 32, 3), 90 * number, np.uint8))
    for name in ("b.png", "c%d.png"):
        with pytest.raises(UnreadableVideoError):
            index_video(tmp_path / name)


def test_usual_changes_take_the_place_of_none() -> None:
    features = torch.tensor([[3.0, 4.0, 0.0, 0.0], [0.3, 0.4, 1e-6, 0.0], [0.3, 0.4, 0.6, 0.8]])
    usual = torch.tensor([1.0, 1.0, 0.5, 0.5])
    expected = torch.tensor([[3.0, 4.0, 0.5, 0.5], [0.3, 0.4, 0.5, 0.5], [0.3, 0.4, 0.6, 0.8]])
    assert torch.equal(with_usual_change(features, usual, (2, 2)), expected)


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten short videos, and a long one of parts that look different."""
    folder, rng = tmp_path_factory.mktemp("collection"), np.random.default_rng(1)

    def part() -> NDArray[np.uint8]:
        tiles = rng.integers(0, 255, (3, 4, 3)).repeat(16, axis=0).repeat(16, axis=1)
        return np.clip(rng.normal(tiles, 10, size=(FPS * PART_SECONDS, 48, 64, 3)), 0, 255).astype(np.uint8)

    for number in range(10):
        write_video(folder / f"{number}.mp4", part(), fps=FPS)
    frames = np.concatenate([part() for _ in range(NUM_PARTS)])
    write_video(folder / "long.mp4", frames, fps=FPS)
    return folder


@pytest.fixture(scope="module")
def index(collection: Path, tmp_path_factory: pytest.TempPathFactory, library: Library) -> Index:
    catalog = open_catalog(collection)
    encoder = untrained_encoder("efficientnet_motion", catalog, num_looks=0, library=library)
    index = Index.create(tmp_path_factory.mktemp("index") / "index", encoder, num_clips=4)
    index.add(catalog, library=library)
    return index


def test_a_picture_finds_the_moment_that_it_shows(
    collection: Path,
    index: Index,
    library: Library,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    middles = [(2 * part + 1) * PART_SECONDS / 2 for part in range(NUM_PARTS)]
    video = collection / "long.mp4"
    frames = read_frames(video, [int(middle * FPS) for middle in middles], index=library.index(video))

    def num_found() -> int:
        """How many frames find where they are from, as pictures."""
        found = 0
        for number, (middle, pixels) in enumerate(zip(middles, frames, strict=True)):
            path = write_picture(tmp_path / f"{number}.png", pixels)
            best = index.search(path, k=1, max_chance=None, metric="cosine").hits[0]
            is_there = best.moment.start_seconds - 1 < middle < best.moment.end_seconds + 1
            found += best.id == "long.mp4" and is_there
        return found

    by_look = num_found()
    assert by_look >= 5
    main(["search", str(index.path), str(tmp_path / "0.png"), "--max-chance", "inf", "--json"])
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["hits"][0]["id"] == index.search(tmp_path / "0.png", max_chance=None).hits[0].id
    # What is taken for a video that stands still finds less.
    monkeypatch.setattr(Encoder, "of_picture", lambda self, features: features)
    assert num_found() < by_look


def test_a_network_of_motion_says_why_it_takes_no_picture(
    encoder: Encoder, index: Index, tmp_path: Path
) -> None:
    assert index.encoder.sees_pictures
    assert not encoder.sees_pictures
    path = write_picture(tmp_path / "a.png", np.zeros((40, 52, 3), np.uint8))
    with pytest.raises(
        ConfigError, match=r"a\.png is a single picture, .* tiny, which sees what moves .* --span"
    ):
        encoder.embed(path)
