"""The environment of experiments: the videos, the output folder, and a cache of runs.

A run is identified by a hash of everything it depends on: settings, videos, split. It is stored as soon as it
is done, so experiments share runs (the middle of one sweep is the middle of another), and an interrupted
`provico reproduce all` can be resumed.

    OUT/runs/HASH/           a training run; its encoder is kept, its checkpoints are removed
    OUT/runs/HASH.json       the measurements
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import resource
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch

from provico.config import PretrainConfig
from provico.data.catalog import Catalog
from provico.data.library import Library
from provico.errors import CatalogError, UnhealthyRunError
from provico.evaluation.sets import Sets, open_sets
from provico.models.encoder import Encoder
from provico.progress import Progress, silent
from provico.reproduce.experiment import Preset, Size, write_json
from provico.training.pretrain import pretrain
from provico.training.run_log import METRICS_FILE, Record, read_metrics

VERSION = 2
"""To be raised if the same settings give other results."""

SPLITS_OF = {"ucf101": 3, "hmdb51": 3}
"""Number of official splits of a layout; others have one."""

Announce = Callable[[str], None]


@dataclass(frozen=True)
class Trained:
    """A training run that has ended, successfully or not."""

    folder: Path
    failure: str
    """Why it was stopped; empty if it is complete."""
    cpu_seconds: float

    @property
    def is_healthy(self) -> bool:
        """Whether the run succeeded and has an encoder."""
        return not self.failure

    def encoder(self) -> Encoder:
        """The trained encoder, in evaluation mode."""
        return Encoder.from_pretrained(self.folder / "encoder")

    def metrics(self) -> list[Record]:
        """The records of its log."""
        return read_metrics(self.folder / METRICS_FILE)


class Bench:
    """The argument of an experiment's function."""

    def __init__(
        self,
        data: Path,
        out: Path,
        *,
        preset: Preset,
        size: Size,
        library: Library | None = None,
        announce: Announce = lambda text: None,
        progress: Progress = silent,
    ) -> None:
        self.data, self.out, self.preset, self.size = data, out, preset, size
        self.library = library or Library()
        self.announce, self.progress = announce, progress

    @cached_property
    def is_demo_set(self) -> bool:
        """Whether the videos are the generated demo set, whose ground truth is known."""
        return (self.data / "ground_truth.csv").is_file()

    @cached_property
    def splits(self) -> tuple[int, ...]:
        """The splits to run: those requested that exist."""
        layout = self.sets(1).test.layout
        return tuple(split for split in self.size.splits if split <= SPLITS_OF.get(layout, 1))

    def sets(self, split: int) -> Sets:
        """Training and test videos; without a test set, a quarter is held out by groups."""
        return _sets(self.data, split)

    @property
    def num_workers(self) -> int | None:
        """Processes that read videos; none for runs that take a second."""
        return 0 if self.preset == "smoke" else None

    def key(self, kind: str, settings: Any, videos: Catalog | None = None) -> str:
        """The hash of everything that a run depends on."""
        values = {"version": VERSION, "kind": kind, "settings": settings}
        if videos is not None:
            # File sizes, too: a demo set may be regenerated under the same names.
            values["videos"] = [(video.id, video.path.stat().st_size) for video in videos]
        digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
        return f"{kind}-{digest[:16]}"

    def once(self, kind: str, settings: Any, videos: Catalog, compute: Callable[[], Any]) -> Any:
        """The result of `compute`, as plain values, from the cache of runs if available.

        Its CPU time is added as `cpu_seconds`.
        """
        path = self.out / "runs" / f"{self.key(kind, settings, videos)}.json"
        if not path.is_file():
            began = cpu_seconds()
            value = compute()
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, value | {"cpu_seconds": cpu_seconds() - began})
        return json.loads(path.read_text(encoding="utf-8"))

    def trained(self, config: PretrainConfig, split: int) -> Trained:
        """The run with these settings on the training videos of a split; trained now unless cached."""
        videos = self.sets(split).train
        settings = dataclasses.replace(config, run=dataclasses.replace(config.run, num_workers=None))
        name = self.key("run", settings.to_dict(), videos)
        folder, outcome = self.out / "runs" / name, self.out / "runs" / f"{name}.json"
        if not outcome.is_file():
            self._train(folder, config, videos, outcome)
        ended = json.loads(outcome.read_text(encoding="utf-8"))
        return Trained(folder, ended["failure"], ended["cpu_seconds"])

    def _train(self, folder: Path, config: PretrainConfig, videos: Catalog, outcome: Path) -> None:
        resume = any((folder / "checkpoints").glob("*"))
        if not resume:
            shutil.rmtree(folder, ignore_errors=True)
        run = dataclasses.replace(config.run, num_workers=self.num_workers)
        began, failure = cpu_seconds(), ""
        try:
            report = pretrain(
                videos,
                out=folder,
                config=dataclasses.replace(config, run=run),
                resume=resume,
                library=self.library,
                progress=self.progress,
            )
            if not report.is_finished:  # stopped by a signal; the same command resumes from its checkpoint
                raise KeyboardInterrupt
        except UnhealthyRunError as error:
            failure = str(error)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        write_json(outcome, {"failure": failure, "cpu_seconds": cpu_seconds() - began})


@cache
def _sets(data: Path, split: int) -> Sets:
    try:
        return open_sets(data, split=split)
    except CatalogError:
        return open_sets(data, hold_out=0.25)


def cpu_seconds() -> float:
    """CPU time of this process and of its finished children."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def seeded(seed: int) -> torch.Generator:
    """A torch generator with this seed."""
    return torch.Generator().manual_seed(seed)
