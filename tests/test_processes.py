"""Freed memory stays with the process once that was asked for; processes that worked together end well."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys

import pytest

from .warm_processes import ForkServer, all_succeed

PAGES_TOUCHED = """
import resource
import torch
from provico.processes import keep_freed_memory

torch.set_num_threads(1)

def touched():  # pages mapped for 64 MB that are freed at once
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros(2**24).add_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

plain = min(touched() for _ in range(4))
assert keep_freed_memory()
kept = min(touched() for _ in range(12))  # the heap may have to grow a few times first
print(plain, kept)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_pages_are_mapped_once_instead_of_every_time(fork_server: ForkServer) -> None:
    process = fork_server.start("-c", PAGES_TOUCHED)
    all_succeed([process])
    plain, kept = map(int, process.stdout.split())
    assert plain > 20 * max(1, kept)


LATE_THREAD = """
import os
from pathlib import Path
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from provico.processes import join

with join("cpu") as processes:
    processes.gather(0)
    for thread in Path("/proc/self/task").iterdir():
        if "gloo_runloop" in (thread / "comm").read_text():  # it runs when nobody else wants to
            os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))
    processes.gather(0)
"""


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="only Linux has threads that wait for all others")
def test_a_thread_that_is_late_does_not_abort_the_end() -> None:
    """It asks for Python's lock to release a tensor. Processes of the fork server skip that end."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", LATE_THREAD],
            env={**os.environ, **shared, "RANK": rank, "LOCAL_RANK": rank},
        )
        for rank in ("0", "1")
    ]
    assert [process.wait() for process in both] == [0, 0]
