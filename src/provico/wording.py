"""What people are told of numbers: in a terminal and on the page in the same words.

An uncertainty has no unit that means anything to a reader. What is told of it is the share of the collection
that is lower, from 0 to 1; the number itself is in files and in JSON.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def share_below(values: ArrayLike, *, of: ArrayLike) -> NDArray[np.float64]:
    """Of each value, the share of a collection that is lower; of a value of the collection, of the others."""
    ordered, values = np.sort(np.asarray(of, np.float64)), np.asarray(values, np.float64)
    below = np.searchsorted(ordered, values, side="left")
    is_in = np.searchsorted(ordered, values, side="right") > below
    return np.asarray(below / np.maximum(1, len(ordered) - is_in), np.float64)


def percent(share: float) -> str:
    """A share as people read it."""
    return f"{100 * share:.0f} %"


def more_than(share: float) -> str:
    """In how many others something is less, in words."""
    return "all others" if share >= 0.995 else f"{percent(share)} of the others"


def hard_to_make_out(share: float) -> str:
    """A video of which the encoder is less sure than of this share of the others."""
    return f"hard to make out: less certain than {more_than(share)}"


def shows_several_things(share: float) -> str:
    """A video whose clips differ more than in this share of the others."""
    return f"shows different things: its parts differ more than in {more_than(share)}"


def clock(seconds: float) -> str:
    """Minutes and seconds, 1:05; with hours, 2:00:09."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def sure(probability: float) -> str:
    """How probable something is; never rounded to certainty."""
    if 0.995 < probability < 1:
        return ">99 % sure"
    return f"{percent(probability)} sure"
