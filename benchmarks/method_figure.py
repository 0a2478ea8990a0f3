"""Draw docs/images/method.svg: three videos as mixtures, and their match probabilities.

python benchmarks/method_figure.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

from provico.probability.gaussian import Gaussian
from provico.probability.matching import MatchCurve, log_match_probability
from provico.probability.mixture import Mixture

OUT = Path(__file__).resolve().parents[1] / "docs" / "images" / "method.svg"
COLOURS = ("#22475c", "#b5541c", "#3f7d4e")
NAMES = ("$V_1$", "$V_2$", "$V_3$")
NUM_CLIPS, NUM_SAMPLES = 4, 10
CURVE = MatchCurve(torch.tensor(3.0), torch.tensor(4.0))


def videos() -> Mixture:
    """Two videos of one kind, the second less certain, and one of another kind."""
    random = torch.Generator().manual_seed(3)
    centres = torch.tensor([[-1.5, 0.6], [-0.7, -0.3], [2.2, -0.1]])
    mean = centres[:, None] + 0.45 * torch.randn(3, NUM_CLIPS, 2, generator=random)
    std = torch.tensor([0.18, 0.38, 0.22])[:, None, None] * (
        0.7 + 0.6 * torch.rand(3, NUM_CLIPS, 2, generator=random)
    )
    return Mixture(Gaussian(mean, 2 * std.log()))


def draw_mixtures(axes: Axes, mixture: Mixture) -> None:
    """A clip is an ellipse of one standard deviation."""
    for colour, name, means, stds in zip(COLOURS, NAMES, mixture.clips.mean, mixture.clips.std, strict=True):
        for mean, std in zip(means.tolist(), stds.tolist(), strict=True):
            axes.add_patch(Ellipse(mean, 2 * std[0], 2 * std[1], facecolor=colour, alpha=0.25))
            axes.plot(*mean, "+", color=colour)
        top = float((means + stds)[:, 1].max())
        axes.text(float(means[:, 0].mean()), top + 0.2, name, color=colour, ha="center", fontsize=13)
    axes.set_title("Clips are Gaussians, videos are mixtures")


def draw_samples(axes: Axes, mixture: Mixture) -> None:
    """The samples of each video, and the match probabilities of pairs."""
    samples = mixture.sample_clips(NUM_SAMPLES, generator=torch.Generator().manual_seed(0)).samples
    match = log_match_probability(samples, samples, curve=CURVE).exp()
    for colour, points in zip(COLOURS, samples, strict=True):
        axes.plot(*points.T.tolist(), "o", color=colour, markersize=4)
    for row, (first, second) in enumerate(((0, 1), (1, 2), (0, 2))):
        pair = ", ".join(NAMES[video].strip("$") for video in (first, second))
        axes.text(3.2, 1.8 - 0.34 * row, f"$p(m|{pair}) = {float(match[first, second]):.2f}$", ha="right")
    axes.set_title(f"{NUM_SAMPLES} samples each are compared in pairs")


def draw_curve(axes: Axes) -> None:
    """The match probability of two samples by their distance."""
    distance = torch.linspace(0, 4, 200)
    axes.plot(distance, CURVE.logits(distance**2).sigmoid(), color=COLOURS[0])
    axes.set_xlabel("distance of two samples, $|z - z'|$")
    axes.set_title("A curve with learnt a and b")
    axes.set_ylim(0, 1)


def main() -> None:
    """Write the figure; the same bytes each time."""
    mpl.rcParams.update({"svg.hashsalt": "provico", "svg.fonttype": "path", "axes.titlesize": 11})
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.25, 1.25, 1))
    mixture = videos()
    draw_mixtures(left, mixture)
    draw_samples(middle, mixture)
    draw_curve(right)
    for axes in (left, middle):
        axes.set(xlim=(-3, 3.4), ylim=(-1.6, 2.1), xticks=[], yticks=[], aspect="equal")
    figure.savefig(OUT, metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main()
