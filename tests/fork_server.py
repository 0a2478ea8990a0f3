"""Forks a process for each line that it reads; torch is imported once, here, instead of in each of them.

All test processes of a run connect to one server: ADDRESS, a link, leads to its socket. It ends with the last
connection. A line is JSON: what to run as Python would (`-m MODULE`, `-c CODE` or a file, and arguments), the
environment, the working directory and the files that take its output. The answer is its process id. A line
that holds a process id alone is answered with how that process ended, or null; an empty line ends the
connection. See `warm_processes.py`.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

PRELOADED = (
    "torch._dynamo",  # which the first optimiser of a process imports
    "torch.distributed.launcher.api",
    "lance_namespace",  # which LanceDB imports, and takes longest
    "uvicorn",
    "provico.cli.learn",
    "provico.evaluation.recognition",
    "provico.explorer.app",
    "provico.training.pretrain",
)
"""What the tests start. None of these may import LanceDB, whose threads do not survive a fork."""


def run(command: list[str]) -> None:
    """As `python COMMAND` would."""
    kind, *rest = command
    sys.path.insert(0, str(Path(kind).parent if kind.endswith(".py") else Path.cwd()))
    if kind == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = command
        runpy.run_path(kind, run_name="__main__")


def become(request: dict[str, Any]) -> int:
    """In the new process: run the command; the exit status."""
    for number, name in ((0, os.devnull), (1, request["stdout"]), (2, request["stderr"])):
        os.dup2(os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    try:
        run(request["command"])
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


class Server:
    """Answers the lines of all connections."""

    def __init__(self, address: Path) -> None:
        self._address = address
        self._ended: dict[int, int] = {}
        self._connections = selectors.DefaultSelector()

    def serve(self) -> None:
        """Until the last connection has ended."""
        # Not at the address itself: the path of a socket must be short.
        with tempfile.TemporaryDirectory(prefix="provico-") as folder:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(f"{folder}/socket")
            listener.listen()
            self._connections.register(listener, selectors.EVENT_READ)
            self._address.symlink_to(f"{folder}/socket")
            while self._address.is_symlink():
                for key, _ in self._connections.select():
                    if key.fileobj is listener:
                        connection, _ = listener.accept()
                        lines = connection.makefile("r")
                        self._connections.register(connection, selectors.EVENT_READ, lines)
                    else:
                        self._answer(key)

    def _answer(self, key: selectors.SelectorKey) -> None:
        connection = key.fileobj
        assert isinstance(connection, socket.socket)
        try:
            line = key.data.readline().strip()  # one at a time: who asks waits for the answer
        except OSError:  # who asked was killed
            line = ""
        if line:
            connection.sendall(f"{json.dumps(self._result(json.loads(line)))}\n".encode())
            return
        self._connections.unregister(connection)
        if len(self._connections.get_map()) == 1:  # the listener
            self._address.unlink()
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        key.data.close()
        connection.close()

    def _result(self, request: Any) -> int | None:
        if isinstance(request, int):
            if request not in self._ended:
                found, status = os.waitpid(request, os.WNOHANG)
                if found:
                    self._ended[request] = os.waitstatus_to_exitcode(status)
            return self._ended.get(request)
        pid = os.fork()
        if pid:
            return pid
        for key in list(self._connections.get_map().values()):
            os.close(key.fd)
        self._connections.close()
        gc.enable()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        status = become(request)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def main() -> None:
    gc.disable()  # what is imported stays
    import torch

    from short_runs import shorten

    torch.set_num_threads(1)
    shorten()
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()  # no process looks through it again, so that their memory stays shared
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Server(Path(sys.argv[1])).serve()


if __name__ == "__main__":
    main()
