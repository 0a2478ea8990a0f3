"""Forks a process for each line that it reads; torch is imported once, here, instead of in each of them.

A line is JSON: what to run as Python would (`-m MODULE`, `-c CODE` or a file, and arguments), the
environment, the working directory and the files that take its output. The answer is its process id. A line
that holds a process id alone is answered with how that process ended, or null. See `warm_processes.py`.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

from short_runs import be_patient, shorten

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
    first = str(Path(kind).parent if kind.endswith(".py") else Path.cwd())
    sys.path[:0] = [first, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
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


def main() -> None:
    torch.set_num_threads(1)
    shorten()
    be_patient()
    for name in PRELOADED:
        importlib.import_module(name)
    ended: dict[int, int] = {}
    requests = os.fdopen(os.dup(0))
    answers = os.fdopen(os.dup(1), "w")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in requests:
        request = json.loads(line)
        if isinstance(request, int):
            if request not in ended:
                found, status = os.waitpid(request, os.WNOHANG)
                if found:
                    ended[request] = os.waitstatus_to_exitcode(status)
            answer = ended.get(request)
        else:
            answer = os.fork()
            if answer == 0:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                status = become(request)
                for stream in (sys.stdout, sys.stderr):
                    stream.flush()
                os._exit(status)
        answers.write(f"{json.dumps(answer)}\n")
        answers.flush()


if __name__ == "__main__":
    main()
