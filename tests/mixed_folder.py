"""A folder as people have it: a few kinds of videos, worse copies of some, and junk. Drawn and small."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from provico.data.frames.encode import write_video

HEIGHT, WIDTH, FPS, SECONDS = 96, 128, 12, 4
Frames = np.ndarray

KINDS = ("garden", "kitchen", "street")
PER_KIND = 4
COPIES = {
    "garden 0 letterboxed.mp4": "garden 0.mp4",
    "garden 1 mirrored.mp4": "garden 1.mp4",
    "kitchen 0 fast.mp4": "kitchen 0.mp4",
    "street 0 small.mp4": "street 0.mp4",
}
"""Worse copies, and what they are copies of."""
PARTS = {"kitchen 1 cut out.mp4": "kitchen 1.mp4"}
JUNK = {
    "black.mp4": "black",
    "frozen.mp4": "frozen",
    "snow.mp4": "noise",
    "intro.mp4": "card",
    "desktop.mp4": "screen",
    "broken.mp4": "unreadable",
}
PHONE, LONG = "phone.mp4", "everything.mp4"
LONG_SHOTS, LONG_SHOT_SECONDS, LONG_FPS = 60, 10, 4
"""Ten minutes of one shot after the other, of fewer frames than the others so that it is soon drawn."""


def scene(kind: str, seed: int, *, num_frames: int = FPS * SECONDS, fps: float = FPS) -> Frames:
    """Something that moves as only this video does, before what all of its kind have."""
    rng = np.random.default_rng([KINDS.index(kind) if kind in KINDS else 9, seed])
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    ground = {
        "garden": (60, 120, 50) + 40 * np.sin(x / 5 + np.sin(y / 4 + seed))[..., None],
        "kitchen": (190, 170, 140) + 40 * np.sign(np.sin(x / 9 + seed) * np.sin(y / 9))[..., None],
        "street": (90, 95, 110) + 30 * np.sin(y / 6 + seed)[..., None] + 0 * x[..., None],
    }.get(kind, (150, 80, 120) + 50 * np.cos((x + y) / 11)[..., None])
    grain = rng.normal(0, 5, (HEIGHT, WIDTH, 1))
    things = rng.uniform(0, 2 * np.pi, (4, 6))
    colours = rng.integers(0, 256, (4, 3))
    frames = []
    pace = 0.5 if kind == "kitchen" else 1.0  # of what moves fast a copy at another speed is not found
    for number in range(num_frames):
        t = pace * number / fps
        frame = ground + grain
        for thing, colour in zip(things, colours, strict=True):
            speed = 1.2 + thing[0] / 3
            across = WIDTH * (0.5 + 0.42 * np.sin(speed * t + thing[1]) * np.cos(0.7 * t + thing[2]))
            down = HEIGHT * (0.5 + 0.42 * np.sin(1.3 * speed * t + thing[3]))
            size = 9 + 5 * np.sin(2 * t + thing[4])
            if kind == "street":
                is_thing = (np.abs(x - across) < 2 * size) & (np.abs(y - down) < size)
            elif kind == "kitchen":
                is_thing = np.abs(x - across) + np.abs(y - down) < 1.6 * size
            else:
                is_thing = (x - across) ** 2 + (y - down) ** 2 < 2 * size**2
            frame = np.where(is_thing[..., None], colour, frame)
        frames.append(frame)
    return np.clip(np.stack(frames), 0, 255).astype(np.uint8)


def _screen(num_frames: int) -> Frames:
    """Windows with lines of text, and a pointer that moves."""
    rng = np.random.default_rng(5)
    screen = np.full((HEIGHT * 2, WIDTH * 2, 3), (225, 228, 232), np.uint8)
    screen[:10] = (40, 60, 90)
    screen[20:170, 12:180] = 255
    for top in range(28, 164, 6):
        for left in range(18, int(rng.integers(90, 172)), 8):
            screen[top : top + 3, left : left + int(rng.integers(3, 7))] = (30, 30, 30)
    frames = np.repeat(screen[None], num_frames, axis=0)
    for number, frame in enumerate(frames):
        left = 190 + number % 40
        frame[60 + number // 2 : 68 + number // 2, left : left + 5] = (200, 30, 30)
    return frames


def _card(num_frames: int) -> Frames:
    """A few words that fade in, and stay."""
    card = np.full((HEIGHT, WIDTH, 3), (24, 32, 70), np.uint8)
    for left in range(30, 98, 9):
        card[40:50, left : left + 5] = (240, 240, 240)
    light = np.minimum(1.0, np.arange(num_frames) / 4)
    return (card[None] * light[:, None, None, None]).astype(np.uint8)


def write_mixed_folder(folder: Path) -> None:
    """All of it; originals are older than their copies."""
    folder.mkdir(parents=True, exist_ok=True)
    shots: dict[str, Frames] = {
        f"{kind} {number}.mp4": scene(kind, number) for kind in KINDS for number in range(PER_KIND)
    }
    mirrored = shots["garden 1.mp4"][:, :, ::-1]
    boxed = np.pad(shots["garden 0.mp4"], ((0, 0), (24, 24), (0, 0), (0, 0)))
    faster = shots["kitchen 0.mp4"][np.arange(0, FPS * SECONDS, 1.25).astype(int)]
    made: dict[str, Frames] = {
        **shots,
        "garden 0 letterboxed.mp4": boxed,
        "garden 1 mirrored.mp4": mirrored,
        "kitchen 0 fast.mp4": faster,
        "street 0 small.mp4": shots["street 0.mp4"][:, ::2, ::2],
        "kitchen 1 cut out.mp4": shots["kitchen 1.mp4"][12:40],
        "black.mp4": np.zeros((36, HEIGHT, WIDTH, 3), np.uint8),
        "frozen.mp4": np.repeat(scene("garden", 30, num_frames=1), 36, axis=0),
        "snow.mp4": np.random.default_rng(1).integers(0, 256, (36, HEIGHT, WIDTH, 3), np.uint8),
        "intro.mp4": _card(36),
        "desktop.mp4": _screen(48),
    }
    for number, (name, frames) in enumerate(made.items()):
        write_video(folder / name, frames, fps=FPS, quality=18)
        os.utime(folder / name, (1_600_000_000 + 60 * number, 1_600_000_000 + 60 * number))
    long = (
        scene(KINDS[n % len(KINDS)], 20 + n, num_frames=LONG_SHOT_SECONDS * LONG_FPS, fps=LONG_FPS)
        for n in range(LONG_SHOTS)
    )
    write_video(folder / LONG, itertools.chain.from_iterable(long), fps=LONG_FPS, quality=18)
    write_video(folder / PHONE, scene("beach", 3), fps=FPS, quality=18, rotation=90)
    (folder / "broken.mp4").write_bytes(b"no video at all" * 100)


def every_name(folder: Path) -> Iterator[str]:
    """All files, hidden folders left out."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path.relative_to(folder).as_posix()
