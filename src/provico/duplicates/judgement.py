"""How sure is it that two videos show the same recording, and how do they lie to each other?

The probability is a logistic curve of the motion's correlation r, on Fisher's scale artanh(r), on which its
spread is about the same everywhere. Its middle, where the odds are even, depends on the videos:

- It lies above how much a video is like itself at another time, and like others that show the same action
  again. Push-ups are all alike, so a copy of them must agree better than a copy of what happens only once:
  the videos set the threshold. That others show the same again is seen from their speeds: copies come at the
  same speed, or at one or two others, but each repetition has a speed of its own.
- It lies higher if one of the two has to be sped up or slowed down to agree. Nearly any two repetitions of an
  action can be made to agree by that, while most copies have the speed of their original.

docs/dedup.md says on which data the constants were chosen, and what they give on others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import numpy as np

from provico.duplicates.alignment import Line
from provico.duplicates.fingerprint import Fingerprint
from provico.duplicates.verify import Agreement

Kind = Literal["duplicate", "contained", "contains", "overlap"]
"""The first video is as much as the second, is a part of it, has it as a part, or shares a part with it."""

MIDDLE = 0.94
"""The correlation of motion at which the odds are even, at equal speed."""
MIDDLE_OTHER_SPEED = 0.955
"""The correlation of motion at which the odds are even, if the speeds differ."""
EQUAL_SPEED = 0.015
"""Speeds that differ by less than this share are equal."""
ABOVE_REPETITION = 0.1
"""How much, in artanh, a copy must agree better than repetitions do ..."""
MAX_MIDDLE = 0.98
"""... up to this correlation: a loop, which repeats exactly, can have copies too."""
OTHER_SPEED = 0.03
"""Speeds that differ by more than this share are not the same speed found with some error."""
SPEEDS_OF_COPIES = 2
"""A video that agrees with others at more speeds than so many, besides its own, shows a repeated action."""
STEEPNESS = 8.0
"""Of the curve, for each unit of artanh."""
STATIC_MIDDLE = 0.98
"""Where nothing moves: the correlation of pictures at which the curve is half as high as it gets."""
STATIC_CEILING = 0.45
"""As high as it gets: one camera that sees nothing move at two times gives the same pictures."""
MOST = 0.8
"""Share of a video that must be shared for it to be a copy or a part of the other one."""


def probability(evidence: Agreement, *, repetition: float) -> float:
    """That two videos show the same recording.

    repetition: the largest of what `verify.repetition` and `repetition_among` give for the two.
    """
    if evidence.is_static:
        return STATIC_CEILING * _curve(evidence.appearance, math.atanh(STATIC_MIDDLE))
    is_same_speed = abs(math.log(evidence.line.speed)) < EQUAL_SPEED
    middle = math.atanh(MIDDLE if is_same_speed else MIDDLE_OTHER_SPEED)
    repeated = math.atanh(min(repetition, MAX_MIDDLE)) + ABOVE_REPETITION
    middle = max(middle, min(repeated, math.atanh(MAX_MIDDLE)))
    return _curve(evidence.motion, middle)


def repetition_among(others: Iterable[Agreement]) -> float:
    """How well a video agrees with others at more speeds than copies have; 0 if it does not.

    others: what comparing it with others has given, it being the first of each.
    """
    speeds: list[float] = []
    for found in sorted(others, key=lambda found: -found.motion):
        speed = math.log(found.line.speed)
        if not found.is_static and all(abs(speed - known) > OTHER_SPEED for known in (0.0, *speeds)):
            speeds.append(speed)
            if len(speeds) > SPEEDS_OF_COPIES:
                return max(found.motion, 0.0)
    return 0.0


def _curve(correlation: float, middle: float) -> float:
    logit = STEEPNESS * (math.atanh(min(max(correlation, -0.999), 0.999)) - middle)
    return 1 / (1 + math.exp(-logit))


def kind_of(ours: Fingerprint, theirs: Fingerprint, line: Line) -> Kind:
    """How two videos lie to each other; what shows nothing, such as a black intro, does not count."""
    is_ours = _share(ours, line.start, line.end) >= MOST
    is_theirs = _share(theirs, line.other_start, line.other_end) >= MOST
    if is_ours and is_theirs:
        return "duplicate"
    if is_ours:
        return "contained"
    return "contains" if is_theirs else "overlap"


def _share(video: Fingerprint, start: float, end: float) -> float:
    shown = video.seconds[~video.is_blank]
    return float(np.mean((shown >= start - 1e-6) & (shown <= end))) if len(shown) else 0.0
