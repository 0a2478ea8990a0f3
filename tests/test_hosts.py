"""Hosts with addresses of their own: a part is cut off while it is asked, and runs span two of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from provico.data.catalog import open_catalog
from provico.data.library import Library
from provico.models import Encoder
from provico.search.index import Index
from provico.search.parts import open_indexes

from .hosts import INTERFACE, Host, hosts
from .search.conftest import postgres_servers
from .training.small_run import losses
from .warm_processes import ForkServer, WarmProcess, all_succeed

WORKER = Path(__file__).with_name("provico_worker.py")
LOST_HOST = Path(__file__).with_name("lost_host.py")
IN_HOST = Path(__file__).with_name("in_host.py")
PATIENCE = (
    "connect_timeout=2&keepalives_idle=1&keepalives_interval=1&keepalives_count=2&tcp_user_timeout=2000"
)


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[list[Host]]:
    with hosts(2) as made:
        yield made


def until(is_so: Callable[[], object], process: WarmProcess | subprocess.Popen[str]) -> None:
    while not is_so():
        assert process.poll() is None, "It ended before that."
        time.sleep(0.01)


def test_a_part_that_is_cut_off_while_it_is_asked(
    encoder: Encoder, colour_videos: Path, library: Library, tmp_path: Path
) -> None:
    """Its answer would not come for hours: it is given up after seconds, and named."""
    with (
        hosts(2) as (near, far),
        postgres_servers(1, *far.enter, host=far.address) as (addresses,),
    ):
        of_network, of_file = addresses.split()
        for number, store in enumerate((None, None, of_file), start=1):
            index = Index.create(tmp_path / str(number), encoder, num_clips=2, num_samples=4, store=store)
            index.add(open_catalog(colour_videos, part=(number, 3)), library=library)
        parts = [str(tmp_path / str(number)) for number in (1, 2)]
        query = Index.open(parts[0]).ids[0]
        with psycopg.connect(of_file) as other:
            schema = index.settings.place.name
            other.execute(
                f"lock table {schema}.places in access exclusive mode"
            )  # so that it is asked for long
            words = [
                *parts,
                f"{of_network}?{PATIENCE}",
                query,
                "--in-engine",
                "--json",
                "--max-chance",
                "inf",
            ]
            asking = subprocess.Popen(
                [*near.enter, sys.executable, "-m", "provico", "search", *words],
                env=os.environ | {"PROVICO_HOME": str(tmp_path / "home")},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            waiting = "select 1 from pg_locks where not granted"
            until(lambda: other.execute(waiting).fetchone(), asking)
            far.cut_off()
            said, told = asking.communicate()
        assert asking.returncode == 0, told
    (answer,) = json.loads(said)
    expected = open_indexes(parts).search(query, max_chance=None)
    assert [hit["id"] for hit in answer["hits"]] == [hit.id for hit in expected.hits]
    (lost,) = answer["unreached"]
    assert lost["name"].startswith(of_network)
    assert not answer["certificate"]["is_exact"]


def test_pretraining_over_two_hosts_goes_on_after_one_is_killed(
    two_hosts: list[Host], demo_set: Path, tmp_path: Path, library: Library, fork_server: ForkServer
) -> None:
    """torchrun on each; what it comes to is to the bit what two processes come to that nobody disturbs."""
    environment = os.environ | {"PROVICO_HOME": str(library.folder)}
    options = {
        "backbone": "tiny",
        "size": "32",
        "num-frames": "4",
        "dim": "16",
        "num-samples": "4",
        "epochs": "6",
        "batch-size": "12",
        "num-workers": "0",
        "log-every": "1",
        "checkpoint-every": "2",
        "device": "cpu",
        "mine-from": "2",
        "threshold": "1.0",
        "warmup-epochs": "1",
        "subset": "train",
    }
    given = [word for name, value in options.items() for word in (f"--{name}", value)]

    def words(run: str) -> list[str]:
        return ["pretrain", str(demo_set), "--recipe", "tiny", "--out", str(tmp_path / run), *given]

    all_succeed(fork_server.start_together("-m", "provico", *words("whole"), environment=environment))

    log = tmp_path / "hosts" / "metrics.jsonl"

    def start(rank: int, *more: str, lost: bool = False) -> WarmProcess:
        agent = ["-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", "--node-rank", rank]
        master = ["--master-addr", two_hosts[0].address, "--master-port", "29500"]
        return fork_server.start(
            *(IN_HOST, two_hosts[rank].name, *agent, *master),
            *([LOST_HOST, "3", log] if lost else []),
            *(WORKER, *words("hosts"), *more),
            environment=environment | {"GLOO_SOCKET_IFNAME": INTERFACE, "OMP_NUM_THREADS": "1"},
        )

    here, there = start(0), start(1, lost=True)
    assert there.wait() == -signal.SIGKILL
    assert here.wait() != 0
    assert "provico: Another of the cooperating processes has ended" in here.stderr
    assert not (tmp_path / "hosts" / "encoder").exists()
    all_succeed([start(0, "--resume"), start(1, "--resume")])
    assert losses(tmp_path / "hosts") == losses(tmp_path / "whole")
    weights = [(tmp_path / run / "encoder" / "model.safetensors").read_bytes() for run in ("hosts", "whole")]
    assert weights[0] == weights[1]


def test_a_part_is_embedded_over_two_hosts_and_goes_on_after_one_is_killed(
    two_hosts: list[Host],
    encoder: Encoder,
    colour_videos: Path,
    tmp_path: Path,
    library: Library,
    fork_server: ForkServer,
) -> None:
    """Each part of a collection by itself; both together answer as one index that a single process made."""
    whole = Index.create(tmp_path / "whole", encoder, num_clips=2)
    whole.add(open_catalog(colour_videos), library=library)
    Index.create(tmp_path / "1", encoder, num_clips=2).add(
        open_catalog(colour_videos, part=(1, 2)), library=library
    )
    encoder.save_pretrained(tmp_path / "encoder")
    part = tmp_path / "2"
    words = ["index", colour_videos, "--part", "2/2", "--checkpoint", tmp_path / "encoder", "--out", part]
    options = ["--num-clips", "2", "--num-workers", "1", "--device", "cpu"]

    def start(rank: int) -> WarmProcess:
        shared = {"WORLD_SIZE": "2", "MASTER_ADDR": two_hosts[0].address, "MASTER_PORT": "29501"}
        own = {"RANK": str(rank), "LOCAL_RANK": "0", "GLOO_SOCKET_IFNAME": INTERFACE}
        home = {"PROVICO_HOME": str(tmp_path / "home")}
        command = (IN_HOST, two_hosts[rank].name, "-m", "provico", *words, *options)
        return fork_server.start(*command, environment=os.environ | shared | own | home)

    here, there = start(0), start(1)
    until(lambda: (part / "store").exists(), there)
    there.send_signal(signal.SIGKILL)
    assert there.wait() == -signal.SIGKILL
    assert here.wait() != 0
    all_succeed([start(0), start(1)])
    together = open_indexes([tmp_path / "1", part])
    assert len(together) == len(whole)
    for name in whole.ids[::5]:
        found, expected = (some.search(name, k=18, max_chance=None) for some in (together, whole))
        assert found.certificate.is_exact
        assert [hit.id for hit in found.hits] == [hit.id for hit in expected.hits]
        for ours, theirs in zip(found.hits, expected.hits, strict=True):
            assert ours.log_probability == pytest.approx(theirs.log_probability, rel=1e-4)
