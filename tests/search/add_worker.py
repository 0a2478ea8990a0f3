"""Adds videos to an index whenever it is told to, each time in a child that the test may kill."""

from __future__ import annotations

import os
import sys
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


def wait() -> bool:
    """Until the test goes on; without a buffer, for a child reads from the same pipe."""
    return bool(os.read(0, 1))


def report(done: int, total: int) -> None:
    say("done", done)
    wait()


if __name__ == "__main__":
    index, data, home = map(Path, sys.argv[1:])
    row_writer.VIDEOS_A_COMMIT = 2
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "lancedb fork support", RuntimeWarning)
    say("ready")
    while wait():
        child = os.fork()
        if child == 0:
            say("pid", os.getpid())
            Index.open(index).add(open_catalog(data), library=Library(home), progress=report)
            os._exit(0)
        say("exit", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
