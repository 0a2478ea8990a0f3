"""Uncertainty against performance: over training, and from video to video (figure 4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from provico.evaluation.statistics import NUM_RESAMPLES, Estimate, over_runs
from provico.metrics import r_auroc
from provico.reproduce.bench import Bench
from provico.reproduce.experiment import Check, Experiment, ExperimentResult, Row, Size
from provico.reproduce.figures import OURS, PAPER, add_axes, new_figure
from provico.reproduce.measure import run_variant
from provico.reproduce.settings import starting_point

NUM_BINS = 10
COLUMNS = ("health/uncertainty_median", "monitor/recall_at_1")


def run_over_training(bench: Bench) -> ExperimentResult:
    """The logged curves of runs: median uncertainty of the training videos, and R@1 among them."""
    curves: list[NDArray[np.float64]] = []
    seconds, failures = 0.0, []
    for seed in bench.size.seeds:
        for split in bench.splits:
            bench.announce(f"seed {seed}, split {split}")
            trained = bench.trained(starting_point(bench, seed=seed), split)
            seconds += trained.cpu_seconds
            if not trained.is_healthy:
                failures.append(trained.failure)
                continue
            records = [
                [record["epoch"], record[COLUMNS[0]], record[COLUMNS[1]]]
                for record in trained.metrics()
                if all(record.get(name) is not None for name in COLUMNS)
            ]
            curves.append(np.array(records, np.float64).reshape(-1, 3))
    caption = (
        "Median uncertainty of the training videos of a batch (left axis, geometric mean of variances, "
        "logarithmic) and share of training videos whose nearest neighbour of another recording has their "
        f"class (right axis), against the epoch; splits {', '.join(map(str, bench.splits))}, one line per "
        "run."
    )
    figure = new_figure(caption)
    (axis,) = add_axes(figure)
    right = axis.twinx()
    for curve in curves:
        axis.plot(curve[:, 0], curve[:, 1], "-", color=OURS, alpha=0.8)
        right.plot(curve[:, 0], 100 * curve[:, 2], "--", color=PAPER, alpha=0.8)
    if curves:
        axis.set_yscale("log")
    axis.set_xlabel("Epoch")
    axis.set_ylabel("Uncertainty (variance)", color=OURS)
    right.set_ylabel("R@1 among training videos (%)", color=PAPER)
    long_enough = [curve for curve in curves if len(curve) >= 3]
    return ExperimentResult(
        rows=_curve_rows(curves),
        checks=_curve_checks(long_enough),
        figure=figure,
        caption=caption,
        seeds=bench.size.seeds,
        splits=bench.splits,
        cpu_seconds=seconds,
        obstacle=f"training was stopped: {failures[0]}" if failures else "",
        notes=("Measured during training, on its clips, without a pass over the whole set.",),
    )


def _curve_rows(curves: Sequence[NDArray[np.float64]]) -> list[Row]:
    return [
        {
            "run": number,
            "epoch": round(float(epoch), 2),
            "uncertainty": float(f"{uncertainty:.5g}"),
            "R@1": round(100 * float(recall), 2),
            "paper": "uncertainty falls as R@1 rises (figure without numbers)" if row == 0 else None,
        }
        for number, curve in enumerate(curves, start=1)
        for row, (epoch, uncertainty, recall) in enumerate(curve)
    ]


def _curve_checks(curves: Sequence[NDArray[np.float64]]) -> list[Check]:
    obstacle = f"there are {len(curves)} runs with three points or more, and two are needed"
    thirds = [max(1, len(curve) // 3) for curve in curves]
    fall = [
        math.log(curve[:third, 1].mean() / curve[-third:, 1].mean())
        for curve, third in zip(curves, thirds, strict=True)
    ]
    rise = [
        100 * float(curve[-third:, 2].mean() - curve[:third, 2].mean())
        for curve, third in zip(curves, thirds, strict=True)
    ]
    against = [-rank_correlation(curve[:, 1], curve[:, 2]) for curve in curves]
    return [
        Check(
            "the uncertainty falls from the first to the last third of training",
            over_runs(fall),
            unit="(difference of logarithms)",
            obstacle=obstacle,
        ),
        Check("R@1 rises", over_runs(rise), obstacle=obstacle),
        Check(
            "the two are negatively correlated",
            over_runs(against) if not any(map(math.isnan, against)) else None,
            unit="(minus the rank correlation)",
            obstacle=obstacle,
        ),
    ]


def run_bins(bench: Bench) -> ExperimentResult:
    """Top-1 retrieval of test videos in ten bins of their uncertainty, of equal width and of equal count."""
    configs = [starting_point(bench, seed=seed) for seed in bench.size.seeds]
    variant = run_variant(bench, "ProViCo", configs)
    caption = (
        f"Test videos that find their class first (R@1, match probability, per cent) in {NUM_BINS} bins of "
        "their uncertainty (logarithm of the geometric mean of variances): bins of equal width (left) and of "
        f"equal count (right); areas are numbers of videos; splits {', '.join(map(str, bench.splits))}, "
        f"{len(bench.size.seeds)} seed(s)."
    )
    figure = new_figure(caption, width=7.2, height=3.2)
    axes = add_axes(figure, columns=2, sharey=True)
    for axis, kind in zip(axes, ("equal width", "equal count"), strict=True):
        axis.set_xlabel(f"Log uncertainty ({kind})")
        axis.set_ylabel("R@1 (%)")
        axis.set_ylim(-3, 103)
    if not variant.is_healthy:
        return ExperimentResult(
            rows=(),
            checks=(),
            figure=figure,
            caption=caption,
            obstacle=f"training was stopped: {variant.failures[0]}",
        )
    doubt, total = (
        _within_runs(variant.values(name), variant.runs)
        for name in ("log_uncertainty", "log_total_uncertainty")
    )
    right = variant.recall("match") / 100
    rows: list[Row] = []
    for axis, kind in zip(axes, ("equal width", "equal count"), strict=True):
        bins = binned(doubt.ravel(), right.ravel(), kind)
        for number, (middle, share, count) in enumerate(bins, start=1):
            rows.append(
                {
                    "bins": kind,
                    "bin": number,
                    "log uncertainty": round(middle, 3),
                    "R@1": round(100 * share, 1) if count else None,
                    "videos": count,
                    "paper": "falls (figure without numbers)" if number == 1 else None,
                }
            )
        filled = [(middle, 100 * share, count) for middle, share, count in bins if count]
        middles, shares, counts = (np.array(column) for column in zip(*filled, strict=True))
        axis.scatter(middles, shares, s=4 + counts, color=OURS)
    return ExperimentResult(
        rows=rows,
        checks=[predicts_errors(doubt, right, variant.groups)],
        figure=figure,
        caption=caption,
        seeds=bench.size.seeds,
        splits=bench.splits,
        cpu_seconds=variant.cpu_seconds,
        notes=(
            "Each run's log uncertainties are centred, since runs of several splits are plotted together.",
            f"The uncertainty that users see has AUROC {_auroc(doubt, right):.3f} for errors; the "
            f"paper's, which adds the spread of the clips, {_auroc(total, right):.3f}.",
        ),
    )


def _within_runs(values: NDArray[np.float64], runs: Any) -> NDArray[np.float64]:
    """Values centred per run: runs may differ in scale, which says nothing about a video."""
    out = values.copy()
    for row, splits in zip(out, runs, strict=True):
        start = 0
        for run in splits:
            part = slice(start, start + len(run["ids"]))
            row[part] -= row[part].mean()
            start = part.stop
    return out


def binned(
    doubt: NDArray[np.float64], right: NDArray[np.float64], kind: str
) -> list[tuple[float, float, int]]:
    """Centre, accuracy and number of videos of each bin."""
    if kind == "equal width":
        edges = np.linspace(doubt.min(), doubt.max(), NUM_BINS + 1)
        bin_of = np.clip(np.searchsorted(edges, doubt, side="right") - 1, 0, NUM_BINS - 1)
        middles = (edges[:-1] + edges[1:]) / 2
    else:
        bin_of = doubt.argsort(kind="stable").argsort(kind="stable") * NUM_BINS // len(doubt)
        middles = np.array(
            [
                doubt[bin_of == number].mean() if (bin_of == number).any() else 0.0
                for number in range(NUM_BINS)
            ]
        )
    return [
        (
            float(middles[number]),
            float(right[bin_of == number].mean()) if (bin_of == number).any() else math.nan,
            int((bin_of == number).sum()),
        )
        for number in range(NUM_BINS)
    ]


def predicts_errors(doubt: NDArray[np.float64], right: NDArray[np.float64], groups: Sequence[str]) -> Check:
    """Check whether errors are more uncertain than correct answers: AUROC above 1/2, by group."""
    statement = "a wrong video is more uncertain than a right one (AUROC above 1/2)"
    value = _auroc(doubt, right)
    if math.isnan(value):
        return Check(statement, None, obstacle="all test videos are right, or all wrong")
    member = np.unique(np.asarray(groups), return_inverse=True)[1]
    columns = [np.flatnonzero(member == number) for number in range(member.max() + 1)]
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(NUM_RESAMPLES // 4):
        videos = np.concatenate([columns[n] for n in rng.integers(len(columns), size=len(columns))])
        seeds = rng.integers(len(doubt), size=len(doubt))
        drawn.append(_auroc(doubt[seeds][:, videos], right[seeds][:, videos]))
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return Check(statement, Estimate(value - 0.5, float(low) - 0.5, float(high) - 0.5), unit="above 1/2")


def rank_correlation(first: ArrayLike, second: ArrayLike) -> float:
    """Spearman's rank correlation; nan if one input is constant."""
    ranks = [_ranks(np.asarray(values, np.float64)) for values in (first, second)]
    centred = [rank - rank.mean() for rank in ranks]
    norm = math.sqrt(float(np.square(centred[0]).sum() * np.square(centred[1]).sum()))
    return float((centred[0] * centred[1]).sum() / norm) if norm else math.nan


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks; ties get their mean rank."""
    _, inverse, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[inverse]


def _auroc(doubt: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    return r_auroc(torch.from_numpy(doubt.ravel().copy()), torch.from_numpy(right.ravel() > 0))


OVER_TRAINING = Experiment(
    name="uncertainty-over-training",
    title="Uncertainty and retrieval over training",
    source="Figure 4, left",
    claim="As training goes on, the uncertainty of videos falls and retrieval improves.",
    rule="Reproduced if the uncertainty falls, R@1 rises, and their rank correlation is negative, each with "
    "the whole 95 % interval over runs.",
    sizes={
        "smoke": Size(recipe="scratch", epochs=2, is_evidence=False),
        "cpu": Size(recipe="scratch", splits=(1, 2, 3)),
        "paper": Size(recipe="paper", seeds=(0, 1, 2)),
    },
    run=run_over_training,
)
BINS = Experiment(
    name="uncertainty-bins",
    title="Retrieval of more and less certain videos",
    source="Figure 4, right",
    claim="The more uncertain a test video is, the less often its nearest neighbour has its class.",
    rule="Reproduced if the AUROC of uncertainty for errors exceeds 1/2 with the whole 95 % interval over "
    "groups.",
    sizes={
        "smoke": Size(recipe="scratch", epochs=2, num_clips=4, probe_epochs=0, is_evidence=False),
        "cpu": Size(recipe="scratch", splits=(1, 2, 3), num_clips=4, probe_epochs=0),
        "paper": Size(recipe="paper", splits=(1, 2, 3), probe_epochs=0),
    },
    run=run_bins,
)
