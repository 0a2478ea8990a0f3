"""The process that does the work of a collection, beside the one that serves the page.

It is told words: `update` when files were moved, `learn` when somebody asks for it. It ends when the page
does, however that ends; what was committed stays.
"""

from __future__ import annotations

import json
import logging
import queue
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from provico.data.child_process import Companion, hear
from provico.data.memory import limit_this_process
from provico.files import Lock, is_disk_full
from provico.workspace.folder import DISK_FULL, Workspace, why_not
from provico.workspace.status import Status, StatusWriter

LOG_NAME = "worker.log"
NO_ROOM = 28
"""How a worker ends that cannot even write down what hinders it."""
SECONDS_BETWEEN_LISTINGS = 5.0
"""How often it is looked for new files, while the folder is watched."""
SECONDS_BETWEEN_FAR_LISTINGS = 60.0
"""How often, if they lie on an object store, which counts how often it is asked."""
FIRST_STAGES = ("list", "read", "propose", "fit", "duplicates", "trim")
log = logging.getLogger("provico.workspace")


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """What a worker is told at its start."""

    learn: bool = False
    watch: bool = False
    allow_import: bool = False


class Worker:
    """The worker of a collection, as the server sees it."""

    def __init__(self, workspace: Workspace, options: WorkerOptions) -> None:
        self._workspace, self._options = workspace, options
        self._companion: Companion | None = None
        self._why_not: str | None = None
        self._num_told = 0

    def start(self) -> None:
        """Start it, if it is not at work. Where the disk is full the page opens all the same, and says so."""
        if self._companion is not None and self._companion.is_running:
            return
        self._companion = self._why_not = None
        self._num_told = 0
        try:
            self._start()
        except OSError as error:
            if not is_disk_full(error):
                raise
            self._why_not = DISK_FULL

    def _start(self) -> None:
        (self._workspace.path / LOG_NAME).unlink(missing_ok=True)
        StatusWriter(
            self._workspace.path, stages=first_stages(self._workspace), is_watching=self._options.watch
        )
        self._companion = Companion(
            "provico.workspace.worker:main",
            str(self._workspace.path),
            json.dumps(asdict(self._options)),
            log=self._workspace.path / LOG_NAME,
        )

    @property
    def has_started(self) -> bool:
        """Whether it was ever started, or could not be."""
        return self._companion is not None or self._why_not is not None

    def tell(self, word: str) -> None:
        """Tell it something; one that has ended is started again."""
        if self._companion is None or not self._companion.is_running:
            self._options = WorkerOptions(**asdict(self._options) | {"learn": word == "learn"})
            self.start()
        else:
            self._num_told += 1
            self._companion.tell(word)

    def status(self) -> Status:
        """What it does."""
        status = Status.read(self._workspace.path)
        companion = self._companion
        if companion is not None and companion.is_running:
            if status.num_heard < self._num_told:  # it is about to begin
                status.is_working, status.problem = True, None
            return status
        problem = self._why_not
        if companion is not None and companion.exit_status == NO_ROOM:
            problem = DISK_FULL
        if problem is not None or status.is_working:
            status.is_working = False
            status.problem = problem or status.problem or "The work stopped before it was finished."
            for stage in status.stages:
                stage.state = "failed" if stage.state == "running" else stage.state
        return status

    def close(self) -> None:
        """End it."""
        if self._companion is not None:
            self._companion.close()


def first_stages(workspace: Workspace) -> list[str]:
    """What is done for a collection when it is opened."""
    return [*["fetch"] * (workspace.store is not None), *FIRST_STAGES]


def main(folder: str, options: str) -> None:
    """The worker's own process: work, then wait for words."""
    limit_this_process()
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    told: queue.Queue[str] = queue.Queue()
    hear(told.put)
    try:
        _Working(Workspace(Path(folder)), WorkerOptions(**json.loads(options)), told).work()
    except KeyboardInterrupt:
        sys.exit(0)
    except OSError as error:
        if not is_disk_full(error):
            raise
        sys.exit(NO_ROOM)


class _Working:
    def __init__(self, workspace: Workspace, options: WorkerOptions, told: queue.Queue[str]) -> None:
        self._workspace, self._options, self._told = workspace, options, told
        self._status = StatusWriter(workspace.path, stages=first_stages(workspace), is_watching=options.watch)

    def work(self) -> None:
        """Until there is nothing to wait for."""
        from provico.data.library import Library
        from provico.processes import join, keep_freed_memory
        from provico.workspace.stages import Work

        keep_freed_memory()
        # The worker of a server that was killed has some seconds to end.
        lock = Lock(self._workspace.path / ".worker-lock", of="process")
        lock.take()
        self._workspace.remove_others()
        with join("auto") as processes:
            work = Work(
                self._workspace,
                self._status,
                Library(),
                device=processes.device,
                num_workers=processes.num_readers(None),
                allow_import=self._options.allow_import,
            )
            wants_learning = self._options.learn
            while True:
                seen = self._listing() if self._options.watch else None
                try:
                    work.bring_up_to_date()
                    if wants_learning:
                        from provico.workspace.learning import learn

                        learn(work)
                        work.bring_up_to_date()
                    self._status.status.problem = None
                except Exception as error:
                    log.exception("The work stopped before it was finished.")
                    self._fail(error)
                self._status.status.is_working = False
                self._status.write()
                wants_learning = self._wait(seen) == "learn"

    def _fail(self, error: Exception) -> None:
        for stage in self._status.status.stages:
            if stage.state == "running":
                self._status.fail(stage, why_not(error))
        self._status.status.problem = why_not(error)

    def _wait(self, before: object) -> str:
        """Until it is told something, or the folder, if it is watched, is not as it was before the work."""
        is_far = self._workspace.store is not None
        seconds = SECONDS_BETWEEN_FAR_LISTINGS if is_far else SECONDS_BETWEEN_LISTINGS
        while True:
            try:
                word = self._told.get(timeout=seconds)
                self._status.status.num_heard += 1
                return word
            except queue.Empty:
                if not self._options.watch or (now := self._listing()) == before:
                    continue
                if now == self._settled():  # what is still being written is not read until it stands still
                    return "update"

    def _settled(self) -> object:
        try:
            word = self._told.get(timeout=1.0)
        except queue.Empty:
            return self._listing()
        self._told.put(word)
        return self._listing()

    def _listing(self) -> object:
        """The files with their sizes and times."""
        from provico.errors import ProvicoError
        from provico.files import Signature

        try:
            if (store := self._workspace.store) is not None:
                return store.listing()
            return {video.path: Signature.of(video.path) for video in self._workspace.catalog()}
        except ProvicoError:
            return None
