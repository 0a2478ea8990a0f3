"""Recognition protocols: a linear classifier on a frozen encoder, or finetuning of the whole network.

The learning rate that is best on videos held out of the *training* set is used to train on all of it. The
test set is used once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from torch import Tensor

from provico.config.evaluation import FinetuneSettings, LinearSettings, check_clips
from provico.data.library import Library
from provico.embedding.features import ClipFeatures, reasons
from provico.errors import ConfigError
from provico.evaluation.result import Result, accuracies, listed, make_card
from provico.evaluation.sets import Sets, divide
from provico.models.encoder import Encoder
from provico.processes import join
from provico.progress import Progress, silent
from provico.training.classifier import Predictions, top_k_correct
from provico.training.finetune import train_classifier
from provico.training.probe import LabelledFeatures, fit, log_probabilities


def probe(
    encoder: Encoder,
    sets: Sets,
    train: ClipFeatures,
    test: ClipFeatures,
    *,
    settings: LinearSettings,
    progress: Progress = silent,
) -> Result:
    """Train and test the probe on features of both sets, which `clip_features` computes."""
    check_clips(test.features.shape[1], settings.num_train_clips)  # stored features may have fewer
    classes = sets.train.classes
    kept, held = divide(train.catalog, settings.held_out, seed=settings.seed)
    everything, tested = LabelledFeatures.of(train), LabelledFeatures.of(test)
    row_of = {video: row for row, video in enumerate(everything.ids)}
    for_fitting, for_choosing = (
        everything.rows([row_of[video.id] for video in part]) for part in (kept, held)
    )
    total = 2 * settings.epochs
    candidates = fit(
        encoder, for_fitting, len(classes), settings.learning_rates, settings, _shifted(progress, 0, total)
    )
    marks = [
        _mark(log_probabilities(candidate, for_choosing, settings), for_choosing.labels)
        for candidate in candidates
    ]
    best = max(range(len(marks)), key=lambda number: marks[number])
    rate = settings.learning_rates[best]
    (final,) = fit(
        encoder, everything, len(classes), (rate,), settings, _shifted(progress, settings.epochs, total)
    )
    said = Predictions(classes, test.catalog.videos, log_probabilities(final, tested, settings))
    failed = tuple(reasons(train.broken | test.broken).items())
    return Result(
        card=make_card(
            "linear",
            encoder,
            sets,
            num_failed=len(failed),
            num_clips=test.features.shape[1],
            seed=settings.seed,
            settings=asdict(settings),
        ),
        scores=accuracies(said),
        classes=classes,
        predictions=listed(said),
        failed=failed,
        notes={
            "learning rate": rate,
            "top-1 on held-out training videos": round(marks[best][0], 4),
            "held-out training videos": len(held),
        },
    )


def _mark(log_p: Tensor, labels: Tensor) -> tuple[float, float]:
    """The criterion for the learning rate: accuracy, then likelihood."""
    right = float(top_k_correct(log_p, labels, 1).double().mean())
    return right, float(log_p.gather(1, labels.unsqueeze(1)).mean())


def _shifted(progress: Progress, done: int, total: int) -> Progress:
    """Progress of one of several parts, reported as progress of the whole."""
    return lambda now, _, text="": progress(done + now, total, text)


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

    out: folder of the run; if it already holds the same run, that run is resumed.
    announce: called with messages about slow steps and decisions.
    """
    if sets.is_one:
        raise ConfigError(
            "Finetuning needs separate test videos. Give --hold-out 0.25 to test on a "
            "quarter of the videos, or --test-data."
        )
    _ = sets.test.labels  # fail early if a video has no label
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
