"""Detection of useless videos: noise, recorded screens, title cards.

Black and frozen videos are known from their scan (`data.scan`). Here a few pairs of neighbouring frames are
analysed, at their own size up to `SHORT_SIDE`, without bars of one colour at the borders:

    noise      a pixel is uncorrelated with its neighbours, and with itself a frame later
    screen     most pixels have few plain colours and never change; edges are vertical or horizontal
    card       a short, still video, mostly of one colour

The thresholds were chosen on generated examples and on about 160 real videos, none of which they call junk.
They were not tested on others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from provico.data.frames.bars import inside_bars
from provico.data.frames.frame_index import FrameIndex
from provico.data.frames.video import read_frames
from provico.wording import counted

Junk = Literal["unreadable", "black", "frozen", "noise", "card", "screen", "short", "damaged"]
JUNK: dict[Junk, str] = {
    "unreadable": "cannot be read",
    "black": "black: no picture, or almost none",
    "frozen": "frozen: the picture never changes",
    "noise": "noise: no picture, only snow",
    "card": "a title card: a still picture of mostly one colour",
    "screen": "a recorded screen: plain colours, straight edges, most of it never changes",
    "short": "very short: fewer frames than one clip",
    "damaged": "damaged: some of it could not be decoded",
}
"""Each kind, the worst first, with its description."""
assert tuple(JUNK) == get_args(Junk)
_NAMES: dict[Junk, str] = {"card": "title card", "screen": "recorded screen", "short": "very short"}


def counted_kind(kind: Junk, number: int) -> str:
    """The number of videos of a kind, in words."""
    name = _NAMES.get(kind, kind)
    return counted(number, name, None if kind in ("card", "screen") else name)


NUM_PAIRS = 8
SHORT_SIDE = 240
MOST_SPATIAL, MOST_TEMPORAL = 0.6, 0.5
"""Noise: maximum correlation with the pixel two to the right, and with the next frame."""
PLAIN_SHARE, STILL_SHARE, STRAIGHT_SHARE = 0.6, 0.8, 0.75
"""Screen: shares of pixels without gradient, of pixels that never change, of gradients along an axis."""
LEAST_EDGES = 0.01
"""Screen: minimum share of pixels with a steep gradient, since a screen shows something."""
CARD_SECONDS, CARD_SHARE = 20.0, 0.6
"""Card: maximum duration, and minimum share of one colour."""
_PLAIN, _STEEP, _STILL = 1.5, 24.0, 6.0  # grey levels


@dataclass(frozen=True, kw_only=True)
class Looks:
    """Measurements of a few frames."""

    spatial: float
    """Correlation of a pixel with the one two to its right."""
    temporal: float
    """Correlation of a frame with the next; the median over the pairs."""
    plain: float
    """The share of pixels without gradient."""
    still: float
    """The share of pixels that never change more than slightly, over all frames."""
    straight: float
    """The share of steep gradients along an axis."""
    edges: float
    """The share of pixels with a steep gradient."""
    one_colour: float
    """The share of pixels of the most frequent colour."""
    calm: float
    """The share of pairs with nearly equal frames."""


def look(path: Path, index: FrameIndex) -> Looks:
    """Analyse a few pairs of neighbouring frames of a file."""
    last = max(0, index.num_frames - 2)
    firsts = np.unique(np.linspace(0.1 * last, 0.9 * last, NUM_PAIRS).round().astype(np.int64))
    numbers = np.unique(np.concatenate([firsts, np.minimum(firsts + 1, index.num_frames - 1)]))
    facts = index.facts
    rgb = read_frames(path, numbers, index=index, short_side=min(SHORT_SIDE, facts.height, facts.width))
    grey = rgb.astype(np.float32).mean(axis=3)
    rows, columns = inside_bars(grey)
    grey = grey[:, rows, columns]
    place = {number: row for row, number in enumerate(numbers.tolist())}
    pairs = [(grey[place[a]], grey[place[min(a + 1, index.num_frames - 1)]]) for a in firsts.tolist()]
    return measure(grey, pairs)


def measure(grey: NDArray[np.float32], pairs: list[tuple[NDArray[np.float32], NDArray[np.float32]]]) -> Looks:
    """Measure frames "frames height width" and pairs of neighbours among them."""
    level = np.abs(np.diff(grey, axis=2))[:, :-1, :]
    upright = np.abs(np.diff(grey, axis=1))[:, :, :-1]
    slope = np.maximum(level, upright)
    steep = slope > _STEEP
    straight = np.minimum(level, upright)[steep] < 0.25 * slope[steep]
    counts = np.bincount((grey / 4).astype(np.int64).ravel(), minlength=64)
    return Looks(
        spatial=_correlation(grey[:, :, :-2], grey[:, :, 2:]),
        temporal=float(np.median([_correlation(a, b) for a, b in pairs])),
        plain=float((slope < _PLAIN).mean()),
        still=float((np.ptp(grey, axis=0) < _STILL).mean()),
        straight=float(straight.mean()) if straight.size else 0.0,
        edges=float(steep.mean()),
        one_colour=float((counts[:-1] + counts[1:]).max() / counts.sum()),
        calm=float(np.mean([np.abs(a - b).mean() < 0.5 for a, b in pairs])),
    )


def junk_of(looks: Looks, *, duration_seconds: float) -> Junk | None:
    """The kind of junk that a video looks like, or None."""
    if looks.spatial < MOST_SPATIAL and looks.temporal < MOST_TEMPORAL:
        return "noise"
    if duration_seconds <= CARD_SECONDS and looks.one_colour > CARD_SHARE and looks.calm >= 0.75:
        return "card"
    is_plain = looks.plain > PLAIN_SHARE and looks.straight > STRAIGHT_SHARE and looks.edges > LEAST_EDGES
    return "screen" if is_plain and looks.still > STILL_SHARE else None


def _correlation(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt(np.square(a).mean() * np.square(b).mean()))
    return float((a * b).mean() / scale) if scale > 1e-3 else 1.0
