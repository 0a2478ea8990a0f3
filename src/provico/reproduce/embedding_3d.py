"""Embeddings in three dimensions for five weights of the KL term (figure A2).

Two more layers, on top of both heads, give Gaussians in 3-D, on which the loss is computed. Nothing is mined,
so that only beta varies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

from provico.config import PretrainConfig
from provico.data.catalog import Catalog, open_catalog
from provico.evaluation.statistics import Estimate, over_runs
from provico.models.encoder import Encoder
from provico.models.heads import LowDimProjection, MatchScale
from provico.models.saved import build_encoder
from provico.probability.mixture import Mixture
from provico.processes import join
from provico.reproduce.bench import Bench, seeded
from provico.reproduce.experiment import Check, Experiment, ExperimentResult, Row, Size
from provico.reproduce.figures import new_figure
from provico.reproduce.settings import changed, starting_point
from provico.training.data import FeatureBatch, TrainingData, open_training_data
from provico.training.descent import learning_rate_at
from provico.training.objective import StepContext, find_objective
from provico.training.start import start_heads
from provico.training.trainer import MAX_GRADIENT_NORM

BETAS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
DIM = 3
LEARNING_RATE = 3e-3
NUM_POINTS = 3
"""Plotted samples per video."""


class LowDimEncoder(nn.Module):
    """An encoder with two more layers, whose match curve is for three dimensions too."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        scale = encoder.config.scale
        self.encoder = encoder
        self.projection = LowDimProjection(encoder.config.dim, DIM, parametrisation=scale)
        self.match_scale = MatchScale(DIM, parametrisation=scale)

    def forward(self, batch: Any) -> Mixture:
        """The videos of a batch, of clips or of stored features, as mixtures in 3-D."""
        device = self.encoder.device
        if isinstance(batch, FeatureBatch):
            videos = self.encoder.from_features(batch.features.to(device))
        else:
            videos = self.encoder(batch.pixels.to(device))
        return Mixture(self.projection(videos.clips))


def learn(bench: Bench, config: PretrainConfig, catalog: Catalog) -> dict[str, Any]:
    """Train in 3-D; return the points of every video, their class, and the final variances."""
    torch.manual_seed(config.run.seed)
    encoder = build_encoder(config.model)
    settings, objective = config.optimiser, find_objective(config.objective.method)
    with join("auto") as processes:
        data = open_training_data(
            catalog, encoder, config, processes, bench.library, bench.announce, bench.progress
        )
    if data.features is not None:
        start_heads(encoder, data.features)
    network = LowDimEncoder(encoder).to(processes.device).train()
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    optimiser = torch.optim.Adam(weights, lr=settings.learning_rate)
    num_steps = settings.epochs * len(data.loader)
    if settings.max_steps is not None:
        num_steps = min(num_steps, settings.max_steps)
    generator, step = seeded(config.run.seed), 0
    while step < num_steps:
        for batch in data.loader:
            if len(batch) < 2 or step == num_steps:
                continue
            for group in optimiser.param_groups:
                group["lr"] = learning_rate_at(
                    step,
                    epochs=num_steps,
                    peak=settings.learning_rate,
                    warmup_epochs=num_steps / 10,
                    warmup_from=1e-5,
                )
            context = StepContext(
                settings=config.objective,
                mining=config.mining,
                curve=network.match_scale(),
                epoch=0,
                generator=generator,
                indices=batch.videos,
            )
            outcome = objective.loss(network(batch), context)
            optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(outcome.loss)
            nn.utils.clip_grad_norm_(weights, MAX_GRADIENT_NORM)
            optimiser.step()
            step += 1
    return _look(network.eval(), data, generator)


@torch.no_grad()
def _look(network: LowDimEncoder, data: TrainingData, generator: torch.Generator) -> dict[str, Any]:
    points, labels, log_vars = [], [], []
    for batch in data.loader:
        video = network(batch).moment_matched
        points += video.sample(NUM_POINTS, generator=generator).tolist()
        log_vars += video.log_uncertainty.tolist()
        labels += [data.catalog[number].label for number in batch.videos.tolist()]
    return {"points": np.round(points, 3).tolist(), "labels": labels, "log_uncertainty": log_vars}


