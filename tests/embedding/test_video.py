"""One video file becomes what the network says of its clips, in the centre crops of evenly spaced frames."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from provico.data.frames.encode import write_video
from provico.data.frames.video import index_video, read_frames
from provico.data.library import Library
from provico.embedding.clips import clip_settings
from provico.embedding.driver import embed_video
from provico.errors import UnreadableVideoError, WeightsError
from provico.models import Encoder, EncoderConfig, FrozenSpec, InputSpec

CONFIG = EncoderConfig.for_backbone("tiny", dim=16, input=InputSpec(size=32, num_frames=4))


def make_encoder() -> Encoder:
    torch.manual_seed(0)
    return Encoder(CONFIG)


def write_noise(path: Path, seed: int = 0) -> Path:
    write_video(path, np.random.default_rng(seed).integers(0, 256, (24, 40, 40, 3), np.uint8))
    return path


def test_clips_are_as_the_encoder_wants_them() -> None:
    config = replace(CONFIG, input=InputSpec(size=32, num_frames=4, frame_step=3))
    clips = clip_settings(config, num_clips=5)
    assert (clips.num_clips, clips.sampling, clips.crop_size, clips.short_side) == (5, "uniform", 32, 36)
    assert (clips.spec.num_frames, clips.spec.frame_step) == (4, 3)
    assert clip_settings(CONFIG, num_clips=1, short_side=40).short_side == 40


def test_a_video_file_becomes_a_distribution_with_times(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    # As large as the crop, and of one colour each, so that the decoder can change nothing.
    colours = np.random.default_rng(0).integers(0, 256, (24, 1, 1, 3)).astype(np.uint8)
    write_video(path, np.broadcast_to(colours, (24, 32, 32, 3)))
    encoder = make_encoder().train()
    encoder.backbone.eval()
    found = encoder.embed(path, num_clips=3, short_side=32)
    assert encoder.training
    assert not encoder.backbone.training
    assert [clip.frames for clip in found.clips] == [(0, 1, 2, 3), (10, 11, 12, 13), (20, 21, 22, 23)]
    assert [clip.start_seconds for clip in found.clips] == pytest.approx([0.0, 10 / 25, 20 / 25])
    assert found.clips[-1].end_seconds == pytest.approx(24 / 25)
    frames = [clip.frames for clip in found.clips]
    pixels = torch.from_numpy(read_frames(path, frames, index=index_video(path)))
    with torch.no_grad():
        expected = encoder.eval()(pixels.unsqueeze(0))
    torch.testing.assert_close(found.gaussians.mean, expected.clips.mean[0])
    torch.testing.assert_close(found.mixture.moment_matched.log_var, expected.moment_matched.log_var[0])
    total = float(expected.moment_matched.uncertainty)
    assert found.uncertainty + found.disagreement == pytest.approx(total)
    assert found.uncertainty > 0
    assert found.disagreement > 0
    with pytest.raises(ValueError, match="one row per clip"):
        replace(found, clips=found.clips[:2])


def test_more_clips_than_fit_at_once_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_video(tmp_path / "a.mp4", np.random.default_rng(0).integers(0, 256, (24, 40, 40, 3), np.uint8))
    encoder = make_encoder().eval()
    at_once = encoder.embed(str(tmp_path / "a.mp4"))
    monkeypatch.setattr("provico.embedding.features.CLIPS_AT_ONCE", 3)
    torch.testing.assert_close(encoder.embed(tmp_path / "a.mp4").gaussians.mean, at_once.gaussians.mean)
    assert len(at_once.clips) == 10


def test_a_video_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_text("no video")
    with pytest.raises(UnreadableVideoError, match=r"a\.mp4"):
        make_encoder().embed(tmp_path / "a.mp4")
    with pytest.raises(UnreadableVideoError, match="no such file"):
        make_encoder().embed(tmp_path / "b.mp4")


def test_several_files_give_a_list_and_each_is_what_it_is_alone(tmp_path: Path) -> None:
    """Also of files that have the same name."""
    (tmp_path / "other").mkdir()
    paths = [write_noise(tmp_path / "a.mp4"), write_noise(tmp_path / "other" / "a.mp4", seed=1)]
    encoder = make_encoder().train()
    found = encoder.embed(paths, num_clips=3)
    assert encoder.training
    assert isinstance(found, list)
    for path, one in zip(paths, found, strict=True):
        alone = encoder.embed(path, num_clips=3)
        assert one.clips == alone.clips
        assert torch.equal(one.gaussians.mean, alone.gaussians.mean)
        assert torch.equal(one.gaussians.log_var, alone.gaussians.log_var)
    assert encoder.embed([]) == []


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    encoder = make_encoder().eval()
    torch.nn.init.constant_(encoder.match_scale.b, 0.0)
    with torch.no_grad():
        next(encoder.head.parameters()).fill_(torch.nan)
    with pytest.raises(WeightsError, match=r"not finite for 1 of 1 videos, the first of them a\.mp4"):
        encoder.embed(write_noise(tmp_path / "a.mp4"), num_clips=2)


def test_a_frozen_network_sees_a_file_once_and_a_span_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes_seen: list[int]
) -> None:
    """A part that is asked for once is not worth remembering."""
    (tmp_path / "shade.py").write_text("def shade(clips):\n    return clips.mean(dim=(2, 3, 4))\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = InputSpec(size=32, num_frames=4)
    config = EncoderConfig.for_backbone("shade:shade", dim=8, input=spec, frozen=FrozenSpec(feature_dim=3))
    encoder = Encoder(config).eval()
    path, library = write_noise(tmp_path / "a.mp4"), Library(tmp_path / "home")
    first, again = (encoder.embed(path, num_clips=3, library=library) for _ in range(2))
    assert sizes_seen == [3]
    assert again.clips == first.clips
    assert torch.equal(again.gaussians.mean, first.gaussians.mean)
    for _ in range(2):
        part = embed_video(encoder, path, span=(0.0, 0.4), num_clips=3, library=library)
        assert part.clips[-1].frames[-1] == 9
    assert sizes_seen == [3, 3, 3]
