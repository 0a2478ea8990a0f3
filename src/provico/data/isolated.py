"""Run a function over many items in child processes that can be stopped, or can crash, without harm.

A decoder is megabytes of C that reads files from strangers: it may hang or crash, and neither can be
caught in the same process. So each worker is a child process. One that exceeds its time is killed, one
that dies is noticed; its item is reported as failed, a new child takes its place, and the rest goes on.

The children are started from scratch rather than forked: forking a process that has threads (torch has)
can deadlock, and `multiprocessing` would import the caller's script again, which breaks scripts without
a `__main__` guard.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class ItemOutcome(Generic[Item, Result]):
    """One item with its result, or with the reason why there is none."""

    item: Item
    result: Result | None
    failure: str | None
    """Set when the child was stopped for taking too long, or died."""


class Children:
    """Child processes that stay from one `run_isolated` to the next, since starting one takes time."""

    def __init__(self) -> None:
        self._idle: queue.SimpleQueue[_Child] = queue.SimpleQueue()

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()

    def take(self) -> _Child:
        """One that has nothing to do, or a new one."""
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return _Child()

    def put_back(self, child: _Child) -> None:
        """For the next run."""
        self._idle.put(child)


def run_isolated(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    num_workers: int,
    timeout_seconds: float,
    children: Children | None = None,
) -> Iterator[ItemOutcome[Item, Result]]:
    """Yield an outcome per item, in order of completion.

    `function` must be importable by name. What it raises is raised here: failures that belong to an
    item are for the function to return. Processes are those of `children`, if given; else they end with this.
    """
    waiting: queue.SimpleQueue[Item] = queue.SimpleQueue()
    done: queue.SimpleQueue[ItemOutcome[Item, Result] | BaseException] = queue.SimpleQueue()
    num_items = 0
    for item in items:
        waiting.put(item)
        num_items += 1
    stop = threading.Event()

    def serve_with(child: _Child) -> None:
        try:
            while not stop.is_set():
                done.put(child.call(function, waiting.get_nowait(), timeout_seconds))
        except queue.Empty:
            pass
        except BaseException as error:
            done.put(error)

    with contextlib.ExitStack() as stack:
        kept = stack.enter_context(Children()) if children is None else children
        taken = [kept.take() for _ in range(min(num_workers, num_items))]
        threads = [threading.Thread(target=serve_with, args=(child,), daemon=True) for child in taken]
        for thread in threads:
            thread.start()
        num_left = num_items
        try:
            while num_left:
                outcome = done.get()
                if isinstance(outcome, BaseException):
                    raise outcome
                num_left -= 1
                yield outcome
        finally:
            # Also reached early, when the caller stops listening: nobody waits for items in hand any more.
            stop.set()
            if num_left:
                for child in taken:
                    child.kill()
            for thread, child in zip(threads, taken, strict=True):
                thread.join()
                if num_left:
                    child.close()
                kept.put_back(child)


class IsolatedCalls(Generic[Item, Result]):
    """A function whose calls run in a few children that stay; callers may come from any thread.

    A child is started when it is first needed. Who comes while all of them are at work waits, but no longer
    than a call may take: then the outcome is a failure, too.
    """

    def __init__(
        self, function: Callable[[Item], Result], *, num_workers: int, timeout_seconds: float
    ) -> None:
        self._function, self._timeout_seconds = function, timeout_seconds
        self._children = [_Child() for _ in range(num_workers)]
        # The last one that was at work first, so that no more are started than are needed.
        self._idle: queue.LifoQueue[_Child] = queue.LifoQueue()
        for child in self._children:
            self._idle.put(child)
        self._is_closed = threading.Event()

    def __call__(self, item: Item) -> ItemOutcome[Item, Result]:
        """The outcome for one item; what the function raises is raised here."""
        try:
            child = self._idle.get(timeout=self._timeout_seconds)
        except queue.Empty:
            return ItemOutcome(item, None, "too many others are waiting; try again later.")
        try:
            if self._is_closed.is_set():
                return ItemOutcome(item, None, "the program ends.")
            return child.call(self._function, item, self._timeout_seconds)
        finally:
            self._idle.put(child)

    def close(self) -> None:
        """End the children; calls that are under way fail, and so do those that wait or come later."""
        self._is_closed.set()
        for child in self._children:
            child.kill()
        # Each once its call has ended, so that nobody reads from a pipe that is closed under them.
        idle = [self._idle.get() for _ in self._children]
        for child in idle:
            child.close()
            self._idle.put(child)


class _Child:
    """One child process that answers one request at a time; it is started by the first."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def call(
        self, function: Callable[[Item], Result], item: Item, timeout_seconds: float
    ) -> ItemOutcome[Item, Result]:
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        timed_out = threading.Event()

        def stop() -> None:
            timed_out.set()
            process.kill()

        timer = threading.Timer(timeout_seconds, stop)
        timer.start()
        try:
            pickle.dump((function, item), process.stdin)
            process.stdin.flush()
            returned, reply = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            process.wait()
            self.close()
            if timed_out.is_set():
                return ItemOutcome(item, None, f"it took longer than {timeout_seconds:g} seconds.")
            return ItemOutcome(item, None, f"the decoder crashed ({_cause_of_death(process.returncode)}).")
        finally:
            timer.cancel()
        if not returned:
            raise reply
        return ItemOutcome(item, reply, None)

    def kill(self) -> None:
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        self.kill()
        if self._process is not None:
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            self._process = None

    @staticmethod
    def _start() -> subprocess.Popen[bytes]:
        # The child may import only what the parent can: hand over its module search path. The current folder
        # is not on it (-P): a collection of videos may hold an av.py, whose code must not run.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        return subprocess.Popen(
            [sys.executable, "-P", "-c", "from provico.data.isolated import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )


def serve() -> None:
    """The child's side: answer requests until the parent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends its children
    # Whatever the function prints must not get between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    while True:
        try:
            function, item = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = (True, function(item))
        except BaseException as error:
            answer = (False, error)
        pickle.dump(answer, answers)
        answers.flush()


def _cause_of_death(returncode: int) -> str:
    if returncode < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-returncode).name
    return f"exit status {returncode}"
