"""Pretraining on the collection, and whether its encoder is better, without any label.

The measure: of each video half of the clips, every second one, look for the other half among all videos. The
reciprocal rank at which it is found, averaged over the videos, is 1 if each finds itself first. An encoder
takes over if it is better at that by more than twice the standard error of the difference.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from provico.data.catalog import Catalog
from provico.errors import ConfigError, ProvicoError
from provico.models.encoder import Encoder
from provico.recipes import find_recipe
from provico.search.index import Index
from provico.training.pretrain import PretrainReport, pretrain
from provico.workspace.stages import BACKBONE, Work
from provico.workspace.status import Stage

RECIPE = "frozen"
MOST_MEASURED = 2000
"""Videos that look for their other half, at most."""
SURE = 2.0
"""How many standard errors make a difference."""


@dataclass(frozen=True)
class Measured:
    """How well halves of videos find each other."""

    reciprocal_ranks: NDArray[np.float64]
    """Of each video that looked."""

    @property
    def mean(self) -> float:
        """Over the videos."""
        return float(self.reciprocal_ranks.mean()) if len(self.reciprocal_ranks) else 0.0

    def is_surely_above(self, other: Measured) -> bool:
        """Whether it is better than another one of the same videos, beyond chance."""
        differences = self.reciprocal_ranks - other.reciprocal_ranks
        error = float(differences.std(ddof=1)) / math.sqrt(len(differences)) if len(differences) > 1 else 0.0
        return float(differences.mean()) > SURE * error if len(differences) else False


def measure(index: Index) -> Measured:
    """How well the halves of the videos of an index find each other, by the cosine of their means."""
    means = index.loaded.store.read(("clip_mean",))["clip_mean"].astype(np.float64)
    halves = [means[:, first::2].mean(axis=1) for first in (0, 1)]
    first, second = (half / np.maximum(np.linalg.norm(half, axis=1, keepdims=True), 1e-12) for half in halves)
    asked = np.arange(0, len(means), max(1, -(-len(means) // MOST_MEASURED)))
    scores = first[asked] @ second.T
    own = scores[np.arange(len(asked)), asked]
    ranks = 1 + (scores > own[:, None]).sum(axis=1)
    return Measured(1.0 / ranks)


def learn(work: Work) -> None:
    """Pretrain on the videos as they are, and let the encoder take over if it is better."""
    stage = work.status.begin("learn")
    try:
        _learn(work, stage)
    except ProvicoError as error:
        work.status.fail(stage, str(error))


def _learn(work: Work, stage: Stage) -> None:
    current = work.workspace.index
    if current is None:
        raise ConfigError("There are no videos to learn from yet.")
    index = Index.open(current, allow_import=work.allow_import)
    catalog = work.workspace.catalog()
    known = catalog.subset([row for row, video in enumerate(catalog) if video.id in index])
    before = measure(index)
    report = _pretrained(work, known, stage)
    if not report.is_finished:
        raise ConfigError("The run was stopped. Start it again to resume it.")
    encoder = Encoder.from_pretrained(report.encoder_folder, allow_import=work.allow_import)
    learnt = work.build(index, encoder, catalog)
    after = measure(learnt)
    numbers = f"{before.mean:.3f} before, {after.mean:.3f} after"
    if after.is_surely_above(before):
        work.take_over(learnt, is_learnt=True, measured=after.mean)
        work.status.status.news = (
            "The page now uses an encoder that was trained on your videos. It is better at finding the other "
            f"half of a video ({numbers}; 1 means always first)."
        )
        work.status.end(stage, f"it is better: {numbers}")
    else:
        shutil.rmtree(learnt.path, ignore_errors=True)
        work.status.status.news = (
            "Training on your videos gave no significantly better encoder, so nothing has changed. Finding "
            f"the other half of a video: {numbers} (1 means always first)."
        )
        work.status.end(stage, f"not significantly better: {numbers}")


def _pretrained(work: Work, known: Catalog, stage: Stage) -> PretrainReport:
    folder = work.workspace.path / "run"
    recipe = find_recipe(RECIPE)
    backbone = work.workspace.settings.backbone or BACKBONE
    config = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, backbone=backbone))
    progress = work.status.progress(stage)
    if (folder / "config.json").is_file():
        try:
            return pretrain(
                known, out=folder, config=config, resume=True, library=work.library, progress=progress
            )
        except ProvicoError:  # the videos are others by now
            shutil.rmtree(folder)
    return pretrain(known, out=folder, config=config, library=work.library, progress=progress)
