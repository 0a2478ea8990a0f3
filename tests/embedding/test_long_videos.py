"""Features of long videos come some clips at a time, and what was computed is not computed again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from provico.data.catalog import open_catalog
from provico.data.frames.encode import write_video
from provico.data.library import Library
from provico.embedding.driver import embed_batches
from provico.embedding.embeddings import Embeddings
from provico.models import Encoder, EncoderConfig, FrozenSpec, InputSpec

SECONDS, FPS, PART = 50, 4, 16
NETWORK = """
num_clips, most = 0, 10**9

def shade(clips):
    global num_clips
    if num_clips + len(clips) > most:
        raise KeyboardInterrupt
    num_clips += len(clips)
    return clips.mean(dim=(2, 3, 4))
"""


def test_what_was_computed_before_an_interruption_is_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shading.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("provico.embedding.long_videos.CLIPS_A_PART", PART)
    spec = InputSpec(size=16, num_frames=2)
    config = EncoderConfig.for_backbone("shading:shade", dim=4, input=spec, frozen=FrozenSpec(feature_dim=3))
    encoder = Encoder(config).eval()
    import shading  # type: ignore[import-not-found]

    shading.num_clips = 0  # the encoder has tried it
    frames = np.random.default_rng(0).integers(0, 255, (SECONDS * FPS, 16, 20, 3), np.uint8)
    (tmp_path / "videos").mkdir()
    write_video(tmp_path / "videos" / "a.mp4", frames, fps=FPS)
    catalog = open_catalog(tmp_path / "videos")

    def timeline(home: str) -> Embeddings:
        batches = embed_batches(
            encoder, catalog, num_clips=3, timelines=True, library=Library(tmp_path / home)
        )
        (found,) = (batch for batch in batches if len(batch))
        return found

    whole = timeline("other-home")
    assert whole.timelines is not None
    num_clips = shading.num_clips
    assert num_clips == len(whole.timelines[0].clips) == SECONDS + 1
    shading.num_clips, shading.most = 0, 2 * PART + 3
    with pytest.raises(KeyboardInterrupt):
        timeline("home")
    assert shading.num_clips == 2 * PART
    shading.most = 10**9
    resumed, again = timeline("home"), timeline("home")
    assert shading.num_clips == num_clips
    for found in (resumed, again):
        assert found.timelines is not None
        assert found.timelines[0].clips == whole.timelines[0].clips
        assert torch.equal(found.timelines[0].gaussians.mean, whole.timelines[0].gaussians.mean)
        assert torch.equal(found.videos.clips.log_var, whole.videos.clips.log_var)
    # The evenly spaced clips are some of those.
    assert whole.clip_seconds is not None
    assert whole.clip_seconds[0].tolist() == whole.timelines[0].clip_seconds[:: SECONDS // 2].tolist()
