from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from provico.data.corrupt import (
    MASK_SHARES,
    MIX_LEVELS,
    MOST_DRIFT,
    NOISE,
    add_grain,
    mask_clip,
    mix_clips,
    spoil,
    still_clip,
)
from provico.errors import ConfigError


def numbered_clips(num_clips: int, num_frames: int) -> np.ndarray:
    """Clips whose every pixel tells its clip (first channel) and its frame (second)."""
    clips = np.zeros((num_clips, num_frames, 4, 5, 3), np.uint8)
    clips[..., 0] = np.arange(num_clips)[:, None, None, None]
    clips[..., 1] = np.arange(num_frames)[:, None, None]
    return clips


@pytest.mark.parametrize(
    ("level", "num_videos", "num_frames"), [(1, 1, 16), (2, 2, 8), (3, 4, 4), (4, 8, 2), (5, 16, 1)]
)
def test_levels_of_the_paper(level: int, num_videos: int, num_frames: int) -> None:
    assert level in MIX_LEVELS
    mixed = mix_clips(numbered_clips(16, 16), level)
    source, time = mixed.pixels[:, 0, 0, 0], mixed.pixels[:, 0, 0, 1]
    assert source.tolist() == mixed.sources.tolist()
    assert source.tolist() == [video for video in range(num_videos) for _ in range(num_frames)]
    assert time.tolist() == list(range(16))  # so each run is consecutive
    assert np.all(mixed.pixels == mixed.pixels[:, :1, :1])  # whole frames


