"""A clip every so many seconds is what the encoder says of that clip alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from provico.data.clips import strided_clips
from provico.data.frames.encode import write_video
from provico.data.frames.prepared import read_clips
from provico.data.library import Library
from provico.embedding.clips import FileClips, clip_settings, timeline_clips
from provico.embedding.driver import embed_clips
from provico.errors import ConfigError
from provico.models import Encoder, EncoderConfig, InputSpec

CONFIG = EncoderConfig.for_backbone("tiny", dim=16, input=InputSpec(size=32, num_frames=4))


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    torch.manual_seed(0)
    return Encoder(CONFIG)


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("timeline") / "long.mp4"
    picture = np.random.default_rng(0).integers(0, 256, (32, 48, 3), dtype=np.uint8)
    write_video(path, (np.roll(picture, number, axis=1) for number in range(203)), fps=10)
    return path


def every(step_seconds: float, video: Path, short_side: int | None = None) -> FileClips:
    return timeline_clips(CONFIG, video, step_seconds=step_seconds, short_side=short_side, library=Library())


def test_each_clip_is_embedded_as_if_it_were_alone(encoder: Encoder, video: Path) -> None:
    found = embed_clips(encoder, every(0.5, video, short_side=32))
    index = Library().index(video)
    frames = strided_clips(203, spec=clip_settings(CONFIG, num_clips=1).spec, stride=5)
    assert [clip.frames for clip in found.clips] == [tuple(clip) for clip in frames.tolist()]
    assert len(found.clips) > 2 * 16  # more than go through the network at once
    encoder.eval()
    for number in (0, 17, len(frames) - 1):
        pixels = read_clips(video, frames[number : number + 1], index=index, short_side=32, library=Library())
        with torch.no_grad():
            alone = encoder.encode_clips(torch.from_numpy(pixels[:, :, :, 8:40]))
        torch.testing.assert_close(found.gaussians.mean[number], alone.mean[0], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(found.gaussians.log_var[number], alone.log_var[0], atol=1e-5, rtol=1e-4)


def test_times_follow_the_step_and_reach_the_end(video: Path) -> None:
    clips = every(1.0, video).clips
    starts = np.array([clip.start_seconds for clip in clips])
    np.testing.assert_allclose(np.diff(starts)[:-1], 1.0, atol=1e-9)
    assert clips[-1].end_seconds == pytest.approx(20.3)


@pytest.mark.parametrize("step", [0.0, -1.0, float("nan"), float("inf")])
def test_the_step_must_be_above_zero(video: Path, step: float) -> None:
    with pytest.raises(ConfigError, match="above 0"):
        every(step, video)
