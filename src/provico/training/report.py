"""The report of a run: report.html, from the config.json and metrics.jsonl of its folder.

The page is self-contained: no script, no network, charts as inline SVG. Their placeholder colours become CSS
variables, for light and dark pages. A run always gives the same bytes.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provico.errors import ProvicoError
from provico.extras import lacking
from provico.files import replace_text
from provico.training.run_log import METRICS_FILE, Record, read_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_POINTS = 2000
"""Curves with more records are thinned: no screen is wider."""

FEW_POINTS = 40
"""Curves with at most this many points have markers."""


@dataclass(frozen=True)
class Panel:
    """One chart: curves by the name of their metric, on the left axis or on a second one at the right."""

    title: str
    left: Mapping[str, str]
    right: Mapping[str, str] = field(default_factory=dict)
    band: tuple[str, str] | None = None
    """Two metrics between which the area is shaded."""
    log: bool = False
    """Whether the left axis is logarithmic, if its values allow it."""


SECTIONS: dict[str, tuple[str, tuple[Panel, ...]]] = {
    "Loss": (
        "The loss and its terms. The soft contrastive loss of a pair is divided by the variances of both "
        "videos, and the regulariser keeps these from growing.",
        (
            Panel(
                "Loss and its parts",
                {
                    "loss": "loss",
                    "loss/attenuated_soft": "attenuated",
                    "loss/regulariser": "regulariser",
                    "loss/kl": "KL",
                },
            ),
            Panel(
                "Soft loss before attenuation",
                {"loss/soft_positive": "positive pairs", "loss/soft_negative": "negative pairs"},
                log=True,
            ),
        ),
    ),
    "Uncertainty": (
        "The geometric mean of a video's variances: median and 10-90 % band over a batch. With labels, the "
        "share of videos whose nearest neighbour has their class is drawn beside it.",
        (
            Panel(
                "Uncertainty and retrieval",
                {"health/uncertainty_median": "uncertainty"},
                right={"monitor/recall_at_1": "R@1"},
                band=("health/uncertainty_low", "health/uncertainty_high"),
                log=True,
            ),
        ),
    ),
    "Signal": (
        "The embedding is informative while the noise (total variance of a video) stays below the signal "
        "(squared distance between two videos), and the means spread over many directions.",
        (
            Panel("Noise against signal", {"health/noise": "noise", "health/signal": "signal"}, log=True),
            Panel("Directions that the means span", {"health/effective_rank": "effective rank"}),
            Panel(
                "On the unit sphere",
                {"health/alignment": "alignment"},
                right={"health/uniformity": "uniformity"},
            ),
        ),
    ),
    "Mined pairs": (
        "Pairs of different videos mined as positive. Precision and recall need labels.",
        (
            Panel("Pairs in a batch", {"mining/num_pairs": "pairs"}, right={"mining/share": "share"}),
            Panel("Are they right?", {"mining/precision": "precision", "mining/recall": "recall"}),
            Panel("Distance below which a pair is mined", {"mining/threshold": "threshold"}),
        ),
    ),
    "Optimisation": (
        "The match probability is sigmoid(b - a d) of a distance d, up to a factor; a and b are trained.",
        (
            Panel("Match curve", {"curve/a": "a", "curve/b": "b"}),
            Panel("Learning rate", {"learning_rate": "learning rate"}),
            Panel("Norm of the gradient", {"health/gradient_norm": "gradient norm"}, log=True),
        ),
    ),
    "Time": (
        "Seconds per step, and the share spent waiting for data.",
        (Panel("A step", {"time/step_seconds": "seconds"}, right={"time/data_share": "waiting share"}),),
    ),
}
"""The sections of the page: a new curve is a line here. Charts without data are left out."""


def write_report(folder: Path) -> Path:
    """Write report.html into the folder of a run, and return its path."""
    metrics = folder / METRICS_FILE
    if not metrics.is_file():
        raise ProvicoError(
            f"There is no {METRICS_FILE} in {folder}, so there is no run to report on. "
            "Give the folder that `provico pretrain` wrote to."
        )
    records = read_metrics(metrics)
    settings = folder / "config.json"
    config = json.loads(settings.read_bytes()) if settings.is_file() else {}
    path = folder / "report.html"
    replace_text(path, _page(folder.resolve().name, config, records))
    return path


# --- words -------------------------------------------------------------------------------------------------


def _summary(config: Mapping[str, Any], records: Sequence[Record]) -> Iterator[str]:
    """The run in sentences; each needs its metrics."""
    if not records:
        yield "No step has been logged yet."
        return
    yield _extent(records)
    losses = _values(records, "loss")
    if records[-1].get("loss", 0.0) is None:
        yield "The loss of the last record is not a finite number."
    elif losses:
        yield f"The loss went from {losses[0]:.4g} to {losses[-1]:.4g}."
    recall = _values(records, "monitor/recall_at_1")
    if recall:
        yield f"R@1 of the monitor ended at {recall[-1]:.3g}; its best was {max(recall):.3g}."
    rank = _values(records, "health/effective_rank")
    if rank:
        model = config.get("model")
        dim = model.get("dim") if isinstance(model, Mapping) else None
        yield f"The means span about {rank[-1]:.0f}{f' of {dim}' if dim else ''} directions."
    ratio = _values(records, "health/noise_to_signal")
    if ratio:
        verdict = (
            "the means distinguish videos" if ratio[-1] < 1 else "the noise hides the differences of means"
        )
        yield f"The noise is {ratio[-1]:.2g} times the signal: {verdict}."
    yield from _mining_summary(records)
    waiting = _values(records, "time/data_share")
    if waiting:
        yield f"Waiting for data took {_percent(sum(waiting) / len(waiting))} of the time."
    broken = _values(records, "data/num_broken")
    if broken and broken[-1] > 0:
        yield f"{_count(broken[-1], 'video')} could not be read and were skipped."


def _extent(records: Sequence[Record]) -> str:
    steps, epochs = _values(records, "step"), _values(records, "epoch")
    seconds = _values(records, "time/step_seconds")
    text = _count(steps[-1], "step") if steps else _count(len(records), "record")
    text += f", {_count(epochs[-1], 'epoch')}" if epochs else ""
    videos = _values(records, "data/num_videos")
    text += f", {_count(videos[-1], 'video')}" if videos else ""
    # Not every step is logged, so the whole time is that of a mean step times their number.
    if steps and seconds:
        text += f", about {_duration(steps[-1] * sum(seconds) / len(seconds))} of training"
    return f"{text}."


def _mining_summary(records: Sequence[Record]) -> Iterator[str]:
    switch = _stage_switch(records)
    if switch is not None:
        yield f"Mining began at {_x_name(records)} {_number(switch)}."
    pairs, share = _values(records, "mining/num_pairs"), _values(records, "mining/share")
    precision = _values(records, "mining/precision")
    if pairs and pairs[-1] > 0:
        text = f"The last record mined {_count(pairs[-1], 'pair')}"
        text += f", {_percent(share[-1])} of all" if share else ""
        text += f"; {_percent(precision[-1])} of them are right" if precision else ""
        yield f"{text}."


def _count(number: float, noun: str) -> str:
    return f"{_number(number)} {noun}{'' if number == 1 else 's'}"


def _number(number: float) -> str:
    return f"{number:,.1f}".removesuffix(".0")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"


# --- numbers -----------------------------------------------------------------------------------------------


def _values(records: Sequence[Record], key: str) -> list[float]:
    return [value for record in records if (value := record.get(key)) is not None]


def _x_name(records: Sequence[Record]) -> str:
    return "epoch" if _values(records, "epoch") else "step"


def _curve(records: Sequence[Record], *keys: str) -> list[tuple[float, ...]]:
    """The points (x, values...) at which all these metrics are known, thinned but with the last one."""
    columns = (_x_name(records), *keys)
    points = [tuple(record.get(key) for key in columns) for record in records]
    known = [tuple(value for value in point if value is not None) for point in points]
    known = [point for point in known if len(point) == len(columns)]
    return known[:: -max(1, -(-len(known) // MAX_POINTS))][::-1]


def _stage_switch(records: Sequence[Record]) -> float | None:
    """The start of the second stage, if there is one."""
    stages = [record.get("stage") for record in records]
    if 1 not in stages or 2 not in stages:
        return None
    return records[stages.index(2)].get(_x_name(records))


# --- charts ------------------------------------------------------------------------------------------------

_INK = "#010203"
_SERIES = ("#0072b2", "#d55e00", "#009e73", "#a3508a")
"""Colours that are distinguishable with any colour vision; dashes differ too. The page restyles them."""
_DASHES = ("-", "--", "-.", ":")
_COLOURS = {_INK: "--ink", **{colour: f"--series-{n}" for n, colour in enumerate(_SERIES, start=1)}}

_STYLE = {
    "svg.fonttype": "none",  # text stays text: it takes the page's font, and can be searched
    "font.size": 9,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.formatter.useoffset": False,
    "grid.color": _INK,
    "grid.alpha": 0.12,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 3.5,
}


def _draw(panel: Panel, records: Sequence[Record]) -> str | None:
    """The chart as an <svg> element, or None without data."""
    if not any(_curve(records, key) for key in (*panel.left, *panel.right)):
        return None
    # Matplotlib's defaults, whatever a user's settings. The salt makes identifiers depend only on the panel.
    import matplotlib.style  # slow to import
    from matplotlib.figure import Figure

    with matplotlib.style.context(["default", {**_STYLE, "svg.hashsalt": panel.title}]):
        figure = Figure(figsize=(5.2, 2.9), layout="constrained")
        axes = figure.add_subplot()
        axes.set_xlabel(_x_name(records))
        drawn = _plot(axes, panel.left, records, first=0)
        if panel.band and (points := _curve(records, *panel.band)):
            x, low, high = zip(*points, strict=True)
            axes.fill_between(x, low, high, color=_SERIES[0], alpha=0.18, linewidth=0, label="10-90 %")
        on_left = (*panel.left, *(panel.band or ()))
        if panel.log and all(value > 0 for key in on_left for value in _values(records, key)):
            axes.set_yscale("log")
        if any(_curve(records, key) for key in panel.right):
            second = axes.twinx()
            second.grid(visible=False)
            _plot(second, panel.right, records, first=drawn)
            second.set_ylabel(", ".join(panel.right.values()))
            axes.set_ylabel(", ".join(panel.left.values()))
        else:
            axes.spines.right.set_visible(False)
        if (switch := _stage_switch(records)) is not None:
            axes.axvline(switch, color=_INK, linewidth=1, linestyle=(0, (1, 2)), label="mining")
        figure.legend(loc="outside upper left", ncols=6, handlelength=2.4, columnspacing=1.2)
        return _svg(figure, label=panel.title)


def _plot(axes: Axes, curves: Mapping[str, str], records: Sequence[Record], *, first: int) -> int:
    number = first
    for key, label in curves.items():
        if points := _curve(records, key):
            x, y = zip(*points, strict=True)
            marker = "o" if len(points) <= FEW_POINTS else ""
            axes.plot(x, y, _DASHES[number], marker=marker, color=_SERIES[number], label=label)
            number += 1
    return number


def _svg(figure: Figure, *, label: str) -> str:
    """The drawing as an element that can share a page with others."""
    buffer = io.StringIO()
    unsaid = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=unsaid)
    text = buffer.getvalue().partition("<svg")[2]
    text = re.sub(r"<style.*?</style>", "", text)  # it would apply to the whole page
    text = re.sub(r'<g id="[^"]*">', "<g>", text)  # every chart would have the same ids
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)  # the page's font
    for placeholder, variable in _COLOURS.items():
        text = text.replace(placeholder, f"var({variable})")
    return f'<svg role="img" aria-label="{escape(label)}"{text}'


# --- page --------------------------------------------------------------------------------------------------

_CSS = """
:root { color-scheme: light dark; --page: #fdfdfb; --card: #ffffff; --ink: #22262b; --quiet: #5d6670;
  --rule: #dfe2e6; --series-1: #0072b2; --series-2: #c04e00; --series-3: #00835f; --series-4: #a3508a; }
@media (prefers-color-scheme: dark) { :root { --page: #15181c; --card: #1c2025; --ink: #e6e8ea;
  --quiet: #9aa4ae; --rule: #343a41; --series-1: #56b4e9; --series-2: #f2994a; --series-3: #3ccb9c;
  --series-4: #e29bc8; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 1.25rem 4rem; max-width: 72rem; background: var(--page);
  color: var(--ink); font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .25rem; }
h3 { font-size: .9rem; margin: 0 0 .4rem; }
p, ul { margin: 0 0 1rem; max-width: 42rem; }
.quiet { color: var(--quiet); }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); gap: 1rem; }
figure { margin: 0; padding: .9rem 1rem .6rem; max-width: 44rem; background: var(--card);
  border: 1px solid var(--rule); border-radius: .5rem; }
