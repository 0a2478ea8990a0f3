"""Keep freed memory, so that each training step does not have to ask the kernel for it again.

glibc returns large blocks to the kernel as soon as they are freed. A training step frees and allocates the
same hundreds of megabytes every time, and each page that comes back must be zeroed and mapped anew. What
that costs depends on the network and the machine: `benchmarks/step.py` shows it ("convolution" against
"ours"). The price of keeping the pages is that the process stays at its peak size.
"""

from __future__ import annotations

import ctypes
import sys

# From glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_MMAP_MAX = -4


def keep_freed_memory() -> bool:
    """Tell the C library to keep freed memory for this process; False where it is not glibc.

    A choice for the program that owns the process, such as a training command: the library never calls this.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl has none
        return False
    # Take blocks of every size from the heap, and never give the top of the heap back.
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, 2**31 - 1))
