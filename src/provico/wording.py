"""Numbers in words, the same in the terminal and on the page.

The value of an uncertainty has no unit that means anything to a reader. So it is shown as the share of the
collection that is lower, from 0 to 1; files and JSON have the value itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def share_below(values: ArrayLike, *, of: ArrayLike) -> NDArray[np.float64]:
    """For each value, the share of a collection that is lower; for a member, of the others."""
    ordered, values = np.sort(np.asarray(of, np.float64)), np.asarray(values, np.float64)
    below = np.searchsorted(ordered, values, side="left")
    is_in = np.searchsorted(ordered, values, side="right") > below
    return np.asarray(below / np.maximum(1, len(ordered) - is_in), np.float64)


def counted(number: int, word: str, plural: str | None = None) -> str:
    """A number with its word; the plural is formed with s unless given."""
    return f"{number:,} {word if number == 1 else plural or f'{word}s'}"


def percent(share: float) -> str:
    """A share in per cent."""
    return f"{100 * share:.0f} %"


def more_than(share: float) -> str:
    """A share of other videos, in words."""
    return "all others" if share >= 0.995 else f"{percent(share)} of the others"


def hard_to_make_out(share: float) -> str:
    """Describe a video of which the encoder is less certain than of this share of the others."""
    return f"hard to make out: less certain than {more_than(share)}"


def shows_several_things(share: float) -> str:
    """Describe a video whose clips differ more than those of this share of the others."""
    return f"shows different things: its parts differ more than in {more_than(share)}"


def clock(seconds: float) -> str:
    """Minutes and seconds, 1:05; with hours, 2:00:09."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def sure(probability: float) -> str:
    """A probability in words, never rounded to certainty."""
    if 0.995 < probability < 1:
        return ">99 % sure"
    return f"{percent(probability)} sure"
