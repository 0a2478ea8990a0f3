"""Runs a program of torchrun, and loses its host midway: NUM_LINES LOG FILE ARGUMENTS.

When the log of the run, which another host writes, has so many lines, this process and torchrun are killed:
midway however busy the machine is, since no process of a run is more than a step ahead.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path

LOOK_EVERY_SECONDS = 0.01
"""Of computing."""


def main(num_lines: int, log: Path) -> None:
    def look(*_: object) -> None:
        if log.exists() and len(log.read_text().splitlines()) >= num_lines:
            for process in (os.getppid(), os.getpid()):
                os.kill(process, signal.SIGKILL)

    signal.signal(signal.SIGVTALRM, look)
    signal.setitimer(signal.ITIMER_VIRTUAL, LOOK_EVERY_SECONDS, LOOK_EVERY_SECONDS)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    number, name, *sys.argv = sys.argv[1:]
    main(int(number), Path(name))
