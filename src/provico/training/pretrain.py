"""Pretraining of an encoder from unlabelled videos, as in `provico pretrain`.

A run is a folder:

    config.json     all settings         metrics.jsonl    one line every few steps
    checkpoints/    to resume from       report.html      its curves
    encoder/        the result           bad_videos.csv   videos that could not be read
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import torch

from provico.config import PretrainConfig, read_config
from provico.config.pretraining import flag
from provico.data.catalog import Catalog, open_catalog
from provico.data.library import Library
from provico.data.loader import ClipBatch
from provico.display import line
from provico.embedding.stored import stored_spec
from provico.errors import ConfigError
from provico.files import replace_rows
from provico.models.encoder import CONFIG_NAME
from provico.models.export import export_encoder
from provico.models.saved import build_encoder, load_starting_point
from provico.processes import Processes, join
from provico.progress import Progress, silent
from provico.recipes import DEFAULT_RECIPE, find_recipe
from provico.training.data import FeatureBatch, TrainingData, check_views, open_training_data, settings_for
from provico.training.health import Health, examine
from provico.training.loop import LogRecord, Run, claim
from provico.training.monitor import LabelMonitor
from provico.training.objective import check_objective
from provico.training.report import write_report
from provico.training.run_log import METRICS_FILE, read_metrics
from provico.training.start import start_heads
from provico.training.trainer import Step, Trainer
from provico.training.variance import learn_variance
from provico.training.views import agreed_pairs
from provico.typed_json import finite

KEPT_CHECKPOINTS = 2
"""Number of newest checkpoints that are kept."""

FREE_TO_CHANGE = ("num_workers", "device", "log_every", "checkpoint_every")
"""Settings that may differ when a run is resumed: they do not affect the result."""


@dataclass(frozen=True)
class PretrainReport:
    """The result of a run."""

    folder: Path
    num_videos: int
    num_broken: int
    num_steps: int
    """Steps done, in this and earlier sessions of the run."""
    is_finished: bool
    """Whether the schedule is complete; otherwise a signal stopped the run, and it can be resumed."""
    seconds: float
    """Duration of this session."""
    last: dict[str, float]
    """The last record of the log."""

    def _repr_html_(self) -> str:
        """The loss of the run, for notebooks."""
        records = read_metrics(self.folder / METRICS_FILE)
        losses = [loss for record in records if (loss := record.get("loss")) is not None]
        about = f"{self.folder}: {self.num_steps:,} steps on {self.num_videos:,} videos"
        if not losses:
            return f"<p>{escape(about)}</p>"
        return line(losses, caption=f"{about}; the loss went from {losses[0]:.4g} to {losses[-1]:.4g}")

    @property
    def encoder_folder(self) -> Path:
        """The folder of the encoder, once the run is finished."""
        return self.folder / "encoder"

    def summary(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        folders = {"folder": str(self.folder), "encoder": str(self.encoder_folder)}
        return dataclasses.asdict(self) | folders | {"last": finite(self.last)}


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
    """Pretrain an encoder on videos; labels are never used for training.

    config: settings, or the name of a recipe.
    resume: resume the run in `out`; its settings must be the same.
    checkpoint: start a new run from the weights of another: an encoder folder, a run folder or a checkpoint.
    tensorboard: also write events for TensorBoard.
    announce: called with messages about slow steps and decisions.
    """
    config = find_recipe(config) if isinstance(config, str) else config
    catalog = data if isinstance(data, Catalog) else open_catalog(Path(data))
    config = settings_for(config, catalog)
    folder = Path(out)
    check_objective(config)
    check_views(config.views)
    if resume and checkpoint is not None:
        raise ConfigError("resume continues a run, and checkpoint starts a new one. Give only one of them.")
    with join(config.run.device) as processes:
        if processes.is_first:
            _claim(folder, config, resume=resume)
        else:
            announce, progress = lambda text: None, silent
        processes.wait()
        return _pretrain(
            catalog,
            folder,
            config,
            processes,
            library or Library(),
            announce,
            progress,
            resume=resume,
            checkpoint=None if checkpoint is None else Path(checkpoint),
            tensorboard=tensorboard,
        )


def _pretrain(
    catalog: Catalog,
    folder: Path,
    config: PretrainConfig,
    processes: Processes,
    library: Library,
    announce: Callable[[str], None],
    progress: Progress,
    *,
    resume: bool,
    checkpoint: Path | None,
    tensorboard: bool,
) -> PretrainReport:
    """The stages of a run: encoder, data, initialisation, training, results."""
    began = time.perf_counter()
    torch.manual_seed(config.run.seed)
    encoder = build_encoder(config.model, frozen=stored_spec(catalog))
    data = open_training_data(catalog, encoder, config, processes, library, announce, progress)
    if data.features is not None:
        start_heads(encoder, data.features)
    if checkpoint is not None:
        load_starting_point(encoder, checkpoint)
    trainer = Trainer(
        encoder,
        config,
        processes,
        steps_per_epoch=len(data.loader),
        groups=[video.group for video in data.catalog],
        agreed=agreed_pairs(encoder, data, config, announce),
    )
    watcher = _PretrainWatcher(folder, trainer, data, fingerprint(catalog))
    run = Run[ClipBatch | FeatureBatch, Step](
        folder,
        trainer,
        data.loader,
        watcher,
        processes,
        is_checkpoint_due=lambda: watcher.is_due(config.run.checkpoint_every),
        keep_checkpoints=KEPT_CHECKPOINTS,
        # Pairs are of different videos: a single process needs two of them.
        fewest=2 if processes.world_size == 1 else 1,
        on_unhealthy=config.run.on_unhealthy,
        tensorboard=tensorboard,
        announce=announce,
        progress=progress,
    )
    if resume:
        run.resume()
    is_finished = run.train()
    processes.wait()
    if processes.is_first:
        # A finished run that is resumed has its encoder already.
        if is_finished and not (folder / "encoder").exists():
            announce("Fitting the variance.")
            learnt = learn_variance(
                encoder,
                data.catalog,
                features=data.features,
                seed=config.run.seed,
                num_workers=processes.num_readers(config.run.num_workers),
                max_broken_share=config.run.max_broken_share,
                library=library,
                progress=progress,
            )
            export_encoder(learnt, folder / "encoder")
        _leave(folder, data)
    return PretrainReport(
        folder=folder,
        num_videos=len(catalog),
        num_broken=len(data.broken),
        num_steps=trainer.step,
        is_finished=is_finished,
        seconds=time.perf_counter() - began,
        last=watcher.last,
    )


class _PretrainWatcher:
    """Logging after each step: losses, health, mined pairs, and label metrics if there are labels."""

    def __init__(self, folder: Path, trainer: Trainer, data: TrainingData, videos: str) -> None:
        self.folder, self.trainer, self.data, self.videos = folder, trainer, data, videos
        self.monitor = LabelMonitor.of(data.catalog, dim=trainer.config.model.dim)
        self.last: LogRecord = {}

    def is_due(self, every: int) -> bool:
        """Whether the step is a multiple of `every`, or the last."""
        return self.trainer.step % every == 0 or self.trainer.step == self.trainer.num_steps

    def see(self, step: Step, log: Callable[[LogRecord], LogRecord]) -> str:
        """Log the step if due, and stop an unhealthy run."""
        if self.monitor is not None:
            self.monitor.see(step.indices, step.videos.mean)
        if self.is_due(self.trainer.config.run.log_every):
            health = examine(step.videos)
            self.last = log(self._record(step, health))
            share = 0.0 if step.outcome.pairs is None else step.outcome.pairs.mined_share
            self.trainer.guard.check(self.trainer.step, health, share)
        return self._text(step)

    def _record(self, step: Step, health: Health) -> LogRecord:
        trainer = self.trainer
        record: LogRecord = {"step": trainer.step, "epoch": trainer.epoch}
        record |= {"stage": 1, "learning_rate": step.learning_rate, "loss": step.loss}
        record |= {name: float(part) for name, part in step.outcome.parts.items()}
        record |= health.record() | {"health/gradient_norm": step.gradient_norm}
        if (pairs := step.outcome.pairs) is not None:
            curve = trainer.encoder.match_curve()
            record |= {"curve/a": float(curve.a.detach()), "curve/b": float(curve.b.detach())}
            record |= {"mining/num_pairs": pairs.num_mined, "mining/share": pairs.mined_share}
            if trainer.estimated_precision is not None:
                record["mining/estimated_precision"] = trainer.estimated_precision
            if pairs.threshold is not None:
                record |= {"stage": 2, "mining/threshold": pairs.threshold}
                if self.monitor is not None:
                    record |= self.monitor.score(pairs, step.indices)
        if self.monitor is not None and self._crossed_an_epoch():
            record["monitor/recall_at_1"] = self.monitor.recall_at_1()
        return record | {"data/num_broken": len(self.data.broken)}

    def _crossed_an_epoch(self) -> bool:
        before = max(0, self.trainer.step - self.trainer.config.run.log_every)
        return self.trainer.step // self.trainer.steps_per_epoch > before // self.trainer.steps_per_epoch

    def _text(self, step: Step) -> str:
        words = [f"loss {step.loss:.3g}"]
        for name, key in (("s²", "health/uncertainty_median"), ("rank", "health/effective_rank")):
            if key in self.last:
                words.append(f"{name} {self.last[key]:.3g}")
        if step.outcome.pairs is not None and step.outcome.pairs.num_mined:
            words.append(f"mined {step.outcome.pairs.num_mined // 2}")
        if "monitor/recall_at_1" in self.last:
            words.append(f"R@1 {self.last['monitor/recall_at_1']:.0%}")
        return "  ".join(words)

    def state_dict(self) -> dict[str, Any]:
        """The state of the records, with a fingerprint of the videos."""
        return {
            "monitor": None if self.monitor is None else self.monitor.state_dict(),
            "videos": self.videos,
            "last": self.last,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore such a state; refused if it belongs to other videos."""
        if state["videos"] != self.videos:
            raise ConfigError(
                f"The videos differ from those that the run in {self.folder} was started with. Use the same "
                "data, or start a new run from its weights with --checkpoint."
            )
        if self.monitor is not None and state["monitor"] is not None:
            self.monitor.load_state_dict(state["monitor"])
        self.last = state["last"]


def _leave(folder: Path, data: TrainingData) -> None:
    """Write the results beside the encoder: unreadable videos and the report."""
    broken = [{"video": name, "reason": reason} for name, reason in sorted(data.broken.items())]
    replace_rows(folder / "bad_videos.csv", ("video", "reason"), broken)
    if (folder / METRICS_FILE).exists():
        write_report(folder)


def fingerprint(catalog: Catalog) -> str:
    """A hash of a list of videos."""
    return hashlib.sha256("\n".join(video.id for video in catalog).encode()).hexdigest()


def _claim(folder: Path, config: PretrainConfig, *, resume: bool) -> None:
    """Create the run's folder with its settings, or check that they are the same."""
    free = {f"run.{name}" for name in FREE_TO_CHANGE}

    def changes(path: Path) -> dict[str, tuple[Any, Any]]:
        found = read_config(path).differences(config)
        return {flag(name): change for name, change in found.items() if name not in free}

    claim(
        folder,
        CONFIG_NAME,
        config.to_dict(),
        resume=resume,
        changes=changes,
        another_run="The run in {folder} has other settings: {changes}. Resume with the settings it was "
        "started with, or start a new run from its weights with --checkpoint.",
    )
