"""Run a function over many items in child processes that can be stopped, or can crash, without harm.

A decoder is megabytes of C that reads files from strangers: it may hang or crash, and neither can be
caught in the same process. So each worker is a child process (`child_process`). One that delivers nothing for
too long is killed, one that dies is noticed; its item is reported as failed, a new child takes its place, and
the rest goes on.

The children are started from scratch rather than forked: forking a process that has threads (torch has)
can deadlock, and `multiprocessing` would import the caller's script again, which breaks scripts without
a `__main__` guard.
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
    """Child processes that stay from one `run_isolated` to the next, since starting one takes time."""

    def __init__(self) -> None:
        self._idle: queue.SimpleQueue[Child] = queue.SimpleQueue()

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()

    def take(self) -> Child:
        """One that has nothing to do, or a new one."""
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return Child()

    def put_back(self, child: Child) -> None:
        """For the next run."""
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

    `function` must be importable by name, and its result plain (see `plain`). What it raises is raised here:
    failures that belong to an item are for the function to return. Processes are those of `children`, if
    given; else they end with this.
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
            # Also reached early, when the caller stops listening: nobody waits for items in hand any more.
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
    """A function whose calls run in a few children that stay; callers may come from any thread.

    A child is started when it is first needed. Who comes while all of them are at work waits, but no longer
    than a call may take: then the outcome is a failure that is not the item's.
    """

    def __init__(self, function: Callable[..., Result], *, num_workers: int, limits: CallLimits) -> None:
        self._function, self._limits = function, limits
        self._children = [Child() for _ in range(num_workers)]
        # The last one that was at work first, so that no more are started than are needed.
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
        """End the children; calls that are under way fail, and so do those that wait or come later."""
        for child in self._children:
            child.end()
        # Each once its call has ended, so that nobody reads from a wire that is closed under them.
        idle = [self._idle.get() for _ in self._children]
        for child in idle:
            child.close()
            self._idle.put(child)
