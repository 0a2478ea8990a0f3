"""Do two videos show one scene, by which crop, mirrored or not? One video against many others at once.

Some pictures of one, in every crop, are looked for among whole pictures of the other, both ways. That is a
matrix product for all the others together. Most pairs end here, and most of these by a bound: a picture is
given as waves, and what the shortest can add to a product is at most the product of their lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from provico.duplicates.fingerprint import CROPS, NUM_KEYS, SIDE, WHOLE, Array, Box, Fingerprint, InScenes

SAME_SCENE = 0.75
"""Pictures that correlate less, however they are cropped, are not of one scene."""
BEST_KEYS = 0.25
"""This share of the keys has to find its like: the others may be of footage that was added."""


@dataclass(frozen=True)
class Overlay:
    """Two videos, the second perhaps mirrored, and the part of the picture that they share."""

    ours: Fingerprint
    theirs: Fingerprint
    our_box: Box
    their_box: Box
    is_mirrored: bool = False


def overlays(ours: Fingerprint, others: Sequence[Fingerprint]) -> list[Overlay | None]:
    """How each of the others is laid over a video; None where they do not show one scene."""
    found: list[Overlay | None] = [None] * len(others)
    if others:
        bounds = _scores(ours.bounds, [other.bounds for other in others]).max(axis=1)
        for place in np.flatnonzero(bounds > SAME_SCENE).tolist():
            (scores,) = _scores(ours.in_scenes, [others[place].in_scenes])
            found[place] = _overlay(ours, others[place], scores)
    return found


def _scores(ours: InScenes, others: Sequence[InScenes]) -> Array:
    """ "others mirrored*whose*crops": how alike they are, in the order in which ties are broken."""
    # Looks come first: the best of many rows is found at once, that of many columns is not.
    in_theirs = np.concatenate([other.looks.reshape(-1, ours.size) for other in others]) @ ours.keys.T
    in_ours = ours.looks.reshape(-1, ours.size) @ np.concatenate([other.keys for other in others]).T
    in_ours = in_ours.reshape(2, -1, len(others), len(ours.keys)).max(axis=1)
    likeness = np.empty((len(others), 2, 2, len(ours.keys)), np.float32)
    likeness[:, :, 1] = in_ours.transpose(1, 0, 2)
    start = 0
    for place, other in enumerate(others):
        for way, looks in enumerate(other.looks):
            in_theirs[start : start + len(looks)].max(axis=0, out=likeness[place, way, 0])
            start += len(looks)
    of_crops = np.sort(likeness.reshape(len(others), -1, NUM_KEYS), axis=2)
    scores: Array = of_crops[:, :, -round(BEST_KEYS * NUM_KEYS) :].mean(axis=2)
    return scores


def _overlay(ours: Fingerprint, theirs: Fingerprint, scores: Array) -> Overlay | None:
    best = int(scores.argmax())
    if scores[best] <= SAME_SCENE:
        return None
    is_mirrored, is_theirs, place = np.unravel_index(best, (2, 2, len(CROPS)))
    box = CROPS[place]
    if not is_theirs:
        return Overlay(ours, theirs.mirrored if is_mirrored else theirs, box, WHOLE, bool(is_mirrored))
    if not is_mirrored:
        return Overlay(ours, theirs, WHOLE, box)
    top, left, bottom, right = box
    return Overlay(ours, theirs.mirrored, WHOLE, (top, SIDE - right, bottom, SIDE - left), True)
