"""Finetuning as a protocol: how far the whole network gets when it learns the classes.

The test videos are looked at once, at the end, and decide nothing. A run that is finished is tested again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from provico.config.evaluation import FinetuneSettings
from provico.data.library import Library
from provico.errors import ConfigError
from provico.evaluation.result import Result, accuracies, listed, make_card
from provico.evaluation.sets import Sets
from provico.models.encoder import Encoder
from provico.processes import join
from provico.progress import Progress, silent
from provico.training.classifier import Predictions
from provico.training.finetune import train_classifier


def finetune(
    encoder: Encoder,
    sets: Sets,
    *,
    settings: FinetuneSettings,
    out: Path,
    library: Library | None = None,
    announce: Callable[[str], None] = lambda text: None,
    progress: Progress = silent,
) -> Result:
    """Train a copy of the encoder with a classifier on the training videos, then test it once.

    out: folder of the run; if it holds the same run already, that one goes on.
    announce: called with a sentence about each thing that takes time or was decided.
    """
    if sets.is_one:
        raise ConfigError(
            "Finetuning needs test videos that it has not learnt from. Give --hold-out 0.25 to test on a "
            "quarter of the videos, or --test-data."
        )
    _ = sets.test.labels  # says which video has none, before anything takes time
    with join(settings.device) as processes:
        learnt = train_classifier(
            encoder,
            sets.train,
            settings=settings,
            out=out,
            library=library,
            announce=announce,
            progress=progress,
        )
        # The processes share the test videos.
        part = learnt.classifier.predict_part(
            sets.test,
            rank=processes.rank,
            world_size=processes.world_size,
            num_workers=processes.num_readers(settings.num_workers),
            library=library,
            progress=progress if processes.is_first else silent,
        )
        said = Predictions.joined(processes.gather(part), sets.test)
    failed = (*learnt.broken, *((video.id, reason) for video, reason in said.failed))
    return Result(
        card=make_card(
            "finetune",
            learnt.start,
            sets,
            num_failed=len(failed),
            num_clips=settings.num_clips,
            seed=settings.seed,
            settings=asdict(settings),
            short_side=settings.short_side,
        ),
        scores=accuracies(said),
        classes=said.classes,
        predictions=listed(said),
        failed=failed,
        notes={
            "epochs": settings.epochs,
            "training loss of the last epoch": round(learnt.loss, 4),
            "training accuracy of the last epoch": round(learnt.accuracy, 4),
        },
    )
