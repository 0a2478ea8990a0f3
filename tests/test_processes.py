"""Freed memory stays with the process once that was asked for."""

from __future__ import annotations

import platform

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
