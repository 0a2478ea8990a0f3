"""Notebook displays of videos, mixtures, answers and runs, in plain HTML and SVG without scripts."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

_WIDTH, _HEIGHT = 480, 90  # of a chart, in pixels
_COLOUR = "#0072b2"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str) -> str:
    """An HTML table of values, which are escaped."""
    titles = "".join(f"<th>{escape(name)}</th>" for name in head)
    cells = ("".join(f"<td>{escape(str(value))}</td>" for value in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"<table><caption>{escape(caption)}</caption><tr>{titles}</tr>{body}</table>"


def bars(values: Sequence[float], names: Sequence[str], *, caption: str) -> str:
    """A bar chart from zero; hovering over a bar shows its name."""
    step, largest = _WIDTH / len(values), max(values) or 1.0
    drawn = "".join(
        f'<rect x="{step * place + 1:.1f}" y="{_HEIGHT * (1 - value / largest):.1f}" '
        f'width="{max(step - 2, 1):.1f}" height="{_HEIGHT * value / largest:.1f}" fill="{_COLOUR}">'
        f"<title>{escape(name)}: {value:.3g}</title></rect>"
        for place, (value, name) in enumerate(zip(values, names, strict=True))
    )
    return _figure(drawn, caption)


def line(values: Sequence[float], *, caption: str) -> str:
    """A line chart of the values in their order, scaled from the least to the largest."""
    low, high = min(values), max(values)
    spread, last = (high - low) or 1.0, max(len(values) - 1, 1)
    points = " ".join(
        f"{_WIDTH * place / last:.1f},{4 + (_HEIGHT - 8) * (high - value) / spread:.1f}"
        for place, value in enumerate(values)
    )
    return _figure(f'<polyline points="{points}" fill="none" stroke="{_COLOUR}" stroke-width="2"/>', caption)


def strip(frames: NDArray[np.uint8], *, caption: str) -> str:
    """Frames "time height width 3" side by side."""
    import simplejpeg

    joined = np.ascontiguousarray(np.concatenate(list(frames), axis=1))
    data = base64.b64encode(simplejpeg.encode_jpeg(joined, quality=85)).decode()
    picture = f'<img src="data:image/jpeg;base64,{data}" alt="" style="max-width:100%;height:96px"/>'
    return f"<figure>{picture}<figcaption>{escape(caption)}</figcaption></figure>"


def _figure(drawn: str, caption: str) -> str:
    size = f'width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    return (
        f'<figure><svg {size} role="img" aria-label="{escape(caption)}">{drawn}</svg>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )
