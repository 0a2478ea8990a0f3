"""How the threads of this process wait for each other."""

from __future__ import annotations

import os
from platform import machine

SPINS = 10_000
"""How often a thread looks whether it may go on, before it sleeps."""
BUSY = 1.0
"""The load of a machine on which somebody else computes."""
X86 = ("x86_64", "AMD64")


def wait_considerately() -> None:
    """Let threads that wait for others sleep soon, and at once on a busy machine, unless the user has chosen.

    The OpenMP of torch's wheels for Linux looks 300,000 times. Where another program wants the same cores, a
    thread that looks takes the turn of the one that it waits for, and training takes many times as long.

    NumPy's OpenBLAS looks without end, so it gets one thread: what is computed by it are many small products.
    On ARM, torch computes by OpenBLAS too, so it is left as it is there.

    For the program that owns the process, before torch and NumPy are imported.
    """
    if not ({"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"} & os.environ.keys()) and machine() in X86:
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
    if "OMP_WAIT_POLICY" in os.environ or "GOMP_SPINCOUNT" in os.environ:
        return
    if hasattr(os, "getloadavg") and os.getloadavg()[0] >= BUSY:
        os.environ["OMP_WAIT_POLICY"] = "passive"
    else:
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)
