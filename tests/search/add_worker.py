"""Adds videos to an index for each line that it reads, in a child that the test may kill.

A line is JSON: the folders of the index, the videos and the library, and what the environment must say.
"""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

# Imported here once, not in each child.
import lancedb  # noqa: F401
import torch

from provico.data.catalog import open_catalog
from provico.data.library import Library
from provico.search import row_writer
from provico.search.index import Index


def say(*words: object) -> None:
    print(*words, flush=True)


def wait() -> bytes:
    """Until the test goes on; without a buffer, for a child reads from the same pipe."""
    return os.read(0, 1)


def next_line() -> bytes:
    line = b""
    while (character := wait()) not in (b"", b"\n"):
        line += character
    return line


def report(done: int, total: int) -> None:
    say("done", done)
    wait()


if __name__ == "__main__":
    row_writer.VIDEOS_A_COMMIT = 2
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "lancedb fork support", RuntimeWarning)
    while line := next_line():
        *folders, environment = json.loads(line)
        index, data, home = map(Path, folders)
        child = os.fork()
        if child == 0:
            os.environ.update(environment)
            say("pid", os.getpid())
            Index.open(index).add(open_catalog(data), library=Library(home), progress=report)
            os._exit(0)
        say("exit", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
