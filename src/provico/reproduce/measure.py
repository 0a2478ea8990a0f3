"""Measurements of a training run: for each test video its hits, its predicted class, its uncertainty.

Results are stored per video, not as averages, so that variants can be compared pair by pair, with intervals
over groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from provico.config import PretrainConfig
from provico.config.evaluation import FinetuneSettings, LinearSettings
from provico.data.catalog import Catalog
from provico.embedding.driver import embed_features
from provico.embedding.embeddings import Embeddings
from provico.embedding.features import ClipFeatures, clip_features
from provico.evaluation.recognition import finetune, probe
from provico.evaluation.retrieval import retrieve
from provico.evaluation.sets import Sets
from provico.evaluation.statistics import Estimate, over_groups
from provico.models.encoder import Encoder
from provico.reproduce.bench import Bench, Trained

RANKS = (1, 5, 10, 20)
METRICS = ("match", "cosine")


@dataclass(frozen=True, eq=False)
class Embedded:
    """The test videos and the gallery of a run."""

    encoder: Encoder
    queries: Embeddings
    gallery: Embeddings
    test: ClipFeatures
    train: ClipFeatures


def embed_run(bench: Bench, encoder: Encoder, sets: Sets) -> Embedded:
    """Embed both sets with the encoder of a run."""
    train, test = (_features(bench, encoder, catalog) for catalog in (sets.train, sets.test))
    gallery, queries = (
        embed_features(encoder, part.features, part.catalog, failed=part.failed) for part in (train, test)
    )
    return Embedded(encoder, queries, gallery, test, train)


def _features(bench: Bench, encoder: Encoder, catalog: Catalog) -> ClipFeatures:
    return clip_features(
        encoder,
        catalog,
        num_clips=bench.size.num_clips,
        num_workers=bench.num_workers or 0,
        library=bench.library,
        progress=bench.progress,
    )


def measured(bench: Bench, config: PretrainConfig, split: int) -> dict[str, Any]:
    """Train with these settings unless cached, and measure; lists are in the order of `ids`.

    If the run was stopped, the result has only `failure`, the reason.
    """
    trained = bench.trained(config, split)
    if not trained.is_healthy:
        return {"failure": trained.failure, "cpu_seconds": trained.cpu_seconds}
    size = bench.size
    settings = [config.to_dict(), split, size.num_clips, size.probe_epochs, size.finetune]

    def compute() -> dict[str, Any]:
        return _measure(bench, trained, config, split)

    found: dict[str, Any] = bench.once("measured", settings, bench.sets(split).test, compute)
    return found | {"failure": "", "cpu_seconds": found["cpu_seconds"] + trained.cpu_seconds}


def _measure(bench: Bench, trained: Trained, config: PretrainConfig, split: int) -> dict[str, Any]:
    sets, encoder = bench.sets(split), trained.encoder()
    run = embed_run(bench, encoder, sets)
    video = run.queries.videos
    return {
        "ids": run.queries.ids,
        "groups": [group or name for group, name in zip(run.queries.groups, run.queries.ids, strict=True)],
        "first_right": {metric: first_right(run, metric) for metric in METRICS},
        "top-1": _recognised(bench, run, sets, config, trained),
        "log_uncertainty": video.uncertainty.log().tolist(),
        "log_total_uncertainty": video.total_uncertainty.log().tolist(),
        "log_var": float(video.clips.log_var.mean()),
        "num_failed": len(run.queries.failed) + len(run.gallery.failed),
    }


def first_right(run: Embedded, metric: str) -> list[int]:
    """For each query the rank of the first video of its class, or 0 if it is not among the first 20."""
    ks = [k for k in RANKS if k <= len(run.gallery)]
    report = retrieve(run.queries, run.gallery, metric=metric, curve=run.encoder.match_curve(), ks=ks)
    found = report.right.any(dim=1)
    return torch.where(found, report.right.int().argmax(dim=1) + 1, 0).tolist()


def _recognised(
    bench: Bench, run: Embedded, sets: Sets, config: PretrainConfig, trained: Trained
) -> list[int]:
    """Whether each test video is classified correctly, by finetuning or by a probe, as the size says."""
    size = bench.size
    if not size.finetune and not size.probe_epochs:
        return []
    if size.finetune:
        settings = FinetuneSettings(seed=config.run.seed)
        result = finetune(
            run.encoder,
            sets,
            settings=settings,
            out=trained.folder / "finetune",
            library=bench.library,
            progress=bench.progress,
        )
    else:
        linear = LinearSettings(
            epochs=size.probe_epochs, num_clips=size.num_clips, seed=config.run.seed, held_out=0.25
        )
        result = probe(run.encoder, sets, run.train, run.test, settings=linear)
    right = {prediction.video: int(prediction.is_correct) for prediction in result.predictions}
    return [right[name] for name in run.queries.ids]


# --- many runs of one variant ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Variant:
    """The runs of one setting over seeds and splits; empty if all were stopped."""

    name: str
    groups: tuple[str, ...]
    runs: tuple[tuple[dict[str, Any], ...], ...]
    """The runs of each seed and split."""
    failures: tuple[str, ...]
    cpu_seconds: float

    @property
    def is_healthy(self) -> bool:
        """Whether every run was completed."""
        return not self.failures

    def recall(self, metric: str, k: int = 1) -> NDArray[np.float64]:
        """Per cent [seeds, videos]: 100 if a video of the query's class is among the k nearest."""
        ranks = self._table(lambda run: run["first_right"][metric])
        return np.where((ranks > 0) & (ranks <= k), 100.0, 0.0)

    def top1(self) -> NDArray[np.float64]:
        """Per cent [seeds, videos]: 100 if the classifier is right."""
        return 100.0 * self._table(lambda run: run["top-1"])

    def values(self, name: str) -> NDArray[np.float64]:
        """Another measurement of the runs [seeds, videos]."""
        return self._table(lambda run: run[name])

    def _table(self, of: Callable[[dict[str, Any]], list[Any]]) -> NDArray[np.float64]:
        return np.array([[value for run in runs for value in of(run)] for runs in self.runs], np.float64)

    def estimate(self, table: NDArray[np.float64]) -> Estimate:
        """The mean of such a table."""
        return over_groups(table, self.groups)


def run_variant(bench: Bench, name: str, configs: Sequence[PretrainConfig]) -> Variant:
    """Train and measure one setting: a config for each seed, on every split."""
    runs, failures, seconds = [], [], 0.0
    for config in configs:
        found = []
        for split in bench.splits:
            bench.announce(f"{name}, seed {config.run.seed}, split {split}")
            found.append(measured(bench, config, split))
        failures += [run["failure"] for run in found if run["failure"]]
        seconds += sum(run["cpu_seconds"] for run in found)
        runs.append(tuple(found))
    if failures:
        return Variant(name, (), (), tuple(failures), seconds)
    groups = tuple(group for run in runs[0] for group in run["groups"])
    return Variant(name, groups, tuple(runs), (), seconds)


def difference(better: Variant, worse: Variant, of: Callable[[Variant], NDArray[np.float64]]) -> Estimate:
    """The mean difference of such tables, video by video and seed by seed."""
    if [run["ids"] for run in better.runs[0]] != [run["ids"] for run in worse.runs[0]]:
        raise ValueError("Two variants can only be compared on the same videos.")
    return over_groups(of(better) - of(worse), better.groups)
