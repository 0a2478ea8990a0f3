"""Freed memory stays with the process once that was asked for."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PAGES_TOUCHED = """
import resource, sys
import torch
from provico.models.allocator import keep_freed_memory

torch.set_num_threads(1)
if sys.argv[1] == "keep":
    assert keep_freed_memory()

def touch():  # 64 MB, freed at once
    torch.zeros(2**24).add_(1)

for _ in range(4):  # the heap may have to grow more than once
    touch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    touch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_pages_are_mapped_once_instead_of_every_time() -> None:
    def pages(mode: str) -> int:
        command = [sys.executable, "-c", PAGES_TOUCHED, mode]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    assert pages("plain") > 20 * max(1, pages("keep"))
