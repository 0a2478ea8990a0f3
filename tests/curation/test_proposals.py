"""Buckets follow from what is known of a video, and robust deviations from the collection."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from provico.config.data import CurationRules
from provico.curation.junk import JUNK, Junk
from provico.curation.proposals import Clear, Doubt, clear_segments, propose, robust_deviations
from provico.data.scan import ScannedVideo
from provico.errors import ConfigError

RULES = CurationRules(max_deviations=3)
USUAL = Doubt(uncertainty=0.5, disagreement=-0.5)


def video(**known: object) -> ScannedVideo:
    return ScannedVideo(path="/a.mp4", id="a.mp4", duration_seconds=30.0, **known)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("known", "bucket", "reason"),
    [
        ({}, "keep", "nothing stands out"),
        ({"status": "unreadable", "reason": "no video in it"}, "drop", "no video in it"),
        ({"flags": "black frozen"}, "drop", "no picture"),
        ({"flags": "short"}, "review", "fewer frames"),
        ({"flags": "damaged"}, "review", "could not be decoded"),
    ],
)
def test_what_a_scan_says(known: dict[str, str], bucket: str, reason: str) -> None:
    proposal = propose(video(**known), USUAL, None, RULES)
    assert proposal.bucket == bucket
    assert reason in proposal.reason


@pytest.mark.parametrize(
    ("junk", "flags", "bucket", "kind"),
    [
        ("noise", "", "drop", "noise"),
        ("card", "", "review", "card"),
        ("card", "black frozen", "drop", "black"),  # the worst is said
        ("screen", "frozen", "review", "screen"),  # so little moves that the scan took it for frozen
    ],
)
def test_what_its_pictures_look_like(junk: Junk, flags: str, bucket: str, kind: str) -> None:
    proposal = propose(video(flags=flags), USUAL, None, RULES, junk=junk, copy_of="a copy")
    copied = bucket == "review"
    assert (proposal.bucket, proposal.kind) == (("drop", "duplicate") if copied else (bucket, kind))
    proposal = propose(video(flags=flags), USUAL, None, RULES, junk=junk)
    assert (proposal.bucket, proposal.kind, proposal.reason) == (bucket, kind, JUNK[junk if copied else kind])


@pytest.mark.parametrize(
    ("doubt", "cause"),
    [
        (Doubt(3.5, 0, 0.97, 0.5), "hard to make out: less certain than 97 % of the others"),
        (Doubt(0, 3.5, 0.5, 1), "shows different things: its parts differ more than in all others"),
        (None, "could not be embedded"),
    ],
)
def test_doubt_asks_for_a_look_and_names_its_cause_in_words(doubt: Doubt | None, cause: str) -> None:
    proposal = propose(video(), doubt, None, RULES)
    assert (proposal.bucket, proposal.reason) == ("review", cause)
    assert ("3.5 deviations" in proposal.detail) == (doubt is not None)


def test_long_videos_are_trimmed_if_enough_of_them_is_clear() -> None:
    clear = Clear(segments=((5.0, 15.0),), why="black", detail="20 of 30 clips black")
    proposal = propose(video(), Doubt(uncertainty=9, disagreement=9), clear, RULES)
    assert (proposal.bucket, proposal.segments) == ("trim", ((5.0, 15.0),))
    assert proposal.reason == "0:10 of 0:30 is worth keeping; the rest is black"
    assert proposal.detail == "20 of 30 clips black"
    for segments in (((5.0, 6.0),), ()):
        assert propose(video(), USUAL, Clear(segments=segments, why="black"), RULES).bucket == "review"
    whole = Clear(segments=((0.0, 30.0),), why="")
    assert propose(video(), USUAL, whole, RULES).bucket == "keep"


@given(arrays(np.float64, 40, elements=st.floats(-5, 5)), st.floats(0.1, 10), st.floats(-10, 10))
def test_deviations_do_not_depend_on_the_unit(values: np.ndarray, scale: float, shift: float) -> None:
    low, high = np.quantile(values, [0.25, 0.75])
    if high - low > 1e-3:
        expected = robust_deviations(values)
        np.testing.assert_allclose(robust_deviations(scale * values + shift), expected, atol=1e-6)


def test_deviations_are_those_of_a_normal_and_outliers_do_not_hide_themselves() -> None:
    values = np.random.default_rng(0).normal(size=100_000)
    np.testing.assert_allclose(robust_deviations(values), values, atol=0.15)
    spoilt = np.concatenate([values[:1000], np.full(200, 1e6)])
    assert robust_deviations(spoilt)[-1] > 1e5
    assert not robust_deviations([1.0, 1.0, 1.0, 1.0, 7.0]).any()  # no scale


def test_segments_meet_halfway_between_clips_and_single_clips_do_not_cut() -> None:
    starts, ends = np.arange(10.0), np.arange(10.0) + 1
    clear = np.array([0, 0, 1, 1, 0, 1, 1, 1, 0, 0], bool)
    assert clear_segments(starts, ends, clear, duration_seconds=10, min_seconds=1) == ((2.0, 8.0),)
    assert clear_segments(starts, ends, clear, duration_seconds=10, min_seconds=7) == ()
    assert clear_segments(starts, ends, np.ones(10), duration_seconds=10, min_seconds=1) == ((0.0, 10.0),)
    assert clear_segments([0.0], [2.0], [True], duration_seconds=2, min_seconds=1) == ((0.0, 2.0),)


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.floats(0, 5))
def test_segments_are_ordered_apart_and_within_the_video(clear: list[bool], least: float) -> None:
    starts = np.arange(len(clear)) * 0.7
    found = clear_segments(starts, starts + 1, clear, duration_seconds=starts[-1] + 1, min_seconds=least)
    times = [time for segment in found for time in segment]
    assert times == sorted(set(times))
    assert all(end - start >= least - 1e-3 for start, end in found)
    assert not times or (times[0] >= 0 and times[-1] <= round(starts[-1] + 1, 3))


@pytest.mark.parametrize("wrong", [{"max_deviations": 0}, {"step_seconds": -1}, {"min_kept_share": 2}])
def test_rules_must_make_sense(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="must be"):
        CurationRules(**wrong)  # type: ignore[arg-type]
