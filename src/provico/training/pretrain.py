"""From unlabelled videos to an encoder: `provico pretrain`, and the same in Python.

A run is a folder:

    config.json        every setting         metrics.jsonl   one line for each few steps
    checkpoints/       to go on from         report.html     its curves
    encoder/           what was learnt       bad_videos.csv  what could not be read
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import json
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from provico.config import PretrainConfig, read_config
from provico.data.catalog import Catalog, open_catalog
from provico.data.library import Library
from provico.embedding.stored import stored_spec
from provico.errors import ConfigError, OutputExistsError, UnhealthyRunError, WeightsError
from provico.models.checkpoint import checkpoints, load_checkpoint, save_checkpoint
from provico.models.encoder import CONFIG_NAME
from provico.models.export import export_encoder
from provico.models.saved import build_encoder, load_starting_point
from provico.processes import Processes, join
from provico.progress import Progress, silent
from provico.recipes import DEFAULT_RECIPE, find_recipe
from provico.training.data import TrainingData, check_views, open_training_data, settings_for
from provico.training.health import examine
from provico.training.monitor import LabelMonitor
from provico.training.objective import check_objective
from provico.training.report import write_report
from provico.training.run_log import METRICS_FILE, RunLog
from provico.training.start import start_heads
from provico.training.trainer import Step, Trainer

KEPT_CHECKPOINTS = 2
"""How many of the newest checkpoints stay."""

MAX_REWINDS = 3
"""After so many rewinds a run stops all the same."""

FREE_TO_CHANGE = ("num_workers", "device", "log_every", "checkpoint_every")
"""Settings of a run that may differ when it is resumed: they do not change what is learnt."""


@dataclass(frozen=True)
class PretrainReport:
    """What came of a run."""

    folder: Path
    num_videos: int
    num_broken: int
    num_steps: int
    """Steps done, in this and earlier sessions of the run."""
    is_finished: bool
    """Whether the schedule was run to its end; otherwise a signal stopped it, and it can be resumed."""
    seconds: float
    """Of this session."""
    last: dict[str, float]
    """The last record of the log."""

    @property
    def encoder_folder(self) -> Path:
        """Where the encoder is, once the run is finished."""
        return self.folder / "encoder"

    def summary(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        values = dataclasses.asdict(self)
        last = {name: value if math.isfinite(value) else None for name, value in self.last.items()}
        return values | {"folder": str(self.folder), "encoder": str(self.encoder_folder), "last": last}


def pretrain(
    data: Catalog | Path | str,
    *,
    out: Path | str,
    config: PretrainConfig | str = DEFAULT_RECIPE,
    resume: bool = False,
    checkpoint: Path | str | None = None,
    tensorboard: bool = False,
    library: Library | None = None,
    announce: Callable[[str], None] = lambda text: None,
    progress: Progress = silent,
) -> PretrainReport:
    """Learn an encoder from videos; no label is ever learnt from.

    config: settings, or the name of a recipe.
    resume: go on with the run in `out`; its settings must be the same.
    checkpoint: start a new run from the weights of another: an encoder folder, a run folder or a checkpoint.
    tensorboard: also write events for TensorBoard.
    announce: called with a sentence about each thing that takes time or was decided.
    """
    config = find_recipe(config) if isinstance(config, str) else config
    catalog = data if isinstance(data, Catalog) else open_catalog(Path(data))
    config = settings_for(config, catalog)
    folder = Path(out)
    check_objective(config)
    check_views(config.views)
    if resume and checkpoint is not None:
        raise ConfigError("resume goes on with a run and checkpoint starts a new one. Give one of them.")
    with join(config.run.device) as processes:
        if processes.is_first:
            _claim(folder, config, resume=resume)
        processes.wait()
        run = _Run(folder, config, catalog, processes, library or Library(), announce, progress, tensorboard)
        return run.run(resume=resume, checkpoint=None if checkpoint is None else Path(checkpoint))


class _Run:
    """The loop and what surrounds it."""

    def __init__(
        self,
        folder: Path,
        config: PretrainConfig,
        catalog: Catalog,
        processes: Processes,
        library: Library,
        announce: Callable[[str], None],
        progress: Progress,
        tensorboard: bool,
    ) -> None:
        self.folder, self.config, self.catalog, self.processes = folder, config, catalog, processes
        self.library = library
        self.announce = announce if processes.is_first else lambda text: None
        self.progress = progress if processes.is_first else silent
        self.tensorboard = tensorboard
        self.rewinds = 0
        self.last: dict[str, float] = {}

    def run(self, *, resume: bool, checkpoint: Path | None) -> PretrainReport:
        began = time.perf_counter()
        torch.manual_seed(self.config.run.seed)
        encoder = build_encoder(self.config.model, frozen=stored_spec(self.catalog))
        data = open_training_data(
            self.catalog, encoder, self.config, self.processes, self.library, self.announce, self.progress
        )
        if data.features is not None:
            start_heads(encoder, data.features)
        if checkpoint is not None:
            load_starting_point(encoder, checkpoint)
        self.data = data
        self.trainer = Trainer(
            encoder,
            self.config,
            self.processes,
            steps_per_epoch=len(data.loader),
            num_videos=len(data.catalog),
        )
        self.monitor = LabelMonitor.of(data.catalog, dim=self.config.model.dim)
        if resume:
            self._load(self._newest_checkpoint())
        elif self.config.run.on_unhealthy == "rewind":
            self._save()
        with stop_signals() as stop:
            is_finished = self._train_and_rewind(stop)
        self._finish(data, is_finished)
        return PretrainReport(
            folder=self.folder,
            num_videos=len(self.catalog),
            num_broken=len(data.broken),
            num_steps=self.trainer.step,
            is_finished=is_finished,
            seconds=time.perf_counter() - began,
            last=self.last,
        )

    def _train_and_rewind(self, stop: Callable[[], bool]) -> bool:
        while True:
            try:
                with self._open_log() as log:
                    return self._train(log, stop)
            except UnhealthyRunError as error:
                if self.config.run.on_unhealthy != "rewind":
                    raise
                self._rewind(error)

    def _train(self, log: RunLog | None, stop: Callable[[], bool]) -> bool:
        """Steps until the end, or until a signal; whether the end was reached."""
        trainer, loader = self.trainer, self.data.loader
        clock = _Clock()
        while trainer.step < trainer.num_steps:
            waited = 0.0
            for batch in loader:
                clock.waited(loader.wait_seconds - waited)
                waited = loader.wait_seconds
                # All processes must do the same, or they would wait for each other for ever.
                fewest = 2 if self.processes.world_size == 1 else 1
                too_few, to_stop = self.processes.any(len(batch) < fewest, stop())
                if too_few:
                    trainer.skip_step()
                else:
                    step = trainer.train_step(batch)
                    if self.monitor is not None:
                        self.monitor.see(step.numbers, step.videos.mean)
                    if self._is_due(self.config.run.log_every):
                        self._record(log, step, clock)
                    self._show(step)
                if to_stop or self._is_due(self.config.run.checkpoint_every):
                    self._save()
                if to_stop or trainer.step == trainer.num_steps:
                    return trainer.step == trainer.num_steps
        return True

    def _is_due(self, every: int) -> bool:
        return self.trainer.step % every == 0 or self.trainer.step == self.trainer.num_steps

    def _record(self, log: RunLog | None, step: Step, clock: _Clock) -> None:
        trainer = self.trainer
        health = examine(step.videos)
        record: dict[str, float] = {"step": trainer.step, "epoch": trainer.epoch}
        record |= {"stage": 1, "learning_rate": step.learning_rate, "loss": step.loss}
        record |= {name: float(part) for name, part in step.outcome.parts.items()}
        record |= health.record() | {"health/gradient_norm": step.gradient_norm}
        share = 0.0
        if (pairs := step.outcome.pairs) is not None:
            curve, share = trainer.encoder.match_curve(), pairs.mined_share
            record |= {"curve/a": float(curve.a.detach()), "curve/b": float(curve.b.detach())}
            record |= {"mining/num_pairs": pairs.num_mined, "mining/share": share}
            if pairs.threshold is not None:
                record |= {"stage": 2, "mining/threshold": pairs.threshold}
                if self.monitor is not None:
                    record |= self.monitor.score(pairs, step.numbers)
        if self.monitor is not None and self._crossed_an_epoch():
            record["monitor/recall_at_1"] = self.monitor.recall_at_1()
        record |= {"data/num_broken": len(self.data.broken)} | clock.read()
        self.last = record
        if log is not None:
            log.write(record)
        trainer.guard.check(trainer.step, health, share)

    def _crossed_an_epoch(self) -> bool:
        before = max(0, self.trainer.step - self.config.run.log_every)
        return self.trainer.step // self.trainer.steps_per_epoch > before // self.trainer.steps_per_epoch

    def _show(self, step: Step) -> None:
        numbers = [f"loss {step.loss:.3g}"]
        for name, key in (("s²", "health/uncertainty_median"), ("rank", "health/effective_rank")):
            if key in self.last:
                numbers.append(f"{name} {self.last[key]:.3g}")
        if step.outcome.pairs is not None and step.outcome.pairs.num_mined:
            numbers.append(f"mined {step.outcome.pairs.num_mined // 2}")
        if "monitor/recall_at_1" in self.last:
            numbers.append(f"R@1 {self.last['monitor/recall_at_1']:.0%}")
        self.progress(self.trainer.step, self.trainer.num_steps, "  ".join(numbers))

    def _open_log(self) -> RunLog | nullcontext[None]:
        if not self.processes.is_first:
            return nullcontext(None)
        return RunLog(self.folder, tensorboard=self.tensorboard, keep_to_step=self.trainer.step)

    def _state(self) -> dict[str, Any]:
        return {
            "trainer": self.trainer.state_dict(),
            "loader": self.data.loader.state_dict(),
            "monitor": None if self.monitor is None else self.monitor.state_dict(),
            "videos": fingerprint(self.catalog),
            "last": self.last,
            "rewinds": self.rewinds,
        }

    def _save(self) -> None:
        if self.processes.is_first:
            save_checkpoint(
                self.folder / "checkpoints",
                self._state(),
                step=self.trainer.step,
                keep=KEPT_CHECKPOINTS,
            )

    def _load(self, path: Path) -> None:
        state = load_checkpoint(path)
        if state["videos"] != fingerprint(self.catalog):
            raise ConfigError(
                f"The videos are not those that the run in {self.folder} was started with. Give it the same "
                "data, or start a new run from its weights with --checkpoint."
            )
        self.trainer.load_state_dict(state["trainer"])
        self.data.loader.load_state_dict(state["loader"])
        if self.monitor is not None and state["monitor"] is not None:
            self.monitor.load_state_dict(state["monitor"])
        self.last, self.rewinds = state["last"], state["rewinds"]

    def _newest_checkpoint(self) -> Path:
        found = checkpoints(self.folder / "checkpoints")
        if not found:
            raise WeightsError(
                f"{self.folder} has no checkpoint yet, so there is nothing to resume. Remove it and start "
                "again."
            )
        return found[-1]

    def _rewind(self, error: UnhealthyRunError) -> None:
        """Back to the last checkpoint, at half the learning rate."""
        if self.rewinds >= MAX_REWINDS:
            raise UnhealthyRunError(f"{error} The run was rewound {MAX_REWINDS} times already.") from error
        factor, rewinds = self.trainer.rate_factor, self.rewinds
        self.processes.wait()
        path = self._newest_checkpoint()
        self._load(path)
        self.trainer.rate_factor, self.rewinds = factor / 2, rewinds + 1
        self.processes.wait()
        # Under the same name: a crash from here on resumes at the lower rate too.
        self._save()
        self.announce(
            f"{error} Going back to step {self.trainer.step} at {self.trainer.rate_factor:g} times the "
            "learning rate."
        )

    def _finish(self, data: TrainingData, is_finished: bool) -> None:
        self.processes.wait()
        if not self.processes.is_first:
            return
        with (self.folder / "bad_videos.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["video", "reason"])
            writer.writerows(sorted((name, reason) for name, reason in data.broken.items()))
        folder = self.folder / "encoder"
        if is_finished and not folder.exists():  # a finished run that is resumed has it already
            export_encoder(self.trainer.encoder, folder)
        if (self.folder / METRICS_FILE).exists():
            write_report(self.folder)


class _Clock:
    """Seconds a step since the last reading, and the share of them spent waiting for data."""

    def __init__(self) -> None:
        self._began, self._waited, self._steps = time.perf_counter(), 0.0, 0

    def waited(self, seconds: float) -> None:
        self._waited += seconds
        self._steps += 1

    def read(self) -> dict[str, float]:
        seconds = time.perf_counter() - self._began
        record = {
            "time/step_seconds": seconds / max(1, self._steps),
            "time/data_share": min(1.0, self._waited / seconds) if seconds else 0.0,
        }
        self._began, self._waited, self._steps = time.perf_counter(), 0.0, 0
        return record


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Within it, the first interrupt or termination only raises a flag; a second one ends the process."""
    received: list[int] = []

    def receive(number: int, frame: object) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        before = {number: signal.signal(number, receive) for number in numbers}
    except ValueError:  # not in the main thread, where Python allows no handlers
        yield lambda: False
        return
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def fingerprint(catalog: Catalog) -> str:
    """Tells one list of videos from another."""
    return hashlib.sha256("\n".join(video.id for video in catalog).encode()).hexdigest()


def _claim(folder: Path, config: PretrainConfig, *, resume: bool) -> None:
    """Make the run's folder with its settings, or see that they are the same."""
    path = folder / CONFIG_NAME
    if resume:
        if not path.is_file():
            raise ConfigError(f"{folder} holds no run, so there is nothing to resume. Leave --resume out.")
        free = {f"run.{name}" for name in FREE_TO_CHANGE}
        changes = [
            f"{name} was {was!r} and is {now!r}"
            for name, (was, now) in read_config(path).differences(config).items()
            if name not in free
        ]
        if changes:
            raise ConfigError(
                f"This is not the run in {folder}: {'; '.join(changes)}. Resume with the settings it was "
                "started with, or start a new run from its weights with --checkpoint."
            )
        return
    # A folder with nothing but settings is of a run that was refused before its first step.
    if folder.exists() and (not folder.is_dir() or {path.name for path in folder.iterdir()} - {CONFIG_NAME}):
        hint = "Go on with its run with --resume, or choose" if path.is_file() else "Choose"
        raise OutputExistsError(f"{folder} exists already and is not empty. {hint} another --out.")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config.to_dict(), indent=2) + "\n", encoding="utf-8")
