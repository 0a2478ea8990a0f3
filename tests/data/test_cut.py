"""A part of a video as a file: the right frames, copied where keyframes allow, encoded elsewhere."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from provico.cli import main
from provico.data.frames.cut import cut_video
from provico.data.frames.encode import write_video
from provico.data.frames.video import index_video, read_frames
from provico.errors import ConfigError, OutputExistsError

FPS, GROUP, NUM_FRAMES = 10, 8, 40


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every frame is brighter than the one before it, on a little noise."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("cut") / "source.mp4"
    pictures = [np.full((36, 48, 3), 20 + 5 * n) + rng.integers(0, 3, (36, 48, 3)) for n in range(NUM_FRAMES)]
    options = {"x264-params": "scenecut=0:open-gop=0"}
    write_video(
        path,
        [np.uint8(picture) for picture in pictures],
        fps=FPS,
        gop_size=GROUP,
        max_b_frames=2,
        encoder_options=options,
    )
    return path


@pytest.mark.parametrize(
    ("first", "last", "is_copy"),
    [(0, 39, True), (8, 15, True), (16, 39, True), (8, 14, False), (7, 15, False), (3, 3, False)],
)
def test_the_frames_are_exact_and_copied_between_keyframes(source, tmp_path, first, last, is_copy):
    index = index_video(source)
    assert index.keyframes.tolist() == list(range(0, NUM_FRAMES, GROUP))
    out = tmp_path / "part.mp4"
    cut = cut_video(source, out, first / FPS + 0.01, (last + 1) / FPS - 0.01, index=index)
    assert (cut.num_frames, cut.is_copy) == (last - first + 1, is_copy)
    assert (cut.start_seconds, cut.end_seconds) == pytest.approx((first / FPS, (last + 1) / FPS))
    found = index_video(out)
    assert found.num_frames == cut.num_frames
    assert found.duration_seconds == pytest.approx(cut.num_frames / FPS, abs=0.02)
    pixels = read_frames(out, np.arange(found.num_frames), index=found).astype(int)
    expected = read_frames(source, np.arange(first, last + 1), index=index).astype(int)
    if is_copy:
        assert np.array_equal(pixels, expected)
        assert np.array_equal(found.signatures, index.signatures[first : last + 1])
    else:  # no frame is nearer to another one of the source
        assert np.abs(pixels.mean(axis=(1, 2, 3)) - expected.mean(axis=(1, 2, 3))).max() < 2


def test_times_that_vary_are_kept_and_bad_wishes_refused(source, tmp_path):
    path, pts = tmp_path / "varying.mkv", [0, 100, 150, 400, 1000, 1100]
    pictures = [np.full((36, 48, 3), 30 * n, np.uint8) for n in range(len(pts))]
    write_video(path, pictures, pts=pts, time_base=Fraction(1, 1000))
    index = index_video(path)
    cut_video(path, tmp_path / "part.mkv", 0.12, 1.05, index=index)
    found = index_video(tmp_path / "part.mkv")
    assert np.round(found.frame_seconds, 2).tolist() == [0, 0.05, 0.3, 0.9]
    with pytest.raises(ConfigError, match="no frame between 7 and 8 s; it lasts"):
        cut_video(path, tmp_path / "none.mp4", 7, 8, index=index)
    with pytest.raises(ConfigError, match="must end in"):
        cut_video(path, tmp_path / "part.txt", 0, 1, index=index)
    with pytest.raises(OutputExistsError):
        cut_video(path, tmp_path / "part.mkv", 0, 1, index=index)


def test_command_line(source, tmp_path, capsys):
    out = tmp_path / "part.mp4"
    main(["cut", str(source), "--span", "0:00.8-0:01.6", "--out", str(out), "--json"])
    assert json.loads(capsys.readouterr().out)["is_copy"] is True
    main(["cut", str(source), "--span", "0.3-1", "--out", str(tmp_path / "other.mp4")])
    assert "7 frames" in capsys.readouterr().out
