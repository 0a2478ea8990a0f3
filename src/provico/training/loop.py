"""The training loop and the folder of a run, for pretraining, finetuning and the probe.

    batches -> steps -> records in metrics.jsonl -> checkpoints, until the schedule ends or a signal arrives

A folder belongs to the run that claimed it: another run is refused, with the differences. A run resumes
exactly from its newest checkpoint, or rewinds to it if training has failed.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from provico.errors import ConfigError, OutputExistsError, UnhealthyRunError, WeightsError
from provico.files import is_partial, replace_text
from provico.models.saved import checkpoints, load_checkpoint, save_checkpoint
from provico.processes import ALONE, Processes
from provico.progress import Progress, silent
from provico.training.run_log import RunLog

MAX_REWINDS = 3
"""A run stops after this many rewinds."""


class _Sized(Protocol):
    def __len__(self) -> int: ...


Batch = TypeVar("Batch", bound=_Sized)
Seen = TypeVar("Seen", bound=_Sized, contravariant=True)
Step = TypeVar("Step")
Done = TypeVar("Done", covariant=True)
Watched = TypeVar("Watched", contravariant=True)
LogRecord = dict[str, float]


class Trains(Protocol[Seen, Done]):
    """A trainer: a network, its optimiser and its position in the schedule."""

    @property
    def step(self) -> int:
        """Steps done."""

    @property
    def num_steps(self) -> int:
        """Steps of the whole run."""

    def train_step(self, batch: Seen, /) -> Done:
        """Train on one batch."""

    def skip_step(self) -> None:
        """Skip a batch that cannot be trained on."""


def train(
    trainer: Trains[Batch, Step],
    batches: Callable[[], Iterable[Batch]],
    *,
    after_step: Callable[[Step], None],
    after_batch: Callable[[bool], None] = lambda to_stop: None,
    fewest: int = 1,
    processes: Processes = ALONE,
    stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Train until the schedule ends or `stop` returns True; return whether the end was reached.

    batches: called for each epoch.
    after_batch: called after each batch, with whether it is the last one before a stop.
    fewest: videos that a process needs to train on a batch.
    """
    while trainer.step < trainer.num_steps:
        for batch in batches():
            # All processes must take the same branch, or they would wait for each other forever.
            too_few, to_stop = processes.any(len(batch) < fewest, stop())
            if too_few:
                trainer.skip_step()
            else:
                after_step(trainer.train_step(batch))
            after_batch(to_stop)
            if to_stop or trainer.step == trainer.num_steps:
                return trainer.step == trainer.num_steps
    return True


class Resumes(Trains[Seen, Done], Protocol[Seen, Done]):
    """A trainer that can be restored from a checkpoint."""

    rate_factor: float

    def state_dict(self) -> dict[str, Any]:
        """The full state besides settings and data, as tensors and plain values."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore such a state."""


class Watcher(Protocol[Watched]):
    """Logging of one kind of training after each step, with state in the checkpoints."""

    def see(self, step: Watched, log: Callable[[LogRecord], LogRecord], /) -> str:
        """Log the step if due, and return the text of the progress bar.

        `log` writes a record, with the time since the last one, and returns it.
        """

    def state_dict(self) -> dict[str, Any]:
        """Its state, under names other than trainer, loader and rewinds."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore such a state; refused if it belongs to another run."""


