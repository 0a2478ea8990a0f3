"""A folder that was opened by `provico open` in a process of its own, as a test uses it."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from ..warm_processes import WarmProcess

GUARD = {"X-ProViCo": "1"}
MOST_SECONDS = 300.0
"""So long the page may take to say anything, on the busiest machine."""


def until(process: WarmProcess, look: Callable[[], Any]) -> Any:
    """What is found at last; an error if it takes too long, or if the process ends."""
    end = time.monotonic() + MOST_SECONDS
    while not (found := look()):
        assert process.poll() is None, process.stderr
        assert time.monotonic() < end, process.stderr
        time.sleep(0.05)
    return found


@contextmanager
def opened(process: WarmProcess) -> Iterator[tuple[WarmProcess, httpx.Client]]:
    """The page of a process, which is interrupted at the end, and ends."""
    try:
        address = until(process, lambda: re.search(r"is open at (http://\S+)", process.stderr))[1]
        with httpx.Client(base_url=address, headers=GUARD, timeout=MOST_SECONDS) as client:
            yield process, client
        process.send_signal(signal.SIGINT)
        assert process.wait(MOST_SECONDS) in (0, 130), process.stderr
        assert "Traceback" not in process.stderr, process.stderr
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)


def done(process: WarmProcess, client: httpx.Client) -> dict[str, Any]:
    """What is said of the work once it has ended."""

    def look() -> dict[str, Any] | None:
        answer = client.get("/api/work")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return None if found["is_working"] else found

    found: dict[str, Any] = until(process, look)
    return found
