"""Finetuning: training the whole network as a classifier, from pretrained or random weights.

    2 random clips -> mixture -> Gaussian of its moments -> K samples -> classifier -> averaged probability

A run is a folder:

    finetune.json   the settings at its start  metrics.jsonl           one line per step
    checkpoints/    to resume from             encoder/, classifier.*  the result (`Classifier`)

A second call with the same folder resumes from the newest checkpoint; a finished run is only loaded.

Each process has the loss of the whole batch, as in pretraining, so the mean over videos stays correct if one
of them has to skip a broken video.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from provico.config import ViewSettings
from provico.config.evaluation import FinetuneSettings
from provico.config.pretraining import flag
from provico.data.catalog import Catalog
from provico.data.library import Library
from provico.data.loader import ClipBatch, ClipLoader
from provico.errors import ConfigError, UnhealthyRunError
from provico.models.encoder import Encoder, encoder_hash
from provico.models.weights import load_into
from provico.probability import gather_mixture, gather_videos, shared_parameter
from provico.processes import Processes, join, synchronise_batch_norm
from provico.progress import Progress, silent
from provico.training.classifier import (
    ENCODER_FOLDER,
    SETTINGS_NAME,
    Classifier,
    averaged_cross_entropy,
    log_mean_probability,
)
from provico.training.data import open_clips
from provico.training.descent import Descent, learning_rate_at
from provico.training.embedder import Embedder, SharedEmbedder
from provico.training.loop import LogRecord, Run, claim

STARTED_WITH = "finetune.json"
KEEP_CHECKPOINTS = 2

FREE_TO_CHANGE = ("num_workers", "device", "checkpoint_every", "max_broken_share")
"""Settings that may differ when a run is resumed: they do not affect the result."""

WARMUP_FROM = 0.01
"""The initial learning rate of a warm-up, as a share of the peak."""


@dataclass(frozen=True, eq=False)
class Finetuned:
    """The result of a run."""

    classifier: Classifier
    start: Encoder
    """The encoder that it started from, unchanged."""
    broken: tuple[tuple[str, str], ...]
    """Ids of the training videos that could not be read, with the reasons."""
    loss: float
    accuracy: float
    """Mean training accuracy over the last epoch."""


def train_classifier(
    encoder: Encoder,
    videos: Catalog,
    *,
    settings: FinetuneSettings,
    out: Path,
    library: Library | None = None,
    announce: Callable[[str], None] = lambda text: None,
    progress: Progress = silent,
) -> Finetuned:
    """Train a copy of the encoder, with a classifier on it, on labelled videos.

    out: folder of the run; if it already holds the same run, that run is resumed.
    announce: called with messages about slow steps and decisions.
    """
    if encoder.config.backbone_spec.is_frozen:
        raise ConfigError(
            f"The backbone {encoder.config.backbone} is frozen, so it cannot be finetuned. Train its heads "
            "and a classifier with `provico evaluate linear --train-heads`."
        )
    start = _new_encoder(encoder, settings) if settings.from_scratch else encoder
    started_with = _started_with(start, videos, settings)
    with join(settings.device) as processes:
        if processes.is_first:
            _claim(out, started_with)
        else:
            announce, progress = lambda text: None, silent
        processes.wait()
        return _finetune(start, videos, settings, out, processes, library or Library(), announce, progress)


def _finetune(
    start: Encoder,
    videos: Catalog,
    settings: FinetuneSettings,
    folder: Path,
    processes: Processes,
    library: Library,
    announce: Callable[[str], None],
    progress: Progress,
) -> Finetuned:
    loader = open_clips(
        videos,
        start,
        ViewSettings(
            num_clips=settings.num_train_clips,
            augmentation=settings.augmentation,
            store=settings.store,
        ),
        processes,
        batch_size=settings.batch_size,
        seed=settings.seed,
        num_workers=settings.num_workers,
        max_broken_share=settings.max_broken_share,
        short_side=settings.short_side,
        library=library,
        announce=announce,
        progress=progress,
    )
    learner = _new_encoder(start, settings)
    learner.load_own_state_dict(start.own_state_dict())
    classifier = Classifier(learner, videos.classes, settings)
    trainer = FinetuneTrainer(classifier, torch.tensor(videos.labels), processes, steps_per_epoch=len(loader))
    watcher = _FinetuneWatcher(trainer, loader)

    def is_checkpoint_due() -> bool:
        epoch, rest = divmod(trainer.step, trainer.steps_per_epoch)
        return rest == 0 and (epoch % settings.checkpoint_every == 0 or epoch == settings.epochs)

    run = Run(
        folder,
        trainer,
        loader,
        watcher,
        processes,
        is_checkpoint_due=is_checkpoint_due,
        keep_checkpoints=KEEP_CHECKPOINTS,
        announce=announce,
        progress=progress,
    )
    if run.checkpoints:
        run.resume()
    if not run.train():
        raise KeyboardInterrupt
    if processes.is_first and not (folder / SETTINGS_NAME).exists():
        # Remove remains of an earlier attempt that crashed.
        shutil.rmtree(folder / ENCODER_FOLDER, ignore_errors=True)
        classifier.save(folder)
    broken = sorted((videos[index].id, error.reason) for index, error in loader.broken.items())
    return Finetuned(classifier, start, tuple(broken), *watcher.means())


@dataclass(frozen=True)
class FinetuneStep:
    """The result of a step, over the videos of all processes."""

    loss: float
    accuracy: float
    """The accuracy on the batch, before the step."""
    gradient_norm: float
    learning_rate: float


class FinetuneTrainer(Descent):
    """The state of a run, which a checkpoint stores, and its training step.

    batch -> clip Gaussians -> those of all processes -> K samples of each video -> classifier -> SGD
    """

    def __init__(
        self, classifier: Classifier, labels: Tensor, processes: Processes, *, steps_per_epoch: int
    ) -> None:
        """Initialise; `labels` has the class of each video of the catalog."""
        self.classifier, self.settings = classifier, classifier.settings
        classifier.to(processes.device).train()
        synchronise_batch_norm(classifier.encoder.backbone, processes)
        embedder = Embedder(classifier.encoder, self.settings.precision)
        self._embedder = SharedEmbedder(embedder, processes)
        self._labels = labels.to(processes.device)
        # The match curve is not part of a classifier: it would only decay.
        parameters = [*embedder.parameters(), *classifier.linear.parameters()]
        matrices = [p for p in parameters if p.ndim > 1]
        vectors = [p for p in parameters if p.ndim <= 1]
        groups: list[dict[str, Any]] = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
        optimiser = torch.optim.SGD(
            groups,
            lr=self.settings.learning_rate,
            momentum=self.settings.momentum,
            weight_decay=self.settings.weight_decay,
        )
        super().__init__(
            optimiser,
            parameters,
            processes,
            num_steps=self.settings.epochs * steps_per_epoch,
            steps_per_epoch=steps_per_epoch,
            max_norm=self.settings.max_gradient_norm,
            precision=self.settings.precision,
            seed=self.settings.seed,
        )

    def train_step(self, batch: ClipBatch) -> FinetuneStep:
        """Train on one batch."""
        rate = self.begin_step()
        device = self.processes.device
        videos = gather_mixture(self._embedder(batch.pixels.to(device, non_blocking=True)))
        labels = self._labels[gather_videos(batch.videos.to(device))]
        samples = videos.moment_matched.sample(self.settings.num_samples, generator=self.generator)
        layer = self.classifier.linear
        logits = F.linear(
            samples / self.classifier.unit, shared_parameter(layer.weight), shared_parameter(layer.bias)
        )
        loss = averaged_cross_entropy(logits, labels)
        self.backward(loss)
        norm = self.end_step(lambda norm: self._check_finite(float(loss.detach()), norm))
        right = torch.eq(log_mean_probability(logits.detach()).argmax(dim=1), labels)
        return FinetuneStep(float(loss.detach()), float(right.double().mean()), norm, rate)

    def learning_rate(self) -> float:
        """Cosine decay, after an optional warm-up."""
        peak = self.settings.learning_rate
        return learning_rate_at(
            self.epoch,
            epochs=self.settings.epochs,
            peak=peak,
            warmup_epochs=self.settings.warmup_epochs,
            warmup_from=WARMUP_FROM * peak,
        )

    def state_dict(self) -> dict[str, Any]:
        """The full state besides settings and data, as tensors and plain values."""
        return self._descent_state() | {
            "encoder": self.classifier.encoder.own_state_dict(),
            "classifier": self.classifier.linear.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore such a state."""
        self._load_descent_state(state)
        self.classifier.encoder.load_own_state_dict(state["encoder"])
        load_into(self.classifier.linear, state["classifier"], source="the state")

    def _check_finite(self, loss: float, norm: float) -> None:
        if not math.isfinite(loss) or not (math.isfinite(norm) or self.expects_overflow):
            raise UnhealthyRunError(
                f"At step {self.step} the loss is {loss:.4g} and the norm of its gradient {norm:.4g}, but "
                f"both must be finite. Lower --learning-rate from {self.settings.learning_rate:g}, use "
                "--warmup-epochs, clip gradients with --max-gradient-norm 2, or compute with --precision "
                "fp32."
            )


