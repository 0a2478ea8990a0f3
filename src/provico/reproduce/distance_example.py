"""The 1-D example of figure 3: closer means need not be closer distributions. Exact, without training."""

from __future__ import annotations

import math

import numpy as np
import torch

from provico.evaluation.statistics import Estimate
from provico.probability.distances import DISTANCES, Moments, Sampled
from provico.probability.gaussian import Gaussian
from provico.reproduce.bench import Bench
from provico.reproduce.experiment import Check, Experiment, ExperimentResult, Row, Size
from provico.reproduce.figures import OURS, PAPER, add_axes, new_figure

PAIRS: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "close means, narrow": ((0.0, 0.25), (1.0, 0.25)),
    "distant means, wide": ((0.0, 1.5), (2.0, 1.5)),
}
"""Mean and standard deviation of both Gaussians of each pair."""
SHOWN = {
    "Euclidean of means, squared": "squared_euclidean_means",
    "Bhattacharyya": "bhattacharyya",
    "Jeffreys / 2": "jeffreys",
    "Wasserstein-2, squared": "wasserstein2_squared",
}


def distance(name: str, first: tuple[float, float], second: tuple[float, float]) -> float:
    """One of DISTANCES between two 1-D Gaussians, given by mean and standard deviation."""
    a, b = (
        Gaussian(
            torch.tensor([[mean]], dtype=torch.float64),
            torch.tensor([[2 * math.log(std)]], dtype=torch.float64),
        )
        for mean, std in (first, second)
    )
    return float(DISTANCES[name](Sampled(a, Moments.of_gaussian(a)), Sampled(b, Moments.of_gaussian(b))))


def run(bench: Bench) -> ExperimentResult:
    """Compute the distances of both pairs, and check whether their order differs."""
    rows: list[Row] = []
    values: dict[str, dict[str, float]] = {}
    for pair, (first, second) in PAIRS.items():
        values[pair] = {label: distance(name, first, second) for label, name in SHOWN.items()}
        rows.append({"pair": pair} | {label: round(value, 4) for label, value in values[pair].items()})
    close, distant = values.values()
    rows.append({"pair": "paper", "Euclidean of means, squared": "smaller for the less similar pair"})
    checks = [
        _exact(
            "the squared distance of means is larger for the wide pair",
            distant,
            close,
            "Euclidean of means, squared",
        ),
        _exact("the Bhattacharyya distance is larger for the narrow pair", close, distant, "Bhattacharyya"),
    ]
    caption = (
        "Densities of two pairs of 1-D Gaussians. The means of the narrow pair are closer, yet its densities "
        "hardly overlap; the Bhattacharyya distance reflects that, the Euclidean distance of means does not."
    )
    figure = new_figure(caption, height=2.8)
    axes = add_axes(figure, columns=2, sharex=True)
    grid = np.linspace(-5, 7, 601)
    for axis, (pair, gaussians) in zip(axes, PAIRS.items(), strict=True):
        for (mean, std), colour in zip(gaussians, (OURS, PAPER), strict=True):
            density = np.exp(-0.5 * ((grid - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))
            axis.plot(grid, density, color=colour)
            axis.fill_between(grid, density, color=colour, alpha=0.2)
        found = values[pair]
        axis.set_title(
            f"{pair}\n|Δμ|² = {found['Euclidean of means, squared']:.3g}, BD = {found['Bhattacharyya']:.3g}",
            fontsize=9,
        )
        axis.set_xlabel("z (embedding coordinate)")
        axis.set_ylabel("Density (1 / unit of z)")
    return ExperimentResult(rows=rows, checks=checks, figure=figure, caption=caption)


def _exact(statement: str, larger: dict[str, float], smaller: dict[str, float], label: str) -> Check:
    gap = larger[label] - smaller[label]
    return Check(statement, Estimate(gap, gap, gap), unit="(exact)")


DISTANCE_EXAMPLE = Experiment(
    name="distance-example",
    title="Distance of means and distance of distributions",
    source="Figure 3",
    claim="A smaller Euclidean distance of means does not imply more similar distributions.",
    rule="Reproduced if one pair of Gaussians has the closer means and another the closer distributions.",
    sizes={"smoke": Size(), "cpu": Size(), "paper": Size()},
    run=run,
    needs_data=False,
)
