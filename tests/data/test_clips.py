from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from provico.data.clips import Clip, ClipSpec, random_clips, strided_clips, timed_clips, uniform_clips
from provico.data.frames.frame_index import FrameIndex, VideoFacts
from provico.errors import ConfigError

specs = st.builds(ClipSpec, st.integers(1, 20), st.integers(1, 5))
lengths = st.integers(1, 300)
counts = st.integers(1, 12)
seeds = st.integers(0, 2**32)


def assert_lawful(clips: np.ndarray, length: int, num_clips: int, spec: ClipSpec) -> None:
    """In range, evenly spaced, and looped only where the video is too short."""
    assert clips.dtype == np.int64
    assert clips.shape == (num_clips, spec.num_frames)
    assert clips.min() >= 0
    assert clips.max() < length
    assert np.all(np.diff(clips, axis=1) % length == spec.frame_step % length)
    if spec.span <= length:
        assert np.all(np.diff(clips, axis=1) == spec.frame_step)
    else:
        assert np.all(clips[:, 0] == 0)


@given(lengths, counts, specs, seeds)
@settings(deadline=None)
def test_random_clips(length: int, num_clips: int, spec: ClipSpec, seed: int) -> None:
    def draw() -> np.ndarray:
        return random_clips(length, num_clips=num_clips, spec=spec, rng=np.random.default_rng(seed))

    clips = draw()
    assert_lawful(clips, length, num_clips, spec)
    np.testing.assert_array_equal(clips, draw())


@given(lengths, counts, specs)
@settings(deadline=None)
def test_uniform_clips(length: int, num_clips: int, spec: ClipSpec) -> None:
    clips = uniform_clips(length, num_clips=num_clips, spec=spec)
    assert_lawful(clips, length, num_clips, spec)
    if num_clips > 1:
        last = max(length - spec.span, 0)
        exact = [math.floor(Fraction(last * number, num_clips - 1)) for number in range(num_clips)]
        assert clips[:, 0].tolist() == exact
        if spec.span <= length:
            assert clips[0, 0] == 0
            assert clips[-1, -1] == length - 1


def test_uniform_clips_are_those_of_vcop() -> None:
    for length in range(16, 200):
        vcop = [int(centre - 8) for centre in np.linspace(8, length - 8, 10)]
        ours = uniform_clips(length, num_clips=10, spec=ClipSpec())[:, 0]
        # VCOP's float arithmetic falls one short of a whole number now and then.
        exact = np.linspace(0, length - 16, 10)
        whole = np.isclose(exact, exact.round())
        np.testing.assert_array_equal(ours[~whole], np.array(vcop)[~whole])
        np.testing.assert_array_equal(ours[whole], exact.round()[whole])


def test_one_uniform_clip_is_in_the_middle() -> None:
    assert uniform_clips(100, num_clips=1, spec=ClipSpec(10))[0].tolist() == list(range(45, 55))


@given(lengths, specs, st.integers(1, 40))
@settings(deadline=None)
def test_all_clips_leave_no_frame_out(length: int, spec: ClipSpec, stride: int) -> None:
    clips = strided_clips(length, spec=spec, stride=stride)
    assert_lawful(clips, length, len(clips), spec)
    starts = clips[:, 0]
    assert starts[0] == 0
    assert starts[-1] == max(length - spec.span, 0)
    assert np.all(np.diff(starts)[:-1] == stride)
    assert np.all((np.diff(starts) > 0) & (np.diff(starts) <= stride))
    if spec.frame_step == 1 and stride <= spec.span:
        assert set(clips.ravel().tolist()) == set(range(length))


def test_a_short_video_is_looped() -> None:
    clips = uniform_clips(5, num_clips=2, spec=ClipSpec(8, 2))
    assert clips.tolist() == [[0, 2, 4, 1, 3, 0, 2, 4]] * 2


def test_every_random_start_is_equally_likely() -> None:
    rng = np.random.default_rng(0)
    starts = random_clips(30, num_clips=20_000, spec=ClipSpec(16), rng=rng)[:, 0]
    assert stats.chisquare(np.bincount(starts, minlength=15)).pvalue > 0.001


def test_random_clips_of_a_video_are_independent() -> None:
    rng = np.random.default_rng(0)
    pairs = np.array([random_clips(20, num_clips=2, spec=ClipSpec(16), rng=rng)[:, 0] for _ in range(10_000)])
    table = np.histogram2d(*pairs.T, bins=5)[0]
    assert stats.chi2_contingency(table).pvalue > 0.001


def test_times_follow_the_frames_where_their_rate_varies() -> None:
    facts = VideoFacts(
        codec="h264",
        container="mp4",
        width=16,
        height=16,
        quarter_turns=0,
        mirrored=False,
        frames_per_second=2.0,
        seconds_per_tick=0.1,
        num_errors=0,
        brightness=128.0,
        motion=0.0,
    )
    index = FrameIndex(
        facts=facts,
        timestamps=np.array([0, 1, 2, 10, 30]),
        signatures=np.zeros(5, np.uint32),
        keyframes=np.array([0]),
    )
    frames = np.array([[1, 2, 1, 2], [2, 4, 2, 4], [0, 2, 4, 1]])
    clip, last, looped = timed_clips("a.mp4", frames, index)
    assert clip == Clip("a.mp4", (1, 2, 1, 2), start_seconds=0.1, end_seconds=1.0)
    assert (last.start_seconds, last.end_seconds) == pytest.approx((0.2, 3.5))
    assert (looped.start_seconds, looped.end_seconds) == (0.0, 3.5)


@given(specs)
@settings(deadline=None)
def test_span(spec: ClipSpec) -> None:
    clip = uniform_clips(1000, num_clips=1, spec=spec)[0]
    assert clip[-1] - clip[0] + 1 == spec.span


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="--num-frames is 0"):
        ClipSpec(0)
    with pytest.raises(ConfigError, match="--frame-step is -1"):
        ClipSpec(16, -1)
    with pytest.raises(ConfigError, match="number of clips is 0"):
        uniform_clips(20, num_clips=0, spec=ClipSpec())
    with pytest.raises(ConfigError, match="stride between clips is 0"):
        strided_clips(20, spec=ClipSpec(), stride=0)
    with pytest.raises(ValueError, match="without frames"):
        uniform_clips(0, num_clips=1, spec=ClipSpec())
