"""Bars of one colour at the borders of a video."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_BAR_RANGE = 10.0  # grey levels: what varies less over a row and over time is a bar
_MIN_LEFT = 0.3  # of the picture: more is never cut off
_LOOKED_AT = 64  # frames, to find bars


def inside_bars(grey: NDArray[np.uint8] | NDArray[np.float32]) -> tuple[slice, slice]:
    """The rows and the columns of grey pictures that lie between bars of one colour."""
    looked_at = grey[:: max(1, len(grey) // _LOOKED_AT)].astype(np.uint8)
    return _inside(looked_at.transpose(1, 0, 2)), _inside(looked_at.transpose(2, 0, 1))


def _inside(rows: NDArray[np.uint8]) -> slice:
    """From where to where rows are not of one colour, over their length and over time."""
    # Bytes are sorted in no time this way, which percentiles are not.
    values = np.sort(rows.reshape(len(rows), -1), axis=1, kind="stable")
    low, high = (values[:, round(share * (values.shape[1] - 1))].astype(np.int64) for share in (0.02, 0.98))
    varied = np.flatnonzero(high - low > _BAR_RANGE)
    if not len(varied) or varied[-1] + 1 - varied[0] < _MIN_LEFT * len(rows):
        return slice(None)
    return slice(int(varied[0]), int(varied[-1]) + 1)
