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
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from provico.duplicates.alignment import Line, best_lines
from provico.duplicates.fingerprint import (
    HALF_STEP,
    SIDE,
    WHOLE,
    Array,
    Box,
    Fingerprint,
    centred,
    small,
)
from provico.duplicates.scenes import Overlay, overlays

MIN_SECONDS = 1.0
"""Less footage in common is not looked for."""
LEAST_SCORE, LEAST_GAIN = 1.2, 0.07
"""Of a line, in all and of each cell, before crops are fitted ..."""
LEAST_FITTED_GAIN = 0.28
"""... and after that. Of copies in twelve groups of UCF101 the least were 1.7, 0.097 and 0.34."""
LEAST_MOTION = 0.45
"""Motion along a line that correlates less is not fitted: the least of those copies was 0.54 ..."""
HOPELESS = 0.75
"""... and 0.91 after a first fit."""
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


def compare(ours: Fingerprint, theirs: Fingerprint) -> Agreement | None:
    """The best agreement of two videos; None if they do not show the same recording for long enough."""
    (overlay,) = overlays(ours, [theirs])
    return None if overlay is None else agreement(overlay)


def agreement(overlay: Overlay) -> Agreement | None:
    """How well two videos of one scene agree where they agree best; None if that is hopeless.

    What costs more comes later, and only for those that look promising so far.
    """
    lines = _coarse_lines(overlay, least=LEAST_SCORE)
    if not any(_gain(overlay, line) >= LEAST_GAIN for line in lines):
        return None
    # Once more with a crop that fits: motion shows in the cells only where it lies over itself.
    fitted = _Resizing(_fit_boxes(overlay, lines[0]))
    lines = _coarse_lines(fitted.overlay, least=LEAST_SCORE) or lines
    found = [one for line in lines if (one := _fitted(fitted, line)) is not None]
    return max(found, key=lambda one: one.motion, default=None)


def _gain(overlay: Overlay, line: Line) -> float:
    """What a line gains in each cell, at the mean."""
    return line.score * overlay.ours.cell_seconds / max(line.end - line.start, 1e-9)


def repetition(video: Fingerprint) -> float:
    """How much the motion in a video is like that in itself at another time: 0 if it never repeats."""
    both = _Resizing(Overlay(video, video, WHOLE, WHOLE))
    lines = _coarse_lines(both.overlay, apart_seconds=_REPEAT_SECONDS)
    found = [both.evidence(_fit_line(both, line)) for line in lines]
    return max([0.0, *(one.motion for one in found if not one.is_static)])


def _coarse_lines(overlay: Overlay, *, least: float = 0.0, apart_seconds: float = 0.0) -> list[Line]:
    """The best line of all, and the best at equal speed.

    Most copies have the speed of their original; but where things move slowly, a line at nearly that speed
    may have the larger sum by chance, and be too far away for the fit to come back.
    """
    step, other_step = overlay.ours.cell_seconds, overlay.theirs.cell_seconds
    looks, changes = overlay.ours.in_cells(overlay.our_box)
    other_looks, other_changes = overlay.theirs.in_cells(overlay.their_box)
    likeness = looks @ other_looks.T + changes @ other_changes.T
    cells = (likeness - np.float32(_APPEARANCE + _MOTION)) / np.float32(2)
    if apart_seconds:
        apart = int(apart_seconds / step)
        positions = np.arange(len(cells))
        cells[positions[:, None] - positions > -apart] = -1.0
    min_cells = math.ceil(MIN_SECONDS / step)
    return best_lines(cells, step=step, other_step=other_step, min_cells=min_cells, least=least)


def _fitted(both: _Resizing, line: Line) -> Agreement | None:
    """How well two videos agree after crops and line are moved to where they agree best."""
    before = both.evidence(line)
    gain = _gain(both.overlay, line)
    if not before.is_static and (before.motion < LEAST_MOTION or gain < LEAST_FITTED_GAIN):
        return None
    for _ in range(2):
        both = _Resizing(_fit_boxes(both.overlay, line))
        line = _fit_line(both, line)
        found = both.evidence(line)
        if found.motion < HOPELESS:
            return found if found.is_static else None
    return found


def _fit_boxes(overlay: Overlay, line: Line) -> Overlay:
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


def _fit_line(both: _Resizing, line: Line) -> Line:
    """Move the ends of the line while the motion agrees better for it."""
    motion = both.motion
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
            row = centred(small(self._pictures, box)).ravel()
            self._known[box] = row, float(row @ row)
        return self._known[box]


class _Resizing:
    """The pictures of two videos inside the boxes in which they are laid over each other."""

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        self._mine = _Resized(overlay.ours, overlay.our_box)
        self._other = _Resized(overlay.theirs, overlay.their_box)
        self._ours: dict[tuple[float, float], Array] = {}

    def motion(self, lines: Sequence[Line]) -> tuple[Array, Array]:
        """Along lines with one start and end in ours: the correlations of what changes, and its amount."""
        start, end = lines[0].start, lines[0].end
        ours = self._change_in_ours(start, end)
        other_start, speed = np.array([(line.other_start, line.speed) for line in lines]).T[:, :, None]
        before, after = (
            self._other(other_start + speed * (times - start)) for times in self._moments(start, end)
        )
        theirs = after - before
        sizes = np.sqrt(np.einsum("mp,mp->m", ours, ours))
        other_sizes = np.sqrt(np.einsum("lmp,lmp->lm", theirs, theirs))
        likeness = np.einsum("mp,lmp->lm", ours, theirs) / (sizes * other_sizes + 1e-6)
        # Moments count by what changes, but by the lesser of the two: at a cut that only one of the videos
        # has, all changes.
        weights = np.minimum(sizes, other_sizes)
        change = np.sqrt(np.square(weights).mean(axis=1)) / _FINE
        return (likeness * weights).sum(axis=1) / (weights.sum(axis=1) + 1e-6), change

    @staticmethod
    def _moments(start: float, end: float) -> NDArray[np.float64]:
        """Times shortly before and after each moment at which motion is compared."""
        margin = min(HALF_STEP, (end - start) / 5)
        inset = 1.5 * margin  # the ends of a line are not exact
        times = np.linspace(start + inset, end - inset, _MOMENTS)
        return np.stack([times - margin, times + margin])

    def _change_in_ours(self, start: float, end: float) -> Array:
        """What changes in ours; a line that is fitted moves in the other video only."""
        if (start, end) not in self._ours:
            before, after = (self._mine(times) for times in self._moments(start, end))
            self._ours = {(start, end): after - before}
        return self._ours[start, end]

    def evidence(self, line: Line) -> Agreement:
        """How well they agree along a line."""
        times = np.linspace(line.start, line.end, _MOMENTS)
        motion, change = (float(value[0]) for value in self.motion([line]))
        appearance = _correlation(centred(self._mine(times)), centred(self._other(line.other(times))))
        return Agreement(line, self.overlay.is_mirrored, appearance, motion, change)


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


def _is_large(edges: tuple[int, ...]) -> bool:
    """Whether a crop is inside the picture, and still shows most of it."""
    top, left, bottom, right = edges
    return min(top, left) >= 0 and max(bottom, right) <= SIDE and min(bottom - top, right - left) >= _MIN_CROP


def _box(edges: tuple[int, ...]) -> Box:
    top, left, bottom, right = edges
    return top, left, bottom, right


def _correlation(ours: Array, theirs: Array) -> float:
    """Of all numbers at once."""
    scale = math.sqrt(float(np.square(ours).sum()) * float(np.square(theirs).sum()))
    return float((ours * theirs).sum()) / (scale + 1e-6)