def run(bench: Bench) -> ExperimentResult:
    """Train with five betas and several seeds; the plots show the first seed."""
    catalog = (
        open_catalog(bench.data, split=bench.splits, subset="train")
        if len(bench.splits) > 1
        else (bench.sets(bench.splits[0]).train)
    )
    runs: dict[float, list[dict[str, Any]]] = {}
    for beta in BETAS:
        for seed in bench.size.seeds:
            bench.announce(f"beta = {beta:g}, seed {seed}")
            config = changed(
                starting_point(bench, seed=seed),
                objective={"kl_weight": beta, "mean_contrast": 0.0},
                mining={"mine_from": None},
            )
            if bench.size.recipe == "frozen":
                # The recipe's small rate preserves good axes; these two layers start from random ones.
                config = changed(config, optimiser={"learning_rate": LEARNING_RATE})

            def compute(config: PretrainConfig = config) -> dict[str, Any]:
                return learn(bench, config, catalog)

            runs.setdefault(beta, []).append(bench.once("3d", config.to_dict(), catalog, compute))
    medians = {
        beta: [float(np.median(found["log_uncertainty"])) for found in each] for beta, each in runs.items()
    }
    caption = (
        f"Samples of the 3-D embeddings of {len(catalog)} training videos, {NUM_POINTS} of each, for five "
        "weights beta of the KL term; a colour for each class; axes in units of the prior's standard "
        "deviation. Titles give the median variance of a video."
    )
    rows: list[Row] = [
        {
            "beta": beta,
            "median variance": ", ".join(f"{np.exp(value):.3g}" for value in values),
            "mean log variance": round(float(np.mean(values)), 3),
            "paper": {1e-6: "like points", 1e-2: "near the unit Gaussian"}.get(beta, "between"),
        }
        for beta, values in medians.items()
    ]
    return ExperimentResult(
        rows=rows,
        checks=_checks(medians),
        figure=_draw(runs, medians, caption),
        caption=caption,
        seeds=bench.size.seeds,
        splits=bench.splits,
        cpu_seconds=sum(found["cpu_seconds"] for each in runs.values() for found in each),
    )


def _checks(medians: Mapping[float, list[float]]) -> list[Check]:
    smallest, largest = medians[BETAS[0]], medians[BETAS[-1]]
    growth = over_runs([high - low for low, high in zip(smallest, largest, strict=True)])
    distance = over_runs([abs(low) - abs(high) for low, high in zip(smallest, largest, strict=True)])
    final = over_runs(largest)
    near_unit = None
    if final is not None:
        # Within a factor of two of the prior's variance.
        room = np.log(2) - max(abs(final.low), abs(final.high))
        near_unit = Estimate(float(np.log(2) - abs(final.value)), float(room), float(np.log(2)))
    obstacle, unit = "one seed gives no interval", "(difference of logarithms)"
    return [
        Check("the variance at beta = 1e-2 is above that at 1e-6", growth, unit=unit, obstacle=obstacle),
        Check("at 1e-2 it is nearer to one than at 1e-6", distance, unit=unit, obstacle=obstacle),
        Check(
            "at 1e-2 it is within a factor of two of one",
            near_unit,
            unit="(room, logarithm)",
            obstacle=obstacle,
        ),
    ]


def _draw(
    runs: Mapping[float, list[dict[str, Any]]], medians: Mapping[float, list[float]], caption: str
) -> Figure:
    figure = new_figure(caption, width=12.0, height=3.0)
    for number, (beta, each) in enumerate(runs.items(), start=1):
        axis = figure.add_subplot(1, len(runs), number, projection="3d")
        points, labels = np.array(each[0]["points"]), np.array(each[0]["labels"])
        for place, label in enumerate(sorted(set(labels.tolist()))):
            cloud = points[labels == label].reshape(-1, DIM)
            axis.scatter(*cloud.T, s=2, color=f"C{place % 10}", alpha=0.6)
        axis.set_title(f"β = {beta:g}\nσ² = {np.exp(medians[beta][0]):.2g}", fontsize=9)
        axis.set_xlabel("z₁ (σ of prior)", fontsize=7, labelpad=-6)
        axis.set_ylabel("z₂", fontsize=7, labelpad=-6)
        axis.set_zlabel("z₃", fontsize=7, labelpad=-8)
        axis.tick_params(labelsize=6, pad=-2)
        axis.locator_params(nbins=4)
        axis.set_box_aspect(None, zoom=0.9)  # room for the third label
    return figure


EMBEDDING_3D = Experiment(
    name="embedding-3d",
    title="The KL term seen in three dimensions",
    source="Figure A2 (appendix E.1)",
    claim="With a small beta embeddings are like points; with a large one they approach the unit Gaussian.",
    rule="Reproduced if the median variance at 1e-2 exceeds that at 1e-6 and is nearer to one, with whole "
    "95 % intervals over seeds, and is within a factor of two of one.",
    sizes={
        "smoke": Size(recipe="frozen", max_steps=3, num_stored=4, is_evidence=False),
        "cpu": Size(recipe="frozen", max_steps=100, seeds=(0, 1, 2), splits=(1, 2, 3)),
        "paper": Size(recipe="paper", backbone="r2plus1d18", seeds=(0, 1, 2), splits=(1, 2, 3)),
    },
    run=run,
)
