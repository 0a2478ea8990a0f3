"""ACTION + LOOKS -> FRAMES: plays the shots of one video of the demo set.

Only the action is constant throughout a shot. Its look dissolves into the next one of the pool about every
second, and camera, lens, light and colours drift slowly, in the same ranges for all classes. Two clips of one
video therefore share little but their motion, which is what pretraining without labels has to find.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from provico.data.demo_set.look import TILE, DrawnLook, color_table, read_layer
from provico.data.demo_set.motion import Flow, Grid, Motion, columns, moved, turned

HEIGHT, WIDTH, FPS = 96, 128, 25

_DISSOLVE = 0.4
"""The share of a look's time in which it dissolves into the next."""


@dataclass(frozen=True, kw_only=True)
class Shot:
    """A piece of a video without a cut."""

    action: str
    motion: Motion
    looks: tuple[int, ...]
    """Which looks of the pool are shown, in this order."""
    seconds_per_look: float
    num_frames: int


def play(
    shots: Sequence[Shot], pool: Sequence[DrawnLook], *, noise: float, seed: Sequence[int]
) -> Iterator[NDArray[np.uint8]]:
    """The frames of a video, one at a time; `noise` is the share of each pixel that is random."""
    rng = np.random.default_rng(seed)
    for shot in shots:
        for frame in _play_shot(shot, pool, rng):
            if noise > 0:
                grain = rng.random(frame.shape, dtype=np.float32) * 255
                frame += np.float32(noise) * (grain - frame)
            yield frame.astype(np.uint8)


def _play_shot(
    shot: Shot, pool: Sequence[DrawnLook], rng: np.random.Generator
) -> Iterator[NDArray[np.float32]]:
    screen_x, screen_y = _screen()
    camera = _Camera(rng)
    for number in range(shot.num_frames):
        seconds = number / FPS
        shake_x, shake_y = rng.normal(0, 0.4, size=2).tolist()
        x, y = screen_x + shake_x, screen_y + shake_y
        at = camera.wander(seconds)
        front = camera.front(*moved(shot.action, shot.motion, x, y, seconds), at)
        back = camera.back(x, y, at)

        position = seconds / shot.seconds_per_look
        current = int(position)
        frame = _expose(pool[shot.looks[current]], front, back, at)
        dissolved = (position - current - (1 - _DISSOLVE)) / _DISSOLVE
        if dissolved > 0 and current + 1 < len(shot.looks):
            following = _expose(pool[shot.looks[current + 1]], front, back, at)
            frame += np.float32(dissolved) * (following - frame)
        yield frame


_LENS = ("stretch", "shear", "break", "size")
_VIEW = ("turn", "x", "y", "back_turn", "back_x", "back_y")
_LIGHT = ("hue", "light")
_WANDERING = (*_LENS, *_VIEW, *_LIGHT)


class _Camera:
    """Where the view stands, how its lens distorts, and how the light falls: all of it wanders slowly."""

    def __init__(self, rng: np.random.Generator) -> None:
        shape = 2, len(_WANDERING)
        self._weight = rng.uniform(0.25, 0.5, size=shape)
        self._rate = 2 * math.pi / rng.uniform(3, 6, size=shape)
        self._start = rng.uniform(0, 2 * math.pi, size=shape)
        self._turn, self._back_turn = rng.uniform(0, 2 * math.pi, size=2).tolist()
        self._break_x = rng.uniform(0, TILE)
        # Far from the origin, so that no coordinate that is read is negative: they are cut to whole numbers.
        self._x, self._y, self._back_x, self._back_y = rng.uniform(8 * TILE, 9 * TILE, size=4).tolist()

    def wander(self, seconds: float) -> dict[str, float]:
        """How far each wandering quantity is from its middle, from -1 to 1: sums of two slow sines."""
        values = (self._weight * np.sin(self._rate * seconds + self._start)).sum(axis=0)
        return dict(zip(_WANDERING, values.tolist(), strict=True))

    def front(self, x: Grid, y: Grid, at: dict[str, float]) -> Flow:
        """From the screen to the layer of objects.

        The lens shears, squashes and breaks the picture about as much as some actions do, in every class, so
        that no single frame shows by its distortion which action it is from.
        """
        stretch = math.exp(0.25 * at["stretch"])
        x = x * stretch + 0.5 * at["shear"] * y
        y = y / stretch + 14 * at["break"] * columns(x + self._break_x)
        x, y = turned(x, y, self._turn + 0.6 * at["turn"])
        size = math.exp(0.2 * at["size"])
        return x * size + (self._x + 60 * at["x"]), y * size + (self._y + 60 * at["y"])

    def back(self, x: Grid, y: Grid, at: dict[str, float]) -> Flow:
        """From the screen to the background, which takes no part in the action."""
        x, y = turned(x, y, self._back_turn + 0.6 * at["back_turn"])
        return x + (self._back_x + 60 * at["back_x"]), y + (self._back_y + 60 * at["back_y"])


def _expose(drawn: DrawnLook, front: Flow, back: Flow, at: dict[str, float]) -> NDArray[np.float32]:
    """Read both layers of a look and colour them."""
    tones = read_layer(drawn.objects, *front)
    tones = np.where(tones > 0, tones, read_layer(drawn.background, *back))
    return color_table(drawn.look.palette, hue_turn=2 * at["hue"], gain=1 + 0.25 * at["light"])[tones]


def _screen() -> Flow:
    """The coordinates of the pixels, from the centre."""
    x = np.arange(WIDTH, dtype=np.float32) - (WIDTH - 1) / 2
    y = np.arange(HEIGHT, dtype=np.float32) - (HEIGHT - 1) / 2
    grid_x, grid_y = np.meshgrid(x, y)
    return grid_x, grid_y
