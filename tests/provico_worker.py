"""What `python -m provico` does, with short runs; for processes that torchrun starts.

The process itself comes from the server whose address the environment has, which spares the import of torch.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from warm_processes import ForkServer

ADDRESS = "PROVICO_TEST_FORK_SERVER"

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        server = ForkServer(Path(os.environ[ADDRESS]), Path(folder))
        process = server.start("-m", "provico", *sys.argv[1:])
        status = process.wait()
        print(process.stdout, end="")
        print(process.stderr, end="", file=sys.stderr)
        server.close()
    sys.exit(status)
