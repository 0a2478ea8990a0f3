"""Frames scaled as a preprocessor does it (tests/models/test_published.py compares with real ones)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from provico.data import scaling
from provico.data.frames.encode import write_video
from provico.data.frames.prepared import read_clips
from provico.data.frames.video import read_frames
from provico.data.library import Library
from provico.data.loader import ClipSettings
from provico.data.scaling import frame_shape, read_scaled, scale
from provico.defaults import SCALINGS

NUMBERS = np.array([[0, 2, 4], [2, 4, 6], [7, 7, 1]])
CROPS = [(1, 2, 16, 16), (0, 0, 16, 16), (4, 9, 16, 16)]


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("video") / "a.mp4"
    frames = np.random.default_rng(0).integers(0, 256, (8, 30, 44, 3), dtype=np.uint8)
    write_video(path, frames)
    return path


@pytest.mark.parametrize("size", [1, 2**28])
@pytest.mark.parametrize("name", SCALINGS[1:])
def test_each_frame_of_each_clip_is_scaled_and_cut(
    name: str, size: int, video: Path, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "BYTES_AT_ONCE", size)
    settings = ClipSettings(short_side=20, crop_size=16, scaling=name)
    index = library.index(video)
    assert frame_shape(index, settings) == (20, 29), "the fraction of 29.33 is cut off"
    found = read_scaled(video, NUMBERS, index=index, settings=settings, library=library, crops=CROPS)
    for clip, numbers, (top, left, height, width) in zip(found, NUMBERS, CROPS, strict=True):
        for frame, number in zip(clip, numbers, strict=True):
            whole = scale(read_frames(video, [number], index=index), 20, 29, name)[0]
            assert np.array_equal(frame, whole[top : top + height, left : left + width])
    uncut = read_scaled(video, NUMBERS, index=index, settings=settings, library=library, crops=None)
    assert uncut.shape == (3, 3, 20, 29, 3)


def test_kernels_agree_within_rounding(video: Path, library: Library) -> None:
    frames = read_frames(video, [0, 1], index=library.index(video))
    for kernel in ("bilinear", "bicubic"):
        exact = [
            [
                np.asarray(Image.fromarray(frame[..., c].astype(np.float32)).resize((29, 20), kind))
                for c in range(3)
            ]
            for frame in frames
            for kind in [Image.Resampling[kernel.upper()]]
        ]
        expected = np.clip(np.moveaxis(np.array(exact), 1, -1), 0, 255)
        for library_name, levels in (("pil", 1.1), ("torch", 1.6), ("float", 0.51)):
            found = scale(frames, 20, 29, f"{library_name}-{kernel}")
            assert np.abs(found - expected).max() < levels, (library_name, kernel)


def test_squashed_frames_lose_their_aspect(video: Path, library: Library) -> None:
    settings = ClipSettings(short_side=20, crop_size=20, scaling="pil-bicubic", squash=True)
    index = library.index(video)
    assert frame_shape(index, settings) == (20, 20)
    found = read_scaled(video, NUMBERS[:1], index=index, settings=settings, library=library, crops=None)
    expected = Image.fromarray(read_frames(video, [2], index=index)[0]).resize(
        (20, 20), Image.Resampling.BICUBIC
    )
    assert np.array_equal(found[0, 1], np.asarray(expected))


def test_the_decoder_scales_as_before(video: Path, library: Library) -> None:
    settings = ClipSettings(short_side=20, crop_size=16)
    index = library.index(video)
    assert frame_shape(index, settings) == (20, 29)
    assert frame_shape(index, replace(settings, short_side=25)) == (25, 37), "36.67 is rounded"
    found = read_scaled(video, NUMBERS, index=index, settings=settings, library=library, crops=CROPS)
    expected = read_clips(video, NUMBERS, index=index, short_side=20, library=library, crops=CROPS)
    assert np.array_equal(found, expected)
