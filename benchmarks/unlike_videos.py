"""Draw videos that are unlike any collection of filmed actions: sixty of six kinds, the same each time.

    python benchmarks/unlike_videos.py FOLDER

noise (coloured, grey, in blocks), black (with and without the noise of a sensor), plain colours that fade,
slides of text, screen recordings (windows, text that scrolls, a cursor), charts that grow.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from provico.data.frames.encode import write_video

Frame = NDArray[np.uint8]
NUM_OF_A_KIND, NUM_FRAMES, WIDTH, HEIGHT = 10, 75, 176, 128
_WORDS = (
    "report",
    "agenda",
    "results",
    "plan",
    "budget",
    "next steps",
    "def",
    "return",
    "import",
    "class self",
)


def _grey(values: NDArray[np.float64]) -> Frame:
    return np.repeat(values.clip(0, 255).astype(np.uint8)[..., None], 3, axis=2)


def noise(random: np.random.Generator) -> Iterator[Frame]:
    """Every frame anew: coloured, grey or in blocks."""
    kind, size = random.integers(3), int(random.choice([4, 8, 16]))
    for _ in range(NUM_FRAMES):
        if kind == 0:
            yield random.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
        elif kind == 1:
            yield _grey(random.normal(128, 50, (HEIGHT, WIDTH)))
        else:
            blocks = random.integers(0, 256, (HEIGHT // size, WIDTH // size, 3), dtype=np.uint8)
            yield blocks.repeat(size, axis=0).repeat(size, axis=1)


def black(random: np.random.Generator) -> Iterator[Frame]:
    """Nothing, or what a covered lens sees."""
    level, spread = random.uniform(0, 12), random.choice([0.0, 2.0, 5.0])
    for _ in range(NUM_FRAMES):
        yield _grey(level + spread * random.standard_normal((HEIGHT, WIDTH)))


def plain(random: np.random.Generator) -> Iterator[Frame]:
    """One colour, or two that run into each other, slowly becoming others."""
    corners = random.uniform(0, 255, (2, 2, 3))
    if random.random() < 0.5:
        corners[:, 1] = corners[:, 0]
    across = np.linspace(0, 1, WIDTH)[None, :, None]
    for number in range(NUM_FRAMES):
        left, right = corners[0] + (corners[1] - corners[0]) * number / NUM_FRAMES
        yield np.broadcast_to(left + (right - left) * across, (HEIGHT, WIDTH, 3)).astype(np.uint8)


def slides(random: np.random.Generator) -> Iterator[Frame]:
    """Text on a ground of one colour; a new slide every second or so."""
    dark = random.random() < 0.4
    ground, ink = ((20, 24, 40), (235, 235, 240)) if dark else ((250, 250, 246), (30, 30, 40))
    hold = int(random.integers(20, 40))
    for number in range(NUM_FRAMES):
        if number % hold == 0:
            picture = Image.new("RGB", (WIDTH, HEIGHT), ground)
            draw = ImageDraw.Draw(picture)
            draw.text((8, 6), _words(random, 3).title(), ink, font=ImageFont.load_default(15))
            for line in range(int(random.integers(3, 7))):
                draw.text((14, 32 + 14 * line), "- " + _words(random, 4), ink, font=ImageFont.load_default(9))
        yield np.asarray(picture)


def screen(random: np.random.Generator) -> Iterator[Frame]:
    """Windows with text that scrolls, and a cursor."""
    dark = random.random() < 0.5
    paper, ink = ((30, 30, 30), (200, 210, 200)) if dark else ((255, 255, 255), (20, 20, 20))
    desk = tuple(int(value) for value in random.integers(30, 200, 3))
    lines = [" " * int(random.integers(0, 8)) + _words(random, 5) for _ in range(80)]
    left, speed = int(random.integers(8, 60)), float(random.uniform(0.3, 2.5))
    start, end = random.uniform(0, [WIDTH, HEIGHT], (2, 2))
    for number in range(NUM_FRAMES):
        picture = Image.new("RGB", (WIDTH, HEIGHT), desk)
        draw = ImageDraw.Draw(picture)
        draw.rectangle((0, 0, WIDTH, 7), (60, 60, 66))
        draw.rectangle((left, 14, WIDTH - 6, HEIGHT - 6), paper)
        draw.rectangle((left, 14, WIDTH - 6, 21), (90, 110, 160))
        first = int(speed * number / 4)
        for row, text in enumerate(lines[first : first + 10]):
            draw.text((left + 4, 24 + 9 * row), text, ink, font=ImageFont.load_default(8))
        x, y = start + (end - start) * number / NUM_FRAMES
        draw.polygon([(x, y), (x + 5, y + 6), (x, y + 8)], (255, 255, 255), (0, 0, 0))
        yield np.asarray(picture)


def charts(random: np.random.Generator) -> Iterator[Frame]:
    """Bars that grow to their heights."""
    heights = random.uniform(10, 90, int(random.integers(4, 10)))
    colour = tuple(int(value) for value in random.integers(40, 220, 3))
    width = (WIDTH - 30) / len(heights)
    for number in range(NUM_FRAMES):
        picture = Image.new("RGB", (WIDTH, HEIGHT), (252, 252, 252))
        draw = ImageDraw.Draw(picture)
        draw.line((18, 10, 18, HEIGHT - 16, WIDTH - 6, HEIGHT - 16), (0, 0, 0))
        for bar, height in enumerate(heights * min(1, (number + 1) / 50)):
            x = 20 + bar * width
            draw.rectangle((x, HEIGHT - 18 - height, x + 0.7 * width, HEIGHT - 17), colour)
        yield np.asarray(picture)


KINDS: dict[str, Callable[[np.random.Generator], Iterator[Frame]]] = {
    "noise": noise,
    "black": black,
    "plain": plain,
    "slides": slides,
    "screen": screen,
    "charts": charts,
}


def _words(random: np.random.Generator, most: int) -> str:
    return " ".join(random.choice(_WORDS, int(random.integers(1, most + 1))))


def draw_all(folder: Path) -> list[Path]:
    """Write the videos to FOLDER/KIND/NN.mp4, and say where they are."""
    paths = []
    for number_of_kind, (name, kind) in enumerate(KINDS.items()):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(NUM_OF_A_KIND):
            paths.append(folder / name / f"{number:02}.mp4")
            write_video(paths[-1], kind(np.random.default_rng([number_of_kind, number])), fps=25, quality=20)
    return paths


if __name__ == "__main__":
    print(f"{len(draw_all(Path(sys.argv[1])))} videos in {sys.argv[1]}")
