"""Could PostgreSQL itself be one collection over many servers, by partitions that are foreign tables?

    python benchmarks/foreign_partitions.py BIN --out benchmarks/results/foreign_partitions.json

BIN is the `bin` of a PostgreSQL 14 or later that has pgvector and postgres_fdw (contrib/postgres_fdw of its
source, built by PGXS, if it lacks that). Five servers are started in temporary folders: four keep the
vectors of stage 1 of a search, one has a table of which these are partitions, scanned asynchronously. Both
statements of a served search are asked from that one, and from the four at once by as many threads, in
turns. Then one of the four is stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from pgvector.psycopg import register_vector

NUM_SERVERS, DIM, K, ROUNDS = 4, 129, 16, 15
NEAREST = "select key from places order by vector_l2_squared_distance(place, %s) limit %s"
WITHIN = "select key from places where vector_l2_squared_distance(place, %s) < %s"


class Server:
    """One server at a socket file."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._control = [binaries / "pg_ctl", "-s", "-w", "-D", folder]
        self._user = "pgserver" if os.geteuid() == 0 else None  # it refuses to run as root
        if self._user:
            folder.mkdir()
            subprocess.run(["chown", self._user, folder], check=True)
        self._run([binaries / "initdb", "--auth=trust", "-U", "postgres", "-D", folder])
        self._run([*self._control, "-o", f"-h '' -k {folder}", "-l", folder / "log", "start"])
        self.folder = folder
        self.connection = self.connect()

    def connect(self) -> psycopg.Connection[Any]:
        """A connection that knows vectors."""
        connection = psycopg.connect(f"postgresql://postgres@/postgres?host={self.folder}", autocommit=True)
        connection.execute("create extension if not exists vector")
        register_vector(connection)
        return connection

    def stop(self) -> None:
        """At once, as if it were killed."""
        self._run([*self._control, "-m", "immediate", "stop"])

    def _run(self, command: Sequence[object]) -> None:
        subprocess.run(
            [str(word) for word in command], check=True, user=self._user, stdout=subprocess.DEVNULL
        )


def fill(servers: list[Server], num_videos: int) -> None:
    rng = np.random.default_rng(0)
    for part, server in enumerate(servers):
        connection = server.connection
        connection.execute(f"create table places (part int, key bigint primary key, place vector({DIM}))")
        connection.execute("alter table places alter column place set storage plain")
        with (
            connection.cursor() as cursor,
            cursor.copy("copy places from stdin with (format binary)") as copy,
        ):
            copy.set_types(["int4", "int8", "vector"])
            for key, place in enumerate(rng.normal(size=(num_videos, DIM)).astype(np.float32)):
                copy.write_row((part, part * num_videos + key, place))
        connection.execute("vacuum analyze places")


def join(whole: Server, parts: list[Server]) -> None:
    """Partitions that are foreign tables; pgvector is said to be there, so that distances may be sent."""
    execute = whole.connection.execute
    execute("create extension postgres_fdw")
    execute(f"create table places (part int, key bigint, place vector({DIM})) partition by list (part)")
    for part, server in enumerate(parts):
        execute(
            f"create server s{part} foreign data wrapper postgres_fdw options (host '{server.folder}', "
            "dbname 'postgres', extensions 'vector', async_capable 'true', "
            "use_remote_estimate 'true')"
        )
        execute(f"create user mapping for postgres server s{part} options (user 'postgres')")
        execute(
            f"create foreign table places{part} partition of places for values in ({part}) server s{part} "
            "options (table_name 'places')"
        )
    execute("analyze places")


def measured(ways: dict[str, Callable[[], object]]) -> dict[str, dict[str, float]]:
    """Milliseconds of each, in turns; of the wall, which other users of the machine lengthen."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            times[name].append(1000 * (time.perf_counter() - began))
    return {
        name: {"median_ms": round(statistics.median(some), 1), "least_ms": round(min(some), 1)}
        for name, some in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("binaries", type=Path)
    parser.add_argument("--videos", type=int, default=10_000, help="on each server")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    os.umask(0o022)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        servers = [Server(given.binaries, Path(name) / str(number)) for number in range(NUM_SERVERS + 1)]
        whole, *parts = servers
        fill(parts, given.videos)
        join(whole, parts)
        result = compare(whole, parts)
        parts[0].stop()
        try:
            whole.connection.execute(NEAREST, (np.zeros(DIM, np.float32), K)).fetchall()
            result["one_stopped"] = "answered"
        except psycopg.Error as error:
            result["one_stopped"] = str(error).strip().splitlines()[0]
        for server in (whole, *parts[1:]):
            server.stop()
    version = whole.connection.info.server_version
    result |= {"servers": NUM_SERVERS, "videos": NUM_SERVERS * given.videos, "server_version": version}
    text = json.dumps(result, indent=1) + "\n"
    print(text)
    if given.out:
        given.out.write_text(text)


def compare(whole: Server, parts: list[Server]) -> dict[str, Any]:
    query = np.random.default_rng(1).normal(size=DIM).astype(np.float32)
    connections = [part.connection for part in parts]
    radius = sorted(
        row[0]
        for one in connections
        for row in one.execute(
            "select vector_l2_squared_distance(place, %s) d from places order by d limit 200", [query]
        ).fetchall()
    )[199]
    pool = ThreadPoolExecutor(NUM_SERVERS)

    def all_at_once(statement: str, *values: Any) -> list[int]:
        def ask(one: psycopg.Connection[Any]) -> list[tuple[int]]:
            return one.execute(statement, (query, *values)).fetchall()

        return [row[0] for rows in pool.map(ask, connections) for row in rows]

    def foreign(statement: str, *values: Any) -> list[int]:
        return [row[0] for row in whole.connection.execute(statement, (query, *values)).fetchall()]

    result: dict[str, Any] = {}
    for name, statement, value in (("nearest", NEAREST, K), ("within", WITHIN, radius)):
        assert set(foreign(statement, value)) <= set(all_at_once(statement, value))
        plan = whole.connection.execute(
            f"explain (analyze, verbose, costs off, timing off) {statement}", (query, value)
        )
        lines = [line[0].strip() for line in plan.fetchall()]
        result[name] = {
            "plan": [line[:90] for line in lines if "->" in line or "Limit" in line][:4],
            "sent": next(
                line.split("vector_l2")[0] + "..." for line in lines if line.startswith("Remote SQL")
            ),
            "has_remote_limit": any(line.startswith("Remote SQL") and "LIMIT" in line for line in lines),
            **measured(
                {
                    "foreign": lambda s=statement, v=value: foreign(s, v),
                    "threads": lambda s=statement, v=value: all_at_once(s, v),
                }
            ),
        }
    result["cpu_seconds_here"] = round(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]), 1)
    return result


if __name__ == "__main__":
    main()
