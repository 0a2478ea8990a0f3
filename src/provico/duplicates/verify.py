"""Is it the same recording? Two videos are laid over each other in space and in time, and compared.

    scene     by which crop, mirrored or not, do pictures of one look like pictures of the other?
    line      which moment of one is which moment of the other?
    fit       edges of the crops and ends of the line, moved until the two agree best
    motion    the correlation of what *changes*, along the line

The last is what decides. Two takes of one scene have the same background, the same people and the same
light, and an encoder says the same of them; but things do not move in the same way at the same time. Where
they nearly do, since an action is repeated, the video also looks like itself at another time, and how much is
measured: a copy has to be better than that. Where nothing moves there is no such proof, and so only little
certainty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from provico.duplicates.alignment import SPEEDS, Line, best_line
from provico.duplicates.fingerprint import (
    CROPS,
    HALF_STEP,
    SIDE,
    WHOLE,
    Array,
    Box,
    Fingerprint,
    in_cells,
    small,
)

SAME_SCENE = 0.6
"""Pictures that correlate less, however they are cropped, are not of one scene."""
MIN_SECONDS = 1.0
"""Less footage in common is not looked for."""
HOPELESS = 0.6
"""Motion that correlates less after a first fit does not become that of a copy by a second one."""
STATIC_CHANGE = 1.0
"""Grey levels: where less changes, only pictures can be compared."""
_FINE = 24  # pixels of the pictures in which motion is compared
_MOMENTS = 64  # along the line, at which motion is compared
_MIN_CROP = SIDE // 2  # small pixels: of next to nothing, anything is a copy
_FITTED = 12  # pictures by which crops are fitted
_APPEARANCE, _MOTION = 0.6, 0.2  # what chance gives two videos of one scene, about
_SPEED_STEP = 1.06  # what lies between the speeds that were tried
_REPEAT_SECONDS = 1.0  # a video is compared with itself this much later at least


@dataclass(frozen=True)
class Agreement:
    """How well two videos agree where they agree best."""

    line: Line
    is_mirrored: bool
    appearance: float
    """Correlation of pictures."""
    motion: float
    """Correlation of what changes."""
    change: float
    """How much changes, in grey levels."""

    @property
    def swapped(self) -> Agreement:
        """The evidence with both videos exchanged."""
        line = self.line
        other = Line(line.score, line.other_start, line.other_end, line.start, line.end)
        return replace(self, line=other)

    @property
    def is_static(self) -> bool:
        """Whether hardly anything changes, so that the motion says nothing."""
        return self.change < STATIC_CHANGE


@dataclass(frozen=True)
class _Overlay:
    """Two videos, the second perhaps mirrored, and the part of the picture that they share."""

    ours: Fingerprint
    theirs: Fingerprint
    our_box: Box
    their_box: Box

    @cached_property
    def resized(self) -> tuple[_Resized, _Resized]:
        """The pictures of both inside their boxes."""
        return _Resized(self.ours, self.our_box), _Resized(self.theirs, self.their_box)


def compare(ours: Fingerprint, theirs: Fingerprint) -> Agreement | None:
    """The best agreement of two videos; None if they do not show the same scene for long enough."""
    scene = _best_scene(ours, theirs)
    if scene is None:
        return None
    overlay, is_mirrored = scene
    lines = _coarse_lines(overlay)
    if not lines:
        return None
    # Once more with a crop that fits: motion shows in the cells only where it lies over itself.
    overlay = _fit_boxes(overlay, lines[0])
    fits = [_fitted(overlay, line, is_mirrored) for line in _coarse_lines(overlay) or lines]
    return max(fits, key=lambda found: found.motion)


def repetition(video: Fingerprint) -> float:
    """How much the motion in a video is like that in itself at another time: 0 if it never repeats."""
    overlay = _Overlay(video, video, WHOLE, WHOLE)
    lines = _coarse_lines(overlay, apart_seconds=_REPEAT_SECONDS)
    found = [_evidence(overlay, _fit_line(overlay, line), is_mirrored=False) for line in lines]
    return max([0.0, *(one.motion for one in found if not one.is_static)])


def _best_scene(ours: Fingerprint, theirs: Fingerprint) -> tuple[_Overlay, bool] | None:
    """Keys of one in every crop against whole pictures of the other, both ways, mirrored and not."""
    best, found = SAME_SCENE, None
    for is_mirrored, other in ((False, theirs), (True, theirs.mirrored)):
        for mine, whole in ((ours, other), (other, ours)):
            likeness = mine.scenes @ whole.looks.T
            # Half of the keys have to find their like: the others may be of footage that was added.
            score = np.sort(likeness.max(axis=2), axis=1)[:, likeness.shape[1] // 2 :].mean(axis=1)
            place = int(score.argmax())
            if score[place] > best:
                boxes = (CROPS[place], WHOLE) if mine is ours else (WHOLE, CROPS[place])
                best, found = float(score[place]), (_Overlay(ours, other, *boxes), is_mirrored)
    return found


def _coarse_lines(overlay: _Overlay, *, apart_seconds: float = 0.0) -> list[Line]:
    """The best line of all, and the best at equal speed.

    Most copies have the speed of their original; but where things move slowly, a line at nearly that speed
    may have the larger sum by chance, and be too far away for the fit to come back.
    """
    sides = [
        video.in_cells if box == WHOLE else in_cells(video, box)
        for video, box in ((overlay.ours, overlay.our_box), (overlay.theirs, overlay.their_box))
    ]
    (step, looks, changes), (other_step, other_looks, other_changes) = sides
    likeness = looks @ other_looks.T + changes @ other_changes.T
    cells = (likeness - np.float32(_APPEARANCE + _MOTION)) / np.float32(2)
    if apart_seconds:
        apart = int(apart_seconds / step)
        positions = np.arange(len(cells))
        cells[positions[:, None] - positions > -apart] = -1.0
    lines = [
        best_line(
            cells,
            step=step,
            other_step=other_step,
            min_cells=math.ceil(MIN_SECONDS / step),
            speeds=speeds,
        )
        for speeds in (SPEEDS, (1.0,))
    ]
    return list(dict.fromkeys(line for line in lines if line is not None))


def _fitted(overlay: _Overlay, line: Line, is_mirrored: bool) -> Agreement:
    """How well two videos agree after crops and line are moved to where they agree best."""
    for _ in range(2):
        overlay = _fit_boxes(overlay, line)
        line = _fit_line(overlay, line)
        found = _evidence(overlay, line, is_mirrored)
        if found.motion < HOPELESS:
            break
    return found


def _fit_boxes(overlay: _Overlay, line: Line) -> _Overlay:
    """Move the edges of both crops by pixels while the pictures agree better for it."""
    times = np.linspace(line.start, line.end, _FITTED)
    mine = overlay.ours.pictures[overlay.ours.frames_at(times)]
    other = overlay.theirs.pictures[overlay.theirs.frames_at(line.other(times))]

    ours, theirs = _Centred(mine), _Centred(other)

    def likeness(edges: tuple[int, ...]) -> float:
        (one, size), (another, other_size) = ours(_box(edges[:4])), theirs(_box(edges[4:]))
        return float(one @ another) / (math.sqrt(size * other_size) + 1e-6)

    edges: tuple[int, ...] = (*overlay.our_box, *overlay.their_box)
    best = likeness(edges)
    for step in (3, 1):
        for _ in range(3):
            before = best
            for place in range(8):
                for by in (-step, step):
                    tried = (*edges[:place], edges[place] + by, *edges[place + 1 :])
                    if _is_large(tried[:4]) and _is_large(tried[4:]) and (score := likeness(tried)) > best:
                        best, edges = score, tried
            if best - before < 1e-3:
                break
    return replace(overlay, our_box=_box(edges[:4]), their_box=_box(edges[4:]))


def _fit_line(overlay: _Overlay, line: Line) -> Line:
    """Move the ends of the line while the motion agrees better for it."""
    motion = _motion_along(overlay)
    best, low, high = float(motion([line])[0][0]), line.speed / _SPEED_STEP, line.speed * _SPEED_STEP
    for step in (0.08, 0.04, 0.02):
        for _ in range(3):
            moves = [line.moved(a, b) for a in (-step, 0, step) for b in (-step, 0, step) if a or b]
            moves = [move for move in moves if low <= move.speed <= high]
            if not moves:
                break
            scores = motion(moves)[0]
            place = int(scores.argmax())
            if scores[place] <= best:
                break
            best, line = float(scores[place]), moves[place]
    return line


class _Centred:
    """Pictures in any box, without their means, as one row of numbers, and its length squared."""

    def __init__(self, pictures: NDArray[np.uint8]) -> None:
        self._pictures = pictures.astype(np.float32)
        self._known: dict[Box, tuple[Array, float]] = {}

    def __call__(self, box: Box) -> tuple[Array, float]:
        if box not in self._known:  # of two boxes, one stays while the other is moved
            row = _centred(small(self._pictures, box)).ravel()
            self._known[box] = row, float(row @ row)
        return self._known[box]


def _motion_along(overlay: _Overlay) -> Callable[[Sequence[Line]], tuple[Array, Array]]:
    """A function of some lines: the correlations of what changes along them, and how much changes."""
    mine, other = overlay.resized

    def measure(lines: Sequence[Line]) -> tuple[Array, Array]:
        ends = np.array([(line.start, line.end, line.other_start, line.other_end) for line in lines])
        start, end, other_start, other_end = ends.T[:, :, None]
        margin = np.minimum(HALF_STEP, (end - start) / 5)
        inset = 1.5 * margin  # the ends of a line are not exact
        times = start + inset + (end - start - 2 * inset) * np.linspace(0, 1, _MOMENTS)
        speed = (other_end - other_start) / np.maximum(end - start, 1e-9)
        shifted = [times + margin, times - margin]
        ours = np.subtract(*(mine(some) for some in shifted))
        theirs = np.subtract(*(other(other_start + speed * (some - start)) for some in shifted))
        sizes, other_sizes = (np.sqrt(np.einsum("lmp,lmp->lm", side, side)) for side in (ours, theirs))
        likeness = np.einsum("lmp,lmp->lm", ours, theirs) / (sizes * other_sizes + 1e-6)
        # Moments count by what changes, but by the lesser of the two: at a cut that only one of the videos
        # has, all changes.
        weights = np.minimum(sizes, other_sizes)
        change = np.sqrt(np.square(weights).mean(axis=1)) / _FINE
        return (likeness * weights).sum(axis=1) / (weights.sum(axis=1) + 1e-6), change

    return measure


class _Resized:
    """The pictures of a video inside a box, made smaller when they are first asked for."""

    def __init__(self, video: Fingerprint, box: Box) -> None:
        self._video, self._box = video, box
        self._is_made = np.zeros(len(video.pictures), np.bool_)
        self._rows: Array = np.empty((len(video.pictures), _FINE * _FINE), np.float32)

    def __call__(self, seconds: NDArray[np.float64]) -> Array:
        frame_numbers = self._video.frames_at(seconds)
        if not self._is_made[frame_numbers].all():
            wanted = np.zeros_like(self._is_made)
            wanted[frame_numbers] = True
            # With their neighbours, which the next moves ask for.
            wanted[1:] |= wanted[:-1]
            wanted[:-1] |= wanted[1:]
            missing = np.flatnonzero(wanted & ~self._is_made)
            self._rows[missing] = small(self._video.pictures[missing], self._box, side=_FINE)
            self._is_made[missing] = True
        found: Array = self._rows[frame_numbers]
        return found


def _evidence(overlay: _Overlay, line: Line, is_mirrored: bool) -> Agreement:
    times = np.linspace(line.start, line.end, _MOMENTS)
    mine, other = overlay.resized
    motion, change = (float(value[0]) for value in _motion_along(overlay)([line]))
    appearance = _correlation(_centred(mine(times)), _centred(other(line.other(times))))
    return Agreement(line, is_mirrored, appearance, motion, change)


def _is_large(edges: tuple[int, ...]) -> bool:
    """Whether a crop is inside the picture, and still shows most of it."""
    top, left, bottom, right = edges
    return min(top, left) >= 0 and max(bottom, right) <= SIDE and min(bottom - top, right - left) >= _MIN_CROP


def _box(edges: tuple[int, ...]) -> Box:
    top, left, bottom, right = edges
    return top, left, bottom, right


def _centred(rows: Array) -> Array:
    return np.asarray(rows - rows.mean(axis=1, keepdims=True), np.float32)


def _correlation(ours: Array, theirs: Array) -> float:
    """Of all numbers at once."""
    scale = math.sqrt(float(np.square(ours).sum()) * float(np.square(theirs).sum()))
    return float((ours * theirs).sum()) / (scale + 1e-6)
