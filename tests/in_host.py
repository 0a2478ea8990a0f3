"""Runs a program in a network namespace, with addresses of its own: NAMESPACE FILE|-m MODULE ARGUMENTS."""

from __future__ import annotations

import ctypes
import os
import runpy
import sys

CLONE_NEWNET = 0x40000000

if __name__ == "__main__":
    _, name, *sys.argv = sys.argv
    descriptor = os.open(f"/var/run/netns/{name}", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"{name} cannot be entered")
    os.close(descriptor)
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")
