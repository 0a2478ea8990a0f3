"""Freed memory stays with the process once that was asked for."""

from __future__ import annotations

import platform

import pytest

from ..warm_processes import ForkServer, all_succeed

PAGES_TOUCHED = """
import resource
import torch
from provico.models.allocator import keep_freed_memory

torch.set_num_threads(1)

def touch():  # 64 MB, freed at once
    torch.zeros(2**24).add_(1)

def touched():
    for _ in range(4):  # the heap may have to grow more than once
        touch()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        touch()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

plain = touched()
assert keep_freed_memory()
print(plain, touched())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_pages_are_mapped_once_instead_of_every_time(fork_server: ForkServer) -> None:
    process = fork_server.start("-c", PAGES_TOUCHED)
    all_succeed([process])
    plain, kept = map(int, process.stdout.split())
    assert plain > 20 * max(1, kept)
