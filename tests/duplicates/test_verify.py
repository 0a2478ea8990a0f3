"""Copies agree in how things move, whatever was done to them; other takes of the same scene do not."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from provico.data.transforms import resize
from provico.duplicates import verify
from provico.duplicates.alignment import Line
from provico.duplicates.fingerprint import SIDE, WHOLE, Fingerprint
from provico.duplicates.judgement import STATIC_CEILING, kind_of, probability, repetition_among
from provico.duplicates.scenes import Overlay
from provico.duplicates.verify import Agreement, compare, repetition

FPS = 20


def slowed(frames):
    numbers = np.arange(int(len(frames) / 0.8)) * 0.8
    return frames[np.minimum(numbers.round().astype(int), len(frames) - 1)]


EDITS = {
    "same": lambda f: f,
    "small": lambda f: resize(f, 36, 48),
    "bars": lambda f: np.pad(f, ((0, 0), (12, 12), (0, 0), (0, 0))),
    "middle": lambda f: f[:, 8:64, 10:86],
    "corner": lambda f: f[:, :58, :76],
    "mirrored": lambda f: f[:, :, ::-1],
    "brighter": lambda f: np.clip(f * 1.2 + 15, 0, 255).astype(np.uint8),
    "slower": slowed,
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_copy_is_recognised(name, make_film, fingerprint):
    frames = make_film(1, 1)
    original, copy = fingerprint(frames), fingerprint(EDITS[name](frames), quality=30)
    found = compare(copy, original)
    assert found is not None
    assert found.is_mirrored == (name == "mirrored")
    assert found.line.speed == pytest.approx(0.8 if name == "slower" else 1.0, rel=0.03)
    repeated = max(repetition(original), repetition(copy))
    assert probability(found, repetition=repeated) > 0.8
    assert kind_of(copy, original, found.line) == "duplicate"


def test_another_take_of_the_same_scene_is_not(make_film, fingerprint):
    original = fingerprint(make_film(1, 1))
    for take in (2, 3, 4):
        found = compare(fingerprint(make_film(1, take)), original)
        assert found is None or probability(found, repetition=0.0) < 0.05


def test_another_scene_is_not_even_laid_over(make_film, fingerprint):
    assert compare(fingerprint(make_film(5, 1)), fingerprint(make_film(6, 1))) is None


def test_a_black_intro_does_not_count(make_film, fingerprint):
    frames = make_film(1, 1)
    copy = fingerprint(np.concatenate([np.zeros_like(frames[:40]), frames]))
    original = fingerprint(frames)
    found = compare(copy, original)
    assert found is not None
    assert found.line.start - found.line.other_start == pytest.approx(2.0, abs=0.15)
    assert kind_of(copy, original, found.line) == "duplicate"


def test_a_movement_that_repeats_is_known_to_repeat(make_film, fingerprint):
    once = make_film(1, 1, seconds=2)
    there_and_back = np.concatenate([once, once[::-1]])
    assert repetition(fingerprint(np.concatenate([there_and_back] * 2))) > 0.9
    assert repetition(fingerprint(make_film(1, 1))) < 0.6


def test_pictures_alone_prove_little(make_film, fingerprint):
    """A camera that sees nothing move gives the same pictures at any time."""
    still = fingerprint(np.repeat(make_film(1, 1)[:1], 60, axis=0))
    found = compare(still, still)
    assert found is not None
    assert found.is_static
    assert probability(found, repetition=0.0) <= STATIC_CEILING


@pytest.mark.parametrize("seed", range(8))
def test_a_crop_never_shrinks_to_nothing(seed):
    """Where pictures have nothing in common, edges move this way and that, but not ever closer together."""
    rng = np.random.default_rng(seed)
    videos = [
        Fingerprint(
            pictures=np.repeat(rng.integers(0, 255, size=(1, SIDE, SIDE), dtype=np.uint8), 20, axis=0),
            seconds=np.arange(20) / 10,
            duration_seconds=2.0,
            num_pixels=1,
            frames_hash=str(number),
        )
        for number in range(2)
    ]
    smallest = (0, 0, SIDE // 2, SIDE // 2)
    overlay = Overlay(*videos, smallest, WHOLE)
    for _ in range(4):
        overlay = verify._fit_boxes(overlay, Line(1.0, 0.0, 2.0, 0.0, 2.0))
        for top, left, bottom, right in (overlay.our_box, overlay.their_box):
            assert min(bottom - top, right - left) >= SIDE // 2
            assert min(top, left) >= 0
            assert max(bottom, right) <= SIDE


def test_the_threshold_is_that_of_the_videos():
    line = Line(1.0, 0.0, 3.0, 0.0, 3.0)
    found = Agreement(line, False, appearance=0.99, motion=0.95, change=10.0)
    once, repeated = probability(found, repetition=0.1), probability(found, repetition=0.96)
    assert once > 0.5 > repeated
    other_speed = dataclasses.replace(found, line=Line(1.0, 0.0, 3.0, 0.0, 2.7))
    assert probability(other_speed, repetition=0.1) < 0.5
    rising = [probability(dataclasses.replace(found, motion=m), repetition=0.0) for m in (-1, 0, 0.5, 0.9, 1)]
    assert rising == sorted(rising)
    assert rising[0] < 1e-6
    assert rising[-1] > 0.99


def at_speed(speed: float, motion: float, *, change: float = 10.0) -> Agreement:
    return Agreement(Line(1.0, 0.0, 3.0, 0.0, 3.0 * speed), False, 0.99, motion, change)


def test_each_repetition_has_its_own_speed_but_copies_do_not():
    copies = [at_speed(1.0, 0.99), at_speed(1.0, 0.98), at_speed(1.25, 0.99), at_speed(1.251, 0.98)]
    assert repetition_among([*copies, at_speed(0.8, 0.97)]) == 0.0
    repetitions = [at_speed(1.07, 0.98), at_speed(0.93, 0.97), at_speed(0.86, 0.96), at_speed(1.12, 0.95)]
    assert repetition_among(repetitions) == 0.96  # two of them could be copies
    assert repetition_among([at_speed(s, 0.9, change=0.1) for s in (0.7, 0.8, 0.9, 1.1)]) == 0.0
    assert repetition_among([]) == 0.0


def test_evidence_can_be_told_from_either_side():
    found = at_speed(1.25, 0.9)
    assert found.swapped.line.speed == pytest.approx(0.8)
    assert found.swapped.swapped == found
