"""Processes that tests start, wait for and kill, without the seconds that importing torch takes in each."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MOST_SECONDS = 900.0
"""So long a process is waited for, on the busiest machine."""
INTERRUPTED = Path(__file__).with_name("interrupted.py")


@dataclass(frozen=True)
class WarmProcess:
    """A process of its own, forked from one that has imported torch."""

    pid: int
    folder: Path
    server: ForkServer

    @property
    def stdout(self) -> str:
        """What it has said so far."""
        return (self.folder / "stdout").read_text()

    @property
    def stderr(self) -> str:
        return (self.folder / "stderr").read_text()

    def poll(self) -> int | None:
        """How it ended, as `subprocess.Popen` says it, or None while it runs."""
        status = self.server.ask(self.pid)
        assert status is None or isinstance(status, int)
        return status

    def wait(self, seconds: float = MOST_SECONDS) -> int:
        """How it ended; one that does not end is killed, and that is an error."""
        end = time.monotonic() + seconds
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                self.send_signal(signal.SIGKILL)
                raise AssertionError(f"It did not end within {seconds:g} seconds: {self.stderr}")
            time.sleep(0.01)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)


class ForkServer:
    """Starts processes; see `fork_server.py`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("fork_server.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, request: object) -> object:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(request)}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(
        self, *command: object, environment: Mapping[str, str] = os.environ, folder: Path | None = None
    ) -> WarmProcess:
        """Run what `python COMMAND` would: `-m MODULE`, `-c CODE` or a file, and arguments."""
        self._number += 1
        output = self._folder / str(self._number)
        output.mkdir(parents=True)
        request = {
            "command": [str(word) for word in command],
            "environment": dict(environment),
            "folder": str(folder or Path.cwd()),
            "stdout": str(output / "stdout"),
            "stderr": str(output / "stderr"),
        }
        for name in ("stdout", "stderr"):
            (output / name).touch()
        pid = self.ask(request)
        assert isinstance(pid, int)
        return WarmProcess(pid, output, self)

    def start_together(
        self, *command: object, environment: Mapping[str, str] = os.environ, number: int = 2
    ) -> list[WarmProcess]:
        """Processes that find each other, as those that torchrun starts."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(number)}
        return [
            self.start(
                *command, environment={**environment, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            )
            for rank in range(number)
        ]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()  # not for the end of its output, which a process that hangs holds open
        self._process.stdout.close()


def all_succeed(processes: Sequence[WarmProcess]) -> None:
    """Wait for the end of all of them."""
    for process in processes:
        assert process.wait() == 0, process.stderr
