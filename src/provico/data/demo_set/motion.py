"""The actions of the demo set: the motion of its videos, independent of appearance.

Every action is a function from screen coordinates and time to the coordinates from which the picture
is read, so any look can perform any action. All share their ranges of period, reach and direction, and all
of them stir most of the picture: they differ only in the flow.

Coordinates are pixels from the centre, x to the right and y down.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Grid = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Motion:
    """One performance of an action."""

    period_seconds: float
    """One repetition; about half a second, so that 8 to 16 frames show what is going on."""
    reach_pixels: float
    """About the largest displacement; where it grows outwards, that of a point 42 pixels from the centre."""
    direction: int
    """+1 or -1: clockwise or not, to one side first or to the other."""
    phase: float
    """Where in its period it starts, in radians."""
    center_x: float
    center_y: float
    """What it turns or stretches about, in pixels from the middle of the picture."""

    def angle(self, seconds: float) -> float:
        """How far the action has advanced, in radians; `direction` decides the sign."""
        return self.direction * (2 * math.pi * seconds / self.period_seconds + self.phase)


Flow = tuple[Grid, Grid]
"""The x and the y from which each screen point is read."""

_ARM = 42.0  # pixels from the centre at which turning and stretching reach as far as shifting does
_COLUMN = 32.0  # width in pixels of the columns that swap, and half the length of a wave
_PENDULUM = 44.0  # pixels from the centre up to the pivot, so that the upper edge hardly moves


def _bounce(x: Grid, y: Grid, angle: float, reach: float) -> Flow:
    return x, y + reach * (2 * abs(math.sin(angle / 2)) - 1)


def _orbit(x: Grid, y: Grid, angle: float, reach: float) -> Flow:
    return x - reach * math.cos(angle), y - reach * math.sin(angle)


def _pendulum(x: Grid, y: Grid, angle: float, reach: float) -> Flow:
    swung_x, swung_y = turned(x, y + _PENDULUM, 1.2 * reach / _PENDULUM * math.sin(angle))
    return swung_x, swung_y - _PENDULUM


def _shake(x: Grid, y: Grid, angle: float, reach: float) -> Flow:
    """Jumps between the corners of a square, two rounds a period."""
    side_x, side_y = math.copysign(reach, math.sin(2 * angle)), math.copysign(reach, math.cos(2 * angle))
    return x - side_x / 2, y - side_y / 2


def _shear(x: Grid, y: Grid, angle: float, reach: float) -> Flow:
    return x - y * (1.6 * reach / _ARM * math.sin(angle)), y


def _spin(x: Grid, y: Grid, angle: float, reach: float) -> Flow:
    # Not a turn a period, which would be far faster than the others: at the arm its speed is an orbit's.
    return turned(x, y, angle * reach / _ARM)


def _swap(x: Grid, y: Grid, angle: float, reach: float) -> Flow:
    """Every other column moves up while the rest move down."""
    return x, y - reach * math.sin(angle) * columns(x)


def _zoom(x: Grid, y: Grid, angle: float, reach: float) -> Flow:
    factor = math.exp(reach / _ARM * math.sin(angle))
    return x * factor, y * factor


def _scroll(x: Grid, y: Grid, angle: float, reach: float) -> Flow:
    return x - reach * angle * (2 / math.pi), y


def _wave(x: Grid, y: Grid, angle: float, reach: float) -> Flow:
    return x, y - reach * np.sin(x * (math.pi / _COLUMN) - angle)


def turned(x: Grid, y: Grid, angle: float) -> Flow:
    """The points turned about the centre."""
    cos, sin = math.cos(angle), math.sin(angle)
    return cos * x + sin * y, cos * y - sin * x


def columns(x: Grid) -> Grid:
    """+1 and -1 in columns with soft edges."""
    signs: Grid = np.tanh(3 * np.sin(x * (math.pi / _COLUMN)))
    return signs


# The first eight are the demo set's; all can be had by asking for more classes.
ACTIONS: dict[str, Callable[[Grid, Grid, float, float], Flow]] = {
    "Bounce": _bounce,
    "Orbit": _orbit,
    "Pendulum": _pendulum,
    "Shake": _shake,
    "Shear": _shear,
    "Spin": _spin,
    "Swap": _swap,
    "Zoom": _zoom,
    "Scroll": _scroll,
    "Wave": _wave,
}


def moved(action: str, motion: Motion, x: Grid, y: Grid, seconds: float) -> Flow:
    """Where the picture is read for the screen points (x, y) at this time."""
    dx, dy = np.float32(motion.center_x), np.float32(motion.center_y)
    source_x, source_y = ACTIONS[action](x - dx, y - dy, motion.angle(seconds), motion.reach_pixels)
    return source_x + dx, source_y + dy
