"""Run a function over many items in isolated child processes, which may hang or crash.

A decoder is megabytes of C code that reads untrusted files: it may hang or crash, and neither can be caught
in the same process. So each worker is a child process (`child_process`). One that delivers nothing for too
long is killed, and one that dies is detected; its item is reported as failed, a new child replaces it, and
the rest continues.

The children are spawned rather than forked: forking a process with threads, such as torch's, can deadlock,
and `multiprocessing` would import the caller's script again, which breaks scripts without a `__main__` guard.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from provico.data.child_process import CallLimits, Child, ItemOutcome
from provico.errors import ProvicoError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Children:
    """Child processes that are reused by several `run_isolated`, since starting one takes time."""

    def __init__(self) -> None:
        self._idle: queue.SimpleQueue[Child] = queue.SimpleQueue()

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()

    def take(self) -> Child:
        """Take an idle child, or a new one."""
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return Child()

    def put_back(self, child: Child) -> None:
        """Return a child for the next run."""
        self._idle.put(child)


def run_isolated(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    num_workers: int,
    limits: CallLimits,
    children: Children | None = None,
) -> Iterator[ItemOutcome[Item, Result]]:
    """Yield an outcome per item, in order of completion.

    `function` must be importable by name, and its result plain (see `plain`). Exceptions that it raises are
    raised here; failures of single items should be part of its result. Processes are taken from `children` if
    given; otherwise they end with this call.
    """
    waiting: queue.SimpleQueue[Item] = queue.SimpleQueue()
    done: queue.SimpleQueue[ItemOutcome[Item, Result] | BaseException] = queue.SimpleQueue()
    num_items = 0
    for item in items:
        waiting.put(item)
        num_items += 1
    stop = threading.Event()

    def serve_with(child: Child) -> None:
        try:
            while not stop.is_set():
                done.put(child.call(function, waiting.get_nowait(), limits))
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
                if not outcome.blames_item:
                    raise ProvicoError(f"{outcome.item} was not read: {outcome.failure}")
                num_left -= 1
                yield outcome
        finally:
            # Also reached early, if the caller stops iterating: nobody waits for current items any more.
            stop.set()
            if num_left:
                for child in taken:
                    child.end()
            for thread, child in zip(threads, taken, strict=True):
                thread.join()
                if num_left:
                    child.close()
                else:
                    kept.put_back(child)


class IsolatedCalls(Generic[Item, Result]):
    """A function whose calls run in a few persistent children; it may be called from any thread.

    Children are started on demand. If all are busy, a caller waits, but no longer than a call may take; after
    that the outcome is a failure that is not the item's fault.
    """

    def __init__(self, function: Callable[..., Result], *, num_workers: int, limits: CallLimits) -> None:
        self._function, self._limits = function, limits
        self._children = [Child() for _ in range(num_workers)]
        # Last in, first out, so that no more are started than needed.
        self._idle: queue.LifoQueue[Child] = queue.LifoQueue()
        for child in self._children:
            self._idle.put(child)

    def __call__(self, item: Item, *, descriptors: Sequence[int] = ()) -> ItemOutcome[Item, Result]:
        """The outcome for one item; what the function raises is raised here.

        Args:
            item: what the function is called with.
            descriptors: open files, which the function is given after the item.
        """
        try:
            child = self._idle.get(timeout=self._limits.total_seconds or self._limits.silent_seconds)
        except queue.Empty:
            failure = "too many others are waiting; try again later."
            return ItemOutcome(item, None, failure, blames_item=False)
        try:
            return child.call(self._function, item, self._limits, descriptors=descriptors)
        finally:
            self._idle.put(child)

    def close(self) -> None:
        """End the children; running, waiting and later calls fail."""
        for child in self._children:
            child.end()
        # Each after its call has ended, so that no connection is closed while it is read.
        idle = [self._idle.get() for _ in self._children]
        for child in idle:
            child.close()
            self._idle.put(child)