class _Loader(Protocol[Done]):
    broken: dict[int, Any]
    wait_seconds: float

    def __iter__(self) -> Iterator[Done]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Run(Generic[Batch, Step]):
    """A training run in a folder, with its log, checkpoints, signals and rewinds."""

    def __init__(
        self,
        folder: Path,
        trainer: Resumes[Batch, Step],
        loader: _Loader[Batch],
        watcher: Watcher[Step],
        processes: Processes,
        *,
        is_checkpoint_due: Callable[[], bool],
        keep_checkpoints: int,
        fewest: int = 1,
        on_unhealthy: str = "stop",
        tensorboard: bool = False,
        announce: Callable[[str], None] = lambda text: None,
        progress: Progress = silent,
    ) -> None:
        """Initialise.

        fewest: videos that a process needs to train on a batch.
        on_unhealthy: stop, or rewind to the last checkpoint at half the learning rate.
        """
        self.folder, self.trainer, self.loader, self.watcher = folder, trainer, loader, watcher
        self.processes, self.announce, self.progress = processes, announce, progress
        self._is_checkpoint_due, self._keep, self._fewest = is_checkpoint_due, keep_checkpoints, fewest
        self._may_rewind, self._tensorboard = on_unhealthy == "rewind", tensorboard
        self._rewinds = 0

    @property
    def checkpoints(self) -> list[Path]:
        """The existing checkpoints, oldest first."""
        return checkpoints(self.folder / "checkpoints")

    def resume(self) -> None:
        """Restore the newest checkpoint."""
        if not self.checkpoints:
            raise WeightsError(
                f"{self.folder} has no checkpoint yet, so there is nothing to resume. Remove it and start "
                "again."
            )
        state = load_checkpoint(self.checkpoints[-1])
        self.watcher.load_state_dict(state)
        self.trainer.load_state_dict(state["trainer"])
        self.loader.load_state_dict(state["loader"])
        self._rewinds = state["rewinds"]

    def train(self) -> bool:
        """Train to the end or until a signal, which saves a checkpoint; return whether it is finished."""
        if self._may_rewind and not self.checkpoints:
            self._save()
        with stop_signals() as stop:
            while True:
                try:
                    with self._open_log() as log:
                        return self._attempt(log, stop)
                except UnhealthyRunError as error:
                    if not self._may_rewind:
                        raise
                    self._rewind(error)

    def _attempt(self, log: RunLog | None, stop: Callable[[], bool]) -> bool:
        clock = _Clock()

        def batches() -> Iterator[Batch]:
            waited = 0.0
            for batch in self.loader:
                clock.waited(self.loader.wait_seconds - waited)
                waited = self.loader.wait_seconds
                yield batch

        def write(record: LogRecord) -> LogRecord:
            record = record | clock.read()
            if log is not None:
                log.write(record)
            return record

        def after_step(step: Step) -> None:
            text = self.watcher.see(step, write)
            self.progress(self.trainer.step, self.trainer.num_steps, text)

        def after_batch(to_stop: bool) -> None:
            if to_stop or self._is_checkpoint_due():
                self._save()

        return train(
            self.trainer,
            batches,
            after_step=after_step,
            after_batch=after_batch,
            fewest=self._fewest,
            processes=self.processes,
            stop=stop,
        )

    def _open_log(self) -> RunLog | nullcontext[None]:
        if not self.processes.is_first:
            return nullcontext(None)
        return RunLog(self.folder, tensorboard=self._tensorboard, keep_to_step=self.trainer.step)

    def _save(self) -> None:
        # Each process knows only the broken videos of its own part.
        for broken in self.processes.gather(self.loader.broken):
            self.loader.broken.update(broken)
        if self.processes.is_first:
            state = {
                "trainer": self.trainer.state_dict(),
                "loader": self.loader.state_dict(),
                "rewinds": self._rewinds,
                **self.watcher.state_dict(),
            }
            save_checkpoint(self.folder / "checkpoints", state, step=self.trainer.step, keep=self._keep)

    def _rewind(self, error: UnhealthyRunError) -> None:
        """Restore the last checkpoint at half the learning rate."""
        if self._rewinds >= MAX_REWINDS:
            raise UnhealthyRunError(f"{error} The run was rewound {MAX_REWINDS} times already.") from error
        factor, rewinds = self.trainer.rate_factor, self._rewinds
        self.processes.wait()
        self.resume()
        self.trainer.rate_factor, self._rewinds = factor / 2, rewinds + 1
        self.processes.wait()
        # Overwrite it: a crash from here on must also resume at the lower rate.
        self._save()
        self.announce(
            f"{error} Rewinding to step {self.trainer.step} at {self.trainer.rate_factor:g} times the "
            "learning rate."
        )


class _Clock:
    """Seconds per step since the last reading, and the share spent waiting for data."""

    def __init__(self) -> None:
        self._began, self._waited, self._steps = time.perf_counter(), 0.0, 0

    def waited(self, seconds: float) -> None:
        self._waited += seconds
        self._steps += 1

    def read(self) -> LogRecord:
        seconds = time.perf_counter() - self._began
        record = {
            "time/step_seconds": seconds / max(1, self._steps),
            "time/data_share": min(1.0, self._waited / seconds) if seconds else 0.0,
        }
        self._began, self._waited, self._steps = time.perf_counter(), 0.0, 0
        return record


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Within this context, the first interrupt or termination sets a flag; a second one ends the process."""
    received: list[int] = []

    def receive(number: int, frame: object) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt

    signals = (signal.SIGINT, signal.SIGTERM)
    try:
        before = {number: signal.signal(number, receive) for number in signals}
    except ValueError:  # outside of the main thread Python allows no handlers
        yield lambda: False
        return
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def claim(
    folder: Path,
    name: str,
    started_with: Mapping[str, Any],
    *,
    resume: bool,
    changes: Callable[[Path], Mapping[str, tuple[Any, Any]]],
    another_run: str,
) -> None:
    """Create the folder of a run with a file of its settings, or check that it holds the same run.

    changes: the settings that differ from that file, by name, with the stored and the current value.
    another_run: the error if there are any, with placeholders {folder} and {changes}.
    """
    path = folder / name
    if resume:
        if not path.is_file():
            raise ConfigError(f"{folder} holds no run, so there is nothing to resume. Leave --resume out.")
        told = [f"{name} was {was!r} and is {now!r}" for name, (was, now) in changes(path).items()]
        if told:
            raise ConfigError(another_run.format(folder=folder, changes="; ".join(told)))
        return
    # A folder with only settings belongs to a run that was refused before its first step.
    if folder.exists() and (
        not folder.is_dir() or {one.name for one in folder.iterdir() if not is_partial(one)} - {name}
    ):
        hint = "Resume its run with --resume, or choose" if path.is_file() else "Choose"
        raise OutputExistsError(f"{folder} exists already and is not empty. {hint} another --out.")
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(path, json.dumps(started_with, indent=2) + "\n")
