"""Finetuning: how far the whole network gets when it learns the classes, from learnt or from random weights.

    2 random clips -> mixture -> Gaussian of its moments -> K samples -> classifier -> averaged probability

The test videos are looked at once, at the end, and decide nothing. A run is a folder:

    finetune.json    what it was started with     metrics.jsonl   one line a step
    checkpoints/     to go on from                encoder/, classifier.*   what was learnt (`Classifier`)

A second call with the same folder goes on from the newest checkpoint; one that is finished is tested again.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from provico.config import ViewSettings
from provico.config.evaluation import FinetuneSettings
from provico.data.catalog import Catalog
from provico.data.library import Library
from provico.errors import ConfigError, OutputExistsError
from provico.evaluation.accuracy import accuracies, listed
from provico.evaluation.card import make_card
from provico.evaluation.result import Result
from provico.evaluation.sets import Sets
from provico.models.checkpoint import checkpoints, load_checkpoint, save_checkpoint
from provico.models.encoder import Encoder, encoder_hash
from provico.processes import Processes, join
from provico.progress import Progress, silent
from provico.training.classifier import ENCODER_FOLDER, SETTINGS_NAME, Classifier
from provico.training.data import open_clips
from provico.training.finetune_trainer import FinetuneStep, FinetuneTrainer
from provico.training.predictions import Predictions
from provico.training.pretrain import stop_signals
from provico.training.run_log import RunLog

STARTED_WITH = "finetune.json"
KEEP_CHECKPOINTS = 2

FREE_TO_CHANGE = ("num_workers", "device", "checkpoint_every", "max_broken_share")
"""Settings that may differ when a run goes on: they do not change what is learnt."""


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
    _check(encoder, sets)
    start = _new_encoder(encoder, settings) if settings.from_scratch else encoder
    with join(settings.device) as processes:
        if processes.is_first:
            _claim(out, _started_with(start, sets.train, settings))
        processes.wait()
        return _Run(start, sets, settings, out, processes, library or Library(), announce, progress).run()


class _Run:
    """The loop and what surrounds it."""

    def __init__(
        self,
        start: Encoder,
        sets: Sets,
        settings: FinetuneSettings,
        folder: Path,
        processes: Processes,
        library: Library,
        announce: Callable[[str], None],
        progress: Progress,
    ) -> None:
        self.start, self.sets, self.settings, self.folder = start, sets, settings, folder
        self.processes, self.library = processes, library
        self.progress = progress if processes.is_first else silent
        views = ViewSettings(
            num_clips=settings.num_train_clips,
            augmentation=settings.augmentation,
            store=settings.store,
        )
        self.loader = open_clips(
            sets.train,
            start,
            views,
            processes,
            batch_size=settings.batch_size,
            seed=settings.seed,
            num_workers=settings.num_workers,
            max_broken_share=settings.max_broken_share,
            short_side=settings.short_side,
            library=library,
            announce=announce if processes.is_first else lambda text: None,
            progress=self.progress,
        )
        learner = _new_encoder(start, settings)
        learner.load_own_state_dict(start.own_state_dict())
        self.classifier = Classifier(learner, sets.train.classes, settings)
        self.trainer = FinetuneTrainer(
            self.classifier, torch.tensor(sets.train.labels), processes, steps_per_epoch=len(self.loader)
        )
        self.this_epoch: list[tuple[float, float]] = []
        """Loss and accuracy of each step of the epoch."""

    def run(self) -> Result:
        if found := checkpoints(self.folder / "checkpoints"):
            self._load(load_checkpoint(found[-1]))
        with stop_signals() as stop, self._open_log() as log:
            self._train(log, stop)
        if self.processes.is_first and not (self.folder / SETTINGS_NAME).exists():
            # What a crash may have left of an earlier attempt.
            shutil.rmtree(self.folder / ENCODER_FOLDER, ignore_errors=True)
            self.classifier.save(self.folder)
        return self._result(self._test())

    def _train(self, log: RunLog | None, stop: Callable[[], bool]) -> None:
        """Steps until the end; a signal saves what was learnt and ends them before."""
        trainer = self.trainer
        while trainer.step < trainer.num_steps:
            began = time.perf_counter()
            for batch in self.loader:
                if trainer.step % trainer.steps_per_epoch == 0:
                    self.this_epoch = []
                # All processes must do the same, or they would wait for each other for ever.
                is_empty, to_stop = self.processes.any(len(batch) == 0, stop())
                if is_empty:
                    trainer.skip_step()
                else:
                    step = trainer.train_step(batch)
                    self.this_epoch.append((step.loss, step.accuracy))
                    self._record(log, step, time.perf_counter() - began)
                began = time.perf_counter()
                if to_stop or self._is_due():
                    self._save()
                if to_stop:
                    raise KeyboardInterrupt

    def _is_due(self) -> bool:
        epoch, rest = divmod(self.trainer.step, self.trainer.steps_per_epoch)
        return rest == 0 and (epoch % self.settings.checkpoint_every == 0 or epoch == self.settings.epochs)

    def _record(self, log: RunLog | None, step: FinetuneStep, seconds: float) -> None:
        trainer = self.trainer
        record = {"step": trainer.step, "epoch": trainer.epoch} | asdict(step)
        record |= {"data/num_broken": len(self.loader.broken), "time/step_seconds": seconds}
        if log is not None:
            log.write(record)
        loss, accuracy = self._means()
        self.progress(trainer.step, trainer.num_steps, f"loss {loss:.3g}  accuracy {accuracy:.0%}")

    def _means(self) -> tuple[float, float]:
        """Of loss and accuracy over the steps of the epoch."""
        if not self.this_epoch:
            return math.nan, math.nan
        losses, accuracies = zip(*self.this_epoch, strict=True)
        return statistics.fmean(losses), statistics.fmean(accuracies)

    def _open_log(self) -> RunLog | nullcontext[None]:
        if not self.processes.is_first:
            return nullcontext(None)
        return RunLog(self.folder, keep_to_step=self.trainer.step)

    def _save(self) -> None:
        # Each process has met broken videos of its own part only.
        for broken in self.processes.gather(self.loader.broken):
            self.loader.broken.update(broken)
        if self.processes.is_first:
            state = {
                "trainer": self.trainer.state_dict(),
                "loader": self.loader.state_dict(),
                "this_epoch": self.this_epoch,
            }
            step, keep = self.trainer.step, KEEP_CHECKPOINTS
            save_checkpoint(self.folder / "checkpoints", state, step=step, keep=keep)

    def _load(self, state: dict[str, Any]) -> None:
        self.trainer.load_state_dict(state["trainer"])
        self.loader.load_state_dict(state["loader"])
        self.this_epoch = state["this_epoch"]

    def _test(self) -> Predictions:
        """What the classifier says of the test videos, which the processes share."""
        part = self.classifier.predict_part(
            self.sets.test,
            rank=self.processes.rank,
            world_size=self.processes.world_size,
            num_workers=self.processes.num_readers(self.settings.num_workers),
            library=self.library,
            progress=self.progress,
        )
        return Predictions.joined(self.processes.gather(part), self.sets.test)

    def _result(self, said: Predictions) -> Result:
        train, settings = self.sets.train, self.settings
        broken = sorted((train[number].id, error.reason) for number, error in self.loader.broken.items())
        failed = (*broken, *((video.id, reason) for video, reason in said.failed))
        loss, accuracy = self._means()
        return Result(
            card=make_card(
                "finetune",
                self.start,
                self.sets,
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
                "training loss of the last epoch": round(loss, 4),
                "training accuracy of the last epoch": round(accuracy, 4),
            },
        )


def _check(encoder: Encoder, sets: Sets) -> None:
    if encoder.config.backbone_spec.is_frozen:
        raise ConfigError(
            f"The backbone {encoder.config.backbone} is frozen, so it cannot be finetuned. Train its heads "
            "and a classifier with `provico evaluate linear --train-heads`."
        )
    if sets.is_one:
        raise ConfigError(
            "Finetuning needs test videos that it has not learnt from. Give --hold-out 0.25 to test on a "
            "quarter of the videos, or --test-data."
        )
    for catalog in (sets.train, sets.test):
        _ = catalog.labels  # says which video has none


def _new_encoder(like: Encoder, settings: FinetuneSettings) -> Encoder:
    """The same network with random weights that follow from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return Encoder(like.config)


def _started_with(start: Encoder, train: Catalog, settings: FinetuneSettings) -> dict[str, Any]:
    """All that the weights at the end depend on, as plain values."""
    videos = "\n".join(f"{video.id} {label}" for video, label in zip(train, train.labels, strict=True))
    digest = hashlib.sha256("\n".join([*train.classes, videos]).encode(errors="surrogateescape")).hexdigest()
    return {"encoder": encoder_hash(start), "training videos": digest[:16], **asdict(settings)}


def _claim(folder: Path, started_with: dict[str, Any]) -> None:
    """Make the run's folder, or see that the run in it is the same."""
    path = folder / STARTED_WITH
    if path.is_file():
        before = json.loads(path.read_text(encoding="utf-8"))
        changes = [
            f"{name} was {before.get(name)!r} and is {value!r}"
            for name, value in started_with.items()
            if name not in FREE_TO_CHANGE and before.get(name) != value
        ]
        if changes:
            raise ConfigError(
                f"{folder} holds another finetuning run: {'; '.join(changes)}. Go on with what it was "
                "started with, or choose another --out."
            )
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputExistsError(f"{folder} exists already and is not empty. Choose another --out.")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(started_with, indent=2) + "\n", encoding="utf-8")