class _FinetuneWatcher:
    """Logging after each step: loss and accuracy of the step and of the epoch."""

    def __init__(self, trainer: FinetuneTrainer, loader: ClipLoader) -> None:
        self.trainer, self.loader = trainer, loader
        self.this_epoch: list[tuple[int, float, float]] = []
        """Step, loss and accuracy of each step of the epoch."""

    def see(self, step: FinetuneStep, log: Callable[[LogRecord], LogRecord]) -> str:
        """Log the step."""
        trainer = self.trainer
        self.this_epoch = [*self._of_this_epoch(), (trainer.step, step.loss, step.accuracy)]
        record: LogRecord = {"step": trainer.step, "epoch": trainer.epoch}
        log(record | asdict(step) | {"data/num_broken": len(self.loader.broken)})
        loss, accuracy = self.means()
        return f"loss {loss:.3g}  accuracy {accuracy:.0%}"

    def means(self) -> tuple[float, float]:
        """Means of loss and accuracy over the steps of the epoch."""
        if not (steps := self._of_this_epoch()):
            return math.nan, math.nan
        _, losses, accuracies = zip(*steps, strict=True)
        return statistics.fmean(losses), statistics.fmean(accuracies)

    def _of_this_epoch(self) -> list[tuple[int, float, float]]:
        first = (self.trainer.step - 1) // self.trainer.steps_per_epoch * self.trainer.steps_per_epoch
        return [one for one in self.this_epoch if one[0] > first]

    def state_dict(self) -> dict[str, Any]:
        """The steps of the epoch so far."""
        return {"this_epoch": self.this_epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore such a state."""
        self.this_epoch = state["this_epoch"]


def _new_encoder(like: Encoder, settings: FinetuneSettings) -> Encoder:
    """An encoder of this kind with random weights from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return Encoder(like.config)


def _started_with(start: Encoder, videos: Catalog, settings: FinetuneSettings) -> dict[str, Any]:
    """Everything that determines the final weights, as plain values."""
    labelled = "\n".join(f"{video.id} {label}" for video, label in zip(videos, videos.labels, strict=True))
    text = "\n".join([*videos.classes, labelled])
    digest = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
    return {"encoder": encoder_hash(start), "training videos": digest[:16], **asdict(settings)}


def _claim(folder: Path, started_with: dict[str, Any]) -> None:
    """Create the run's folder, or check that it holds the same run."""
    settings = {field.name for field in fields(FinetuneSettings)}

    def changes(path: Path) -> dict[str, tuple[Any, Any]]:
        before = json.loads(path.read_text(encoding="utf-8"))
        return {
            flag(name) if name in settings else name: (before.get(name), value)
            for name, value in started_with.items()
            if name not in FREE_TO_CHANGE and before.get(name) != value
        }

    claim(
        folder,
        STARTED_WITH,
        started_with,
        resume=(folder / STARTED_WITH).is_file(),
        changes=changes,
        another_run="{folder} holds another finetuning run: {changes}. Resume with its original settings, "
        "or choose another --out.",
    )
