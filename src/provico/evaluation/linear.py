"""The linear probe as a protocol: how far a linear classifier gets on a frozen encoder.

Of several learning rates the best on videos held out of the *training* set is trained on all of it. The test
set is looked at once.
"""

from __future__ import annotations

from dataclasses import asdict

from torch import Tensor

from provico.config.evaluation import LinearSettings, check_clips
from provico.embedding.features import ClipFeatures, reasons
from provico.evaluation.result import Result, accuracies, listed, make_card
from provico.evaluation.sets import Sets, divide
from provico.models.encoder import Encoder
from provico.progress import Progress, silent
from provico.training.classifier import Predictions, top_k_correct
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
    place = {video: number for number, video in enumerate(everything.ids)}
    for_fitting, for_choosing = (
        everything.rows([place[video.id] for video in part]) for part in (kept, held)
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
    """What decides between learning rates: the share that is right, then the likelihood."""
    right = float(top_k_correct(log_p, labels, 1).double().mean())
    return right, float(log_p.gather(1, labels.unsqueeze(1)).mean())


def _shifted(progress: Progress, done: int, total: int) -> Progress:
    """The progress of one of several parts, as progress of the whole."""
    return lambda now, _, text="": progress(done + now, total, text)
