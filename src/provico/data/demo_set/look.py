"""The looks of the demo set: the appearance of its videos, independent of motion.

A look is a texture, a palette and a kind of object. There are few of them, every class uses all of
them, and none stays the same through a video: the view drifts and turns, and the light and the colours
change slowly. So neither a frame nor a histogram says which action, or even which video, it is from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TILE = 256
"""Width and height, in pixels of the screen, of the endless pattern's repeating tile."""
SAMPLES_PER_PIXEL = 2
_SIDE = TILE * SAMPLES_PER_PIXEL

Plane = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Look:
    """A texture behind, objects in front, and the colours of both, by name."""

    texture: str
    palette: str
    object: str


@dataclass(frozen=True)
class DrawnLook:
    """A look drawn once, in tones: 0..127 behind; 128..255 where an object is, and 0 where none is."""

    look: Look
    background: NDArray[np.uint8]
    objects: NDArray[np.uint8]


def _waves(x: Plane, y: Plane, rng: np.random.Generator) -> Plane:
    return np.sin(x * 8) * np.sin(y * 8 + np.sin(x * 2))


def _stripes(x: Plane, y: Plane, rng: np.random.Generator) -> Plane:
    stripes: Plane = np.sin(x * 11 + y * 5)
    return stripes


def _checks(x: Plane, y: Plane, rng: np.random.Generator) -> Plane:
    return np.sign(np.sin(x * 9)) * np.sign(np.sin(y * 9))


def _clouds(x: Plane, y: Plane, rng: np.random.Generator) -> Plane:
    total = np.zeros_like(x)
    for _ in range(24):
        fx, fy = rng.integers(-9, 10, size=2)
        total += np.cos(x * int(fx) + y * int(fy) + float(rng.uniform(0, 2 * math.pi)))
    return np.tanh(total / 4)


# Each is drawn over one tile, x and y from 0 to 2 pi; whole numbers of waves make its edges meet.
TEXTURES: dict[str, Callable[[Plane, Plane, np.random.Generator], Plane]] = {
    "waves": _waves,
    "stripes": _stripes,
    "checks": _checks,
    "clouds": _clouds,
}

# Which points, in radii from its centre, belong to an object.
OBJECTS: dict[str, Callable[[Plane, Plane], NDArray[np.bool_]]] = {
    "disc": lambda x, y: np.hypot(x, y) < 1,
    "box": lambda x, y: np.maximum(abs(x), abs(y)) < 0.85,
    "ring": lambda x, y: abs(np.hypot(x, y) - 0.75) < 0.35,
    "cross": lambda x, y: (np.minimum(abs(x), abs(y)) < 0.4) & (np.maximum(abs(x), abs(y)) < 1.1),
}

# Two tones behind, two in front, as red, green and blue from 0 to 1.
PALETTES: dict[str, tuple[tuple[float, float, float], ...]] = {
    "sea": ((0.05, 0.15, 0.35), (0.20, 0.40, 0.55), (0.95, 0.85, 0.55), (0.75, 0.45, 0.25)),
    "wood": ((0.15, 0.25, 0.10), (0.40, 0.45, 0.20), (0.85, 0.90, 0.95), (0.55, 0.60, 0.85)),
    "dusk": ((0.25, 0.08, 0.30), (0.50, 0.25, 0.45), (0.70, 0.95, 0.80), (0.30, 0.75, 0.60)),
    "sand": ((0.35, 0.22, 0.10), (0.55, 0.42, 0.25), (0.80, 0.90, 1.00), (0.40, 0.65, 0.95)),
}


NUM_LOOKS = 8


def draw_pool(seed: int) -> list[DrawnLook]:
    """The looks that all classes share; each texture, palette and object is in two of them."""
    textures, palettes, objects = list(TEXTURES), list(PALETTES), list(OBJECTS)
    pool = []
    for number in range(NUM_LOOKS):
        look = Look(
            texture=textures[number % 4],
            palette=palettes[(number + number // 4) % 4],
            object=objects[(3 * number + 2 * (number // 4)) % 4],
        )
        rng = np.random.default_rng([seed, number])
        pool.append(DrawnLook(look, _draw_background(look, rng), _draw_objects(look, rng)))
    return pool


def _draw_background(look: Look, rng: np.random.Generator) -> NDArray[np.uint8]:
    steps = np.arange(_SIDE, dtype=np.float32) * (2 * math.pi / _SIDE)
    x, y = np.meshgrid(steps, steps)
    texture = TEXTURES[look.texture](x, y, rng)
    return ((texture + 1) * 63.5).astype(np.uint8)


def _draw_objects(look: Look, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Objects of several sizes, turned and shifted at random about the places of a square grid."""
    layer = np.zeros((_SIDE, _SIDE), np.uint8)
    per_side = 7
    spacing = _SIDE / per_side
    window = np.arange(-int(spacing), int(spacing) + 1)
    for row, column in np.ndindex(per_side, per_side):
        radius = spacing * rng.uniform(0.33, 0.46)
        shift_x, shift_y = spacing * rng.uniform(-0.15, 0.15, size=2)
        dx, dy = np.meshgrid((window - shift_x) / radius, (window - shift_y) / radius)
        angle = rng.uniform(0, 2 * math.pi)
        along, across = (
            math.cos(angle) * dx + math.sin(angle) * dy,
            math.cos(angle) * dy - math.sin(angle) * dx,
        )
        tones = (128 + 127 * np.clip(0.5 + 0.5 * across, 0, 1)).astype(np.uint8)
        place = np.ix_((int(row * spacing) + window) % _SIDE, (int(column * spacing) + window) % _SIDE)
        layer[place] = np.where(OBJECTS[look.object](along, across), tones, layer[place])
    return layer


def read_layer(layer: NDArray[np.uint8], x: Plane, y: Plane) -> NDArray[np.uint8]:
    """The layer's tones at the given pixels (not negative) of its endless pattern."""
    column = (x * SAMPLES_PER_PIXEL).astype(np.int32) & (_SIDE - 1)
    row = (y * SAMPLES_PER_PIXEL).astype(np.int32) & (_SIDE - 1)
    return layer.ravel().take(row * _SIDE + column)


def color_table(palette: str, *, hue_turn: float, gain: float) -> NDArray[np.float32]:
    """The colours of the 256 tones, their hue turned by so many radians and their light scaled."""
    back_dark, back_light, front_light, front_dark = (np.array(c) for c in PALETTES[palette])
    ramp = np.linspace(0, 1, 128)[:, None]
    colors = np.concatenate(
        [back_dark + ramp * (back_light - back_dark), front_dark + ramp * (front_light - front_dark)]
    )
    gray = colors.mean(axis=1, keepdims=True)
    cos, sin = math.cos(hue_turn), math.sin(hue_turn)
    chroma = colors - gray
    turned = np.cross(np.full(3, 1 / math.sqrt(3)), chroma)
    shades: NDArray[np.float32] = (255 * gain * (gray + cos * chroma + sin * turned)).astype(np.float32)
    return shades.clip(0, 255)
