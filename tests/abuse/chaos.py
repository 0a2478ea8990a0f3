"""Disturb long work at random: kill any of its processes, fill the disk, forbid to write, move the clock.

    python tests/abuse/chaos.py [VIDEOS] [--rounds 20] [--seed 0] [--only pretrain ...]

Each of `provico index`, `embed`, `open` and `pretrain` is run once in peace, and then ROUNDS times with a
kill -9 of a random process of its tree, the command itself or a child, at random moments; it is started
again until it ends. Pretraining also meets a disk that is full at some size of a file, and a clock that
jumps. The result must be that of the peaceful run, of pretraining bit by bit; whatever ends by itself must
say one sentence. VIDEOS is a folder; a few are made if none is given. `test_chaos.py` does a little of it
in CI.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import psutil
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.training.small_run import losses
from tests.warm_processes import ForkServer, WarmProcess

from provico.embedding.file import read_embeddings
from provico.models.weights import read_weights
from provico.search.index import Index

CLOCK = """
import random, sys, time
began, jump = time.time(), random.Random(0)
time.time = lambda: began + jump.uniform(-1e6, 1e6)
from provico.cli import main
main(sys.argv[1:])
"""
"""A clock that anything may be read from."""
FULL_DISK = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, resource.RLIM_INFINITY))
from provico.cli import main
main(sys.argv[1:])
"""


PRETRAIN = ("pretrain", "--recipe", "tiny", "--epochs", "6", "--batch-size", "6")
PRETRAIN += ("--checkpoint-every", "2", "--log-every", "1", "--device", "cpu")
"""A run of some seconds, with a process that reads videos."""


@lru_cache(maxsize=1)
def unshare() -> list[str] | None:
    """How a process can mount a disk that only it sees; None if this machine does not let it."""
    for words in (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]):
        with suppress(OSError):
            tried = subprocess.run(
                [*words, "mount", "-t", "tmpfs", "none", "/tmp"], capture_output=True, check=False
            )
            if tried.returncode == 0:
                return words
    return None


def with_mount(mount: str, *words: object) -> list[str]:
    """What runs `python WORDS` after a mount that only that process sees."""
    found = unshare()
    assert found is not None, "This machine lets nobody mount a disk of their own."
    command = [*found, "sh", "-c", f'{mount} && exec "$@"', "sh", sys.executable, *map(str, words)]
    return ["-c", f"import os; os.execvp({command[0]!r}, {command!r})"]


@dataclass
class Chaos:
    """Starts commands, and disturbs them."""

    server: ForkServer
    home: Path
    chance: random.Random
    outcomes: dict[str, int] = field(default_factory=dict)

    def start(self, *words: object) -> WarmProcess:
        """Run what `python WORDS` would."""
        return self.server.start(*words, environment=os.environ | {"PROVICO_HOME": str(self.home)})

    def in_peace(self, *words: object) -> float:
        """Run `provico WORDS` to its end; how many seconds it takes."""
        began = time.monotonic()
        process = self.start("-m", "provico", *words)
        assert process.wait() == 0, process.stderr
        return time.monotonic() - began

    def disturbed(self, seconds: float, num_kills: int, *words: object) -> None:
        """Run it, and run it again, until it ends well; so many kills come at moments within `seconds`."""
        for left in range(num_kills, -1, -1):
            process = self.start("-m", "provico", *words)
            if left:
                time.sleep(self.chance.uniform(0, seconds))
                kill_one(process.pid, self.chance)
            self.check_end(process)
            if process.wait() == 0 and not left:
                return

    def disturbed_run(self, seconds: float, num_troubles: int, out: Path, *words: object) -> None:
        """Pretrain, and resume, with kills, full disks and jumping clocks, until it ends well."""
        for left in range(num_troubles, -1, -1):
            more = ["--resume"] if any((out / "checkpoints").glob("step-*")) else []
            if not more:
                shutil.rmtree(out, ignore_errors=True)  # as the command says of a run without a checkpoint
            trouble = self.chance.choice(("kill", "full disk", "clock")) if left else "nothing"
            self.outcomes[trouble] = self.outcomes.get(trouble, 0) + 1
            full = FULL_DISK.format(most=int(10 ** self.chance.uniform(3, 6)))
            start = {"full disk": ("-c", full), "clock": ("-c", CLOCK)}.get(trouble, ("-m", "provico"))
            # Readers hand clips over in shared memory, which a limit on files hits and a full disk does not.
            more += ["--num-workers", "0" if trouble == "full disk" else "1"]
            process = self.start(*start, *words, "--out", out, *more)
            if trouble == "kill":
                time.sleep(self.chance.uniform(0, seconds))
                kill_one(process.pid, self.chance)
            self.check_end(process)
        assert process.wait() == 0, process.stderr

    def check_end(self, process: WarmProcess) -> None:
        """It was killed, or ended well, or said one sentence."""
        status = process.wait()
        self.outcomes[str(status)] = self.outcomes.get(str(status), 0) + 1
        assert status in (0, 2, -signal.SIGKILL), process.stderr
        if status == 2:
            said_once(process.stderr)


def kill_one(pid: int, chance: random.Random) -> None:
    """Kill a process or any of its children, whichever it may be."""
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        chance.choice([root, *root.children(recursive=True)]).kill()


def said_once(stderr: str) -> str:
    """The one sentence of a command that was refused."""
    assert "Traceback" not in stderr, stderr
    lines = [line for line in stderr.splitlines() if line.startswith("provico: ")]
    assert len(lines) == 1, stderr
    return lines[0]


