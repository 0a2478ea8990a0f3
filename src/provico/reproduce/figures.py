"""Self-contained figures: axes with units, and the caption inside the image."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from provico.evaluation.statistics import Estimate

OURS, PAPER, RIVAL, WRONG, RIGHT = "#2864b4", "#c8781e", "#6e6e78", "#c81e1e", "#2e8b57"
"""One colour per meaning, in all figures."""

_STYLE = {
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "svg.fonttype": "none",  # text stays text: it can be searched and read aloud
    "svg.hashsalt": "provico",  # the same data give the same bytes
}
_CHARACTERS_PER_INCH = 15
_LINE_INCHES = 0.16


def new_figure(caption: str, *, width: float = 6.4, height: float = 3.6) -> Figure:
    """A figure with its caption below and space for axes above."""
    lines = textwrap.wrap(caption, int(width * _CHARACTERS_PER_INCH))
    below = _LINE_INCHES * len(lines) + 0.1
    total = height + below
    layout = ConstrainedLayoutEngine(rect=(0, below / total, 1, height / total))
    with matplotlib.style.context(_STYLE):
        figure = Figure(figsize=(width, total), layout=layout)
    figure.text(0.01, 0.05 / total, "\n".join(lines), ha="left", va="bottom", fontsize=8)
    return figure


def add_axes(
    figure: Figure, rows: int = 1, columns: int = 1, *, sharex: bool = False, sharey: bool = False
) -> list[Axes]:
    """Axes in the style of all figures, in reading order."""
    with matplotlib.style.context(_STYLE):
        axes = figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey)
    return [axis for row in axes for axis in row]


def points_with_intervals(
    axis: Axes, positions: Sequence[float], estimates: Sequence[Estimate], *, label: str, colour: str = OURS
) -> None:
    """Plot points with their intervals."""
    values = [estimate.value for estimate in estimates]
    below = [max(0.0, estimate.value - estimate.low) for estimate in estimates]
    above = [max(0.0, estimate.high - estimate.value) for estimate in estimates]
    axis.errorbar(
        positions, values, yerr=[below, above], fmt="o-", color=colour, label=label, capsize=3, markersize=4
    )


def save_figure(figure: Figure, stem: Path) -> None:
    """Save a figure as STEM.png and STEM.svg."""
    with matplotlib.style.context(_STYLE):
        figure.savefig(stem.with_suffix(".png"), dpi=150, metadata={"Software": None})
        figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