@given(st.integers(1, 6), st.integers(1, 40))
@settings(deadline=None)
def test_any_length_is_divided_equally_or_refused(level: int, num_frames: int) -> None:
    clips = numbered_clips(32, num_frames)
    if num_frames % 2 ** (level - 1):
        with pytest.raises(
            ConfigError, match=f"level {level} does not divide a clip of {num_frames} frames"
        ) as refused:
            mix_clips(clips, level)
        highest = int(str(refused.value).split("from 1 to ")[1].split(",")[0])
        mix_clips(clips, highest)
        assert num_frames % 2**highest
    else:
        assert set(np.bincount(mix_clips(clips, level).sources)) == {num_frames // 2 ** (level - 1)}


def test_too_few_clips_and_level_0_are_refused() -> None:
    with pytest.raises(ConfigError, match="level 3 needs clips of 4 videos, but got 3"):
        mix_clips(numbered_clips(3, 16), 3)
    with pytest.raises(ConfigError, match=r"level 0 .* Choose a level from 1 to 5"):
        mix_clips(numbered_clips(3, 16), 0)


@pytest.mark.parametrize(("rho", "num_masked"), [(0.0, 0), (0.2, 3), (0.4, 6), (0.6, 10), (0.8, 13)])
def test_shares_of_the_paper(rho: float, num_masked: int) -> None:
    assert rho in MASK_SHARES
    clip = numbered_clips(1, 16)[0]
    before = clip.copy()
    masked = mask_clip(clip, rho, np.random.default_rng(0))
    is_noise = masked.sources == NOISE
    assert is_noise.sum() == num_masked
    np.testing.assert_array_equal(masked.pixels[~is_noise], clip[~is_noise])
    assert all(
        np.any(frame != other) for frame, other in zip(masked.pixels[is_noise], clip[is_noise], strict=True)
    )
    np.testing.assert_array_equal(clip, before)


def test_masks_are_reproduced_by_the_seed_and_fall_anywhere() -> None:
    clip = numbered_clips(1, 16)[0]
    first, again = (mask_clip(clip, 0.4, np.random.default_rng(7)) for _ in range(2))
    np.testing.assert_array_equal(first.pixels, again.pixels)
    rng = np.random.default_rng(0)
    counts = sum((mask_clip(clip, 0.2, rng).sources == NOISE).astype(int) for _ in range(3000))
    assert stats.chisquare(counts).pvalue > 0.001


def test_noise_is_uniform() -> None:
    clip = np.zeros((8, 32, 32, 3), np.uint8)
    noise = mask_clip(clip, 1.0, np.random.default_rng(0)).pixels
    assert stats.chisquare(np.bincount(noise.ravel(), minlength=256)).pvalue > 0.001


@pytest.mark.parametrize("rho", [-0.1, 1.1, float("nan")])
def test_impossible_shares_are_refused(rho: float) -> None:
    with pytest.raises(ConfigError, match="between 0 and 1"):
        mask_clip(numbered_clips(1, 16)[0], rho, np.random.default_rng(0))


def test_spoiling_does_what_it_says() -> None:
    clips = numbered_clips(60, 8)
    spoilt = spoil(clips, np.random.default_rng(0), share=0.7)
    assert set(spoilt.kinds) == {"whole", "masked", "mixed", "grainy", "frozen"}
    for number, (kind, amount) in enumerate(zip(spoilt.kinds, spoilt.amounts, strict=True)):
        clip = spoilt.pixels[number]
        left = {"whole": 8, "masked": 8 - amount, "mixed": 8 / max(1, amount), "frozen": 1}
        gone = 1 - left[kind] / 8 if kind in left else amount / 100
        assert spoilt.lost[number] == pytest.approx(gone)
        changed = int((clip != clips[number]).any(axis=(1, 2, 3)).sum())
        if kind == "whole":
            assert (changed, amount) == (0, 0)
        elif kind == "masked":
            assert changed == amount
        elif kind == "mixed":
            sources = set(clip[:, 0, 0, 0].tolist())
            assert number in sources
            assert len(sources) == amount
            assert clip[:, 0, 0, 1].tolist() == list(range(8))  # frames keep their place in time
        elif kind == "frozen":
            assert 0 <= amount <= MOST_DRIFT
            assert (clip[0] == clips[number, clip[0, 0, 0, 1]]).all()  # a picture of this clip
            assert amount or (clip == clip[:1]).all()
        else:
            assert changed == 8
            # Less the noise's own mean, what is left of a pixel is its share of the clip.
            rest = clip.astype(float) - amount / 100 * 127.5
            assert abs((rest - (1 - amount / 100) * clips[number]).mean()) < 12


def test_a_still_picture_drifts_by_what_was_asked_for() -> None:
    frame = np.zeros((8, 10, 3), np.uint8)
    frame[2, 3] = 100
    still = still_clip(frame, 4, drift=(0.0, 0.0), light=0.0)
    assert (still == frame).all()
    clip = still_clip(frame, 4, drift=(3.0, -3.0), light=0.5)
    places = [np.argwhere(picture[..., 0]).tolist() for picture in clip]
    assert places == [[[2 + time, 3 - time]] for time in range(4)]
    assert clip.max(axis=(1, 2, 3)).tolist() == [100, 117, 133, 150]


def test_grain_of_no_share_changes_nothing_and_of_all_leaves_noise() -> None:
    clip = np.full((8, 32, 32, 3), 200, np.uint8)
    rng = np.random.default_rng(0)
    assert (add_grain(clip, 0.0, rng) == clip).all()
    noise = add_grain(clip, 1.0, rng)
    assert stats.chisquare(np.bincount(noise.ravel(), minlength=256)).pvalue > 0.001


def test_spoiling_reaches_every_amount_and_about_the_share() -> None:
    rng = np.random.default_rng(1)
    done = [spoil(numbered_clips(30, 8), rng, share=0.5) for _ in range(60)]
    found = {level for batch in done for level in zip(batch.kinds, batch.amounts, strict=True)}
    expected = {("whole", 0)} | {("frozen", n) for n in range(MOST_DRIFT + 1)}
    expected |= {("masked", n) for n in range(1, 9)} | {("mixed", n) for n in (2, 4, 8)}
    assert {level for level in found if level[0] != "grainy"} == expected
    grains = [amount for kind, amount in found if kind == "grainy"]
    assert min(grains) < 30
    assert max(grains) > 90
    num_spoilt = sum(kind != "whole" for batch in done for kind in batch.kinds)
    assert stats.binomtest(num_spoilt, 30 * 60, 0.5).pvalue > 1e-3


@given(st.integers(1, 5), st.integers(1, 9), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_any_number_of_clips_and_frames_can_be_spoilt(num_clips: int, num_frames: int, seed: int) -> None:
    clips = numbered_clips(num_clips, num_frames)
    before = clips.copy()
    first, again = (spoil(clips, np.random.default_rng(seed), share=1.0) for _ in range(2))
    assert (clips == before).all()
    assert (first.pixels == again.pixels).all()
    assert first.kinds == again.kinds
    if num_clips == 1:
        assert "mixed" not in first.kinds
    if num_frames == 1:
        assert set(first.kinds) <= {"masked", "grainy"}
