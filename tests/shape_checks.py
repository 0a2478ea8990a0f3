"""Shapes are checked in the first calls of each function in each test; later ones are seldom of another kind.

The check takes as long as a small function itself, and tests of laws and runs call it thousands of times.
"""

from __future__ import annotations

import sys
from collections import Counter

import jaxtyping

MAX_CALLS = 20


class OnlyFirstCalls:
    """In the place of jaxtyping's switch, which it looks at in each call of a function: true is off."""

    def __init__(self) -> None:
        self.num_calls: Counter[object] = Counter()

    def __bool__(self) -> bool:
        function = sys._getframe(1).f_locals["fn"]  # of jaxtyping, that is about to call it
        self.num_calls[function] += 1
        return self.num_calls[function] > MAX_CALLS


SWITCH = OnlyFirstCalls()


def install() -> None:
    jaxtyping.config.jaxtyping_disable = SWITCH  # type: ignore[assignment]
