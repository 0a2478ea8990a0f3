"""Which parts of a long video are worth keeping.

Each moment belongs to the clip whose middle is nearest. A moment is unclear if its clip is; single clips that
differ from both their neighbours are taken as these are, so that one odd clip does not cut a video in two.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provico.curation.decisions import Segment


def clear_segments(
    start_seconds: ArrayLike,
    end_seconds: ArrayLike,
    is_clear: ArrayLike,
    *,
    duration_seconds: float,
    min_seconds: float,
) -> tuple[Segment, ...]:
    """The parts of a video whose clips, in order of time, are clear, each at least `min_seconds` long."""
    middles = (np.asarray(start_seconds, np.float64) + np.asarray(end_seconds, np.float64)) / 2
    clear = _without_single_clips(np.asarray(is_clear, bool))
    # Moments change hands halfway between the middles of two clips.
    borders = np.concatenate([[0.0], (middles[1:] + middles[:-1]) / 2, [duration_seconds]])
    changes = np.flatnonzero(np.diff(np.concatenate([[False], clear, [False]])))
    segments = [(float(borders[first]), float(borders[last])) for first, last in changes.reshape(-1, 2)]
    return tuple((round(start, 3), round(end, 3)) for start, end in segments if end - start >= min_seconds)


def _without_single_clips(clear: NDArray[np.bool_]) -> NDArray[np.bool_]:
    if len(clear) < 3:
        return clear
    inner = clear[1:-1].copy()
    odd = (clear[:-2] == clear[2:]) & (inner != clear[:-2])
    inner[odd] = clear[:-2][odd]
    return np.concatenate([clear[:1], inner, clear[-1:]])
