"""Threads for slow work, in lanes: what one kind of request waits for, no other kind waits for.

Each lane has a few threads and a queue that is bounded. Who comes when it is full is told to try again, at
once, instead of waiting for what may take minutes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from provico.explorer.problems import Problem

Given = ParamSpec("Given")
Result = TypeVar("Result")

RETRY_SECONDS = 5
"""When a client that was turned away should try again."""


def busy(what: str) -> Problem:
    """Too many ask for the same at once."""
    return Problem(
        503,
        "busy",
        f"The server is busy with too many {what}.",
        "Try again in a few seconds.",
        headers={"Retry-After": str(RETRY_SECONDS)},
    )


class Lane:
    """A few threads with a bounded queue.

    Args:
        what: what they do, as a plural in an error.
        num_threads: how many calls run at once.
        max_waiting: how many more may wait for them.
    """

    def __init__(self, what: str, *, num_threads: int, max_waiting: int) -> None:
        self._what, self._room = what, threading.Semaphore(num_threads + max_waiting)
        self._threads = ThreadPoolExecutor(num_threads, what)

    async def run(
        self, function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
    ) -> Result:
        """Call it in a thread of this lane; a problem if the queue is full."""
        if not self._room.acquire(blocking=False):
            raise busy(self._what)
        try:
            future = self._threads.submit(function, *args, **kwargs)
        except RuntimeError as error:  # the server ends
            self._room.release()
            raise busy(self._what) from error
        # The room is free when the work is done, not when the one who asked for it has left.
        future.add_done_callback(self._release)
        return await asyncio.wrap_future(future)

    def _release(self, _: Future[Result]) -> None:
        self._room.release()

    def refuse(self) -> None:
        """Begin nothing more, also of what waits."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Begin nothing more, and wait for what is under way."""
        self._threads.shutdown(cancel_futures=True)