svg { display: block; width: 100%; height: auto; }
svg * { stroke-linejoin: round; }
svg text { font-family: inherit; font-variant-numeric: tabular-nums; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem 1.5rem .25rem 0; border-bottom: 1px solid var(--rule); text-align: left;
  vertical-align: top; overflow-wrap: anywhere; }
th { font-weight: 500; }
summary { cursor: pointer; }
"""


def _page(name: str, config: Mapping[str, Any], records: Sequence[Record]) -> str:
    sentences = "\n".join(f"<li>{escape(sentence)}</li>" for sentence in _summary(config, records))
    lacks = lacking("plots", what="A report with charts")
    charts = [f"<p>{escape(lacks)}</p>"] if lacks else _sections(records)
    parts = [f"<h1>{escape(name)}</h1>\n<ul>\n{sentences}\n</ul>", *charts]
    if config:
        parts.append("<h2>Settings</h2>\n" + _table(_flat(config)))
    if records:
        last = _table((key, "not finite" if value is None else value) for key, value in records[-1].items())
        parts.append(f"<details><summary><strong>Last record</strong></summary>\n{last}</details>")
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(name)} - ProViCo run</title>\n<style>{_CSS}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _sections(records: Sequence[Record]) -> Iterator[str]:
    for title, (caption, panels) in SECTIONS.items():
        figures = [
            f"<figure><h3>{escape(panel.title)}</h3>\n{chart}</figure>"
            for panel in panels
            if (chart := _draw(panel, records)) is not None
        ]
        if figures:
            yield f'<h2>{escape(title)}</h2>\n<p class="quiet">{escape(caption)}</p>'
            yield '<div class="panels">\n' + "\n".join(figures) + "\n</div>"


def _table(rows: Iterator[tuple[str, Any]]) -> str:
    cells = (f"<tr><th>{escape(key)}</th><td>{escape(str(value))}</td></tr>" for key, value in rows)
    return "<table>\n" + "\n".join(cells) + "\n</table>\n"


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
