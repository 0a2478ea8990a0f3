"""Plots of a report: uncertainty over the videos, and over the time of single videos."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from provico.data.frames.video import read_frames
from provico.data.library import Library
from provico.embedding.report import UncertaintyReport
from provico.errors import VideoError

UNIT = "variance in units of the embedding"
_HEIGHT = 96  # pixels of the shorter side of a plotted frame
_NUM_BINS = 40
_MISSING = np.full((_HEIGHT, _HEIGHT, 3), 210, np.uint8)
_ROWS, _FRAMES_A_ROW = 6, 5  # of a contact sheet


def save(figure: Figure, path: Path) -> None:
    """Write a figure; the same figure gives the same bytes."""
    figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)


def write_pictures(report: UncertaintyReport, folder: Path, *, num_timelines: int) -> None:
    """histogram.png, contact_sheet.png, and timeline-NN.png for the least certain videos."""
    save(draw_histogram(report), folder / "histogram.png")
    if report.clip_seconds.isnan().any():
        return  # stored features have neither frames nor times
    save(draw_contact_sheet(report), folder / "contact_sheet.png")
    for rank, row in enumerate(report.least_certain(num_timelines), start=1):
        figure = draw_timeline(report, report.ids[row])
        save(figure, folder / f"timeline-{rank:02d}.png")


def draw_histogram(report: UncertaintyReport) -> Figure:
    """A histogram of the uncertainty of videos."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    values = report.uncertainty.double().numpy()
    edges = np.histogram_bin_edges(values, bins=min(_NUM_BINS, max(5, len(values) // 4)))
    axes.hist(values, bins=edges.tolist(), color="#4c78a8")
    axes.axvline(float(np.median(values)), color="black", linewidth=1, linestyle="--", label="median")
    axes.set_xlabel(f"uncertainty ({UNIT})")
    axes.set_ylabel("number of videos")
    axes.set_title(f"Uncertainty of {len(report):,} videos")
    axes.legend()
    return figure


def draw_timeline(report: UncertaintyReport, name: str) -> Figure:
    """The clips of one video over time: a frame of each, its uncertainty and its departure."""
    row = report.row_of(name)
    seconds = report.clip_seconds[row].double().numpy()
    middles = seconds.mean(axis=1)
    figure = Figure(figsize=(9, 6.2), layout="constrained")
    strip, clips, whole = figure.subplots(3, 1, height_ratios=[1.1, 2, 2])
    strip.imshow(np.concatenate(frames_at(report.paths[row], middles), axis=1))
    strip.set_axis_off()
    strip.set_title(f"{name}: a frame of each clip, in the order of time", fontsize="medium")
    # Separate scales: departures may be far larger than the uncertainty of clips.
    clips.bar(
        seconds[:, 0],
        report.clip_uncertainty[row].double().numpy(),
        np.maximum(seconds[:, 1] - seconds[:, 0], 1e-3),
        align="edge",
        alpha=0.55,
        color="#4c78a8",
        edgecolor="#2c4f73",
    )
    clips.set_title("Uncertainty of each clip", fontsize="medium", loc="left")
    clips.set_ylabel("uncertainty\n(variance)")
    whole.plot(middles, report.clip_departure[row].double().numpy(), color="#f58518", marker="o")
    whole.axhline(
        float(report.uncertainty[row]),
        color="black",
        linestyle="--",
        linewidth=1,
        label="uncertainty of the whole video",
    )
    whole.set_title("Departure of each clip from the video's mean", fontsize="medium", loc="left")
    whole.set_ylabel("departure\n(mean square)")
    whole.set_xlabel("time (s)")
    whole.legend(loc="best", fontsize="small")
    for axes in (clips, whole):
        axes.set_ylim(bottom=0)
        axes.set_xlim(float(seconds.min()), float(seconds.max()))
    return figure


def draw_contact_sheet(report: UncertaintyReport) -> Figure:
    """Frames of the most and the least certain videos, one row each, with their values."""
    count = min(_ROWS, len(report))
    sides = (("most certain", report.most_certain(count)), ("least certain", report.least_certain(count)))
    figure = Figure(figsize=(16, 1.1 * count + 1.2), layout="constrained")
    columns = figure.subplots(count, 2, squeeze=False)
    for side, (title, rows) in enumerate(sides):
        for place, row in enumerate(rows):
            axes = columns[place, side]
            picked = np.linspace(0, report.clip_seconds.shape[1] - 1, _FRAMES_A_ROW).round().astype(int)
            times = report.clip_seconds[row].mean(dim=1).double().numpy()[picked]
            axes.imshow(np.concatenate(frames_at(report.paths[row], times), axis=1))
            axes.set_axis_off()
            caption = (
                f"{report.ids[row]}\nuncertainty {float(report.uncertainty[row]):.3g}, disagreement "
                f"{float(report.disagreement[row]):.3g}"
            )
            axes.set_title(f"{title} videos\n{caption}" if place == 0 else caption, fontsize=7, loc="left")
    figure.suptitle(f"The most and the least certain of {len(report):,} videos ({UNIT})", fontsize="medium")
    return figure


def frames_at(path: str, seconds: Sequence[float] | NDArray[np.float64]) -> list[NDArray[np.uint8]]:
    """The frames shown at these times, of equal shape; grey ones if the file is gone or cannot be read."""
    try:
        index = Library().index(path)
        shown = np.searchsorted(index.frame_seconds, np.asarray(seconds), side="right") - 1
        frames = read_frames(path, np.clip(shown, 0, index.num_frames - 1), index=index, short_side=_HEIGHT)
    except (OSError, VideoError):
        return [_MISSING for _ in seconds]
    return list(frames)