def same_index(found: Path, expected: Path) -> None:
    """Equal in all that follows from the videos."""
    ours, theirs = Index.open(found), Index.open(expected)
    assert ours.ids == theirs.ids
    names = ("mean", "log_var", "clip_mean", "label", "content_hash", "duration_seconds", "thumbnail")
    mine, its = (one.loaded.store.read(names) for one in (ours, theirs))
    for name in names:
        if isinstance(mine[name], np.ndarray):
            np.testing.assert_allclose(mine[name], its[name], rtol=1e-4, atol=1e-6)
        else:
            assert mine[name] == its[name], name


def same_run(found: Path, expected: Path) -> None:
    """Equal losses at each step, and equal weights, to the last bit."""
    ours, theirs = losses(found), losses(expected)
    assert ours == theirs
    left, right = (read_weights(run / "encoder" / "model.safetensors") for run in (found, expected))
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


def same_embeddings(found: Path, expected: Path) -> None:
    """Equal rows, in whatever batches they were computed."""
    ours, theirs = read_embeddings(found), read_embeddings(expected)
    assert ours.ids == theirs.ids
    np.testing.assert_allclose(ours.videos.mean.numpy(), theirs.videos.mean.numpy(), rtol=1e-4, atol=1e-6)


def disturb_open(chaos: Chaos, videos: Path, folder: Path, encoder: Path, num_kills: int) -> Path:
    """Open a folder of videos, kill what works for it, and open it again; the index at last."""
    command = ["-m", "provico", "open", videos, "--folder", folder, "--checkpoint", encoder]
    for left in range(num_kills, -1, -1):
        process = chaos.start(*command, "--no-browser", "--port", "0")
        if left:
            time.sleep(chaos.chance.uniform(0.5, 10))
            kill_one(process.pid, chaos.chance)
        until_done(process, folder)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        assert process.wait() in (0, 2, -signal.SIGKILL, 130), process.stderr
        assert "Traceback" not in process.stderr, process.stderr
    return folder


def until_done(process: WarmProcess, folder: Path) -> None:
    """Until a collection says that nothing is being done for it any more, or the command is gone."""
    while process.poll() is None:
        with suppress(OSError, ValueError):
            status = json.loads((folder / "status.json").read_text())
            if not status["is_working"]:
                return
        workers = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        if "is open at" in process.stderr and not workers:
            return
        time.sleep(0.2)


def main() -> None:
    """Disturb all of them, and say how it went."""
    from tests.abuse.attack import make

    parser = argparse.ArgumentParser()
    parser.add_argument("videos", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=("index", "embed", "open", "pretrain", "disk"), nargs="+")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["PROVICO_HOME"] = str(folder / "made")
        make(folder)
        videos, encoder = given.videos or folder / "videos", folder / "encoder"
        chaos = Chaos(ForkServer(folder / "processes"), folder / "home", random.Random(given.seed))
        tasks: dict[str, tuple[Sequence[object], Callable[[Path, Path], None]]] = {
            "index": (["index", videos, "--checkpoint", encoder, "--num-workers", "2", "--out"], same_index),
            "embed": (["embed", videos, "--checkpoint", encoder, "--out"], same_embeddings),
        }
        wanted = given.only or ("index", "embed", "open", "pretrain", "disk")
        for task, (words, same) in tasks.items():
            if task not in wanted:
                continue
            ending = ".parquet" if task == "embed" else ""
            peaceful = folder / f"{task}-peaceful{ending}"
            seconds = chaos.in_peace(*words, peaceful)
            for number in range(given.rounds):
                chaos.home = folder / f"home-{task}-{number}"
                out = folder / f"{task}-{number}{ending}"
                chaos.disturbed(seconds, 5, *words, out)
                same(out, peaceful)
            print(f"{task}: {given.rounds} of {given.rounds} as in peace; ends: {chaos.outcomes}", flush=True)
            chaos.outcomes.clear()
        if "open" in wanted:
            chaos.in_peace(*tasks["index"][0], folder / "open-peaceful")
            for number in range(given.rounds):
                found = disturb_open(chaos, videos, folder / f"open-{number}", encoder, 4)
                same_index(found, folder / "open-peaceful")
            print(f"open: {given.rounds} of {given.rounds} as in peace", flush=True)
        if "pretrain" in wanted:
            seconds = chaos.in_peace(*PRETRAIN, videos, "--out", folder / "run-peaceful")
            for number in range(given.rounds):
                chaos.home = folder / f"home-run-{number}"
                chaos.disturbed_run(seconds, 5, folder / f"run-{number}", *PRETRAIN, videos)
                same_run(folder / f"run-{number}", folder / "run-peaceful")
                print(f"pretrain: {number + 1} of {given.rounds} as in peace; {chaos.outcomes}", flush=True)
        if "disk" in wanted:
            disturb_disk(chaos, videos, encoder, folder)
        chaos.server.close()


def disturb_disk(chaos: Chaos, videos: Path, encoder: Path, folder: Path) -> None:
    """A disk that is full, or may only be read: mounted for one process, so that they end with it."""
    mounts = {
        "full": "mount -t tmpfs -o size=4k none {0}",
        "read-only": "mount --bind {0} {0} && mount -o remount,ro,bind {0}",
    }
    for name, mount in mounts.items():
        for verb, out in (("index", "index"), ("embed", "embeddings.parquet")):
            place = folder / f"{name}-{verb}"
            place.mkdir()
            words = ["-m", "provico", verb, videos, "--checkpoint", encoder, "--out", place / out]
            process = chaos.start(*with_mount(mount.format(place), *words))
            assert process.wait() == 2, process.stderr
            print(f"{name} disk, {verb}: {said_once(process.stderr)[:150]}")


if __name__ == "__main__":
    main()
