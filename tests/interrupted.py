"""Runs a program that trains and sends it a signal midway: NUM_LINES SIGNAL FILE ARGUMENTS.

The signal comes when so many lines are logged and a random time of computing has passed: at a moment that
nobody chose, and midway however busy the machine is. FILE can also be `-m MODULE`.
"""

from __future__ import annotations

import os
import random
import runpy
import signal
import sys
from collections.abc import Mapping

from provico.training.run_log import RunLog

MAX_SECONDS = 0.1
"""About a step."""


def main(num_lines: int, number: signal.Signals) -> None:
    write = RunLog.write
    written = 0

    def write_and_count(log: RunLog, record: Mapping[str, float]) -> None:
        nonlocal written
        write(log, record)
        written += 1
        if written == num_lines:
            signal.signal(signal.SIGVTALRM, lambda *_: os.kill(os.getpid(), number))
            signal.setitimer(signal.ITIMER_VIRTUAL, random.uniform(1e-4, MAX_SECONDS))

    RunLog.write = write_and_count  # type: ignore[method-assign]
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    random.seed()  # not as in the process that this one was forked from
    number_of_lines, name, *sys.argv = sys.argv[1:]
    main(int(number_of_lines), signal.Signals[name])
