"""What does a training step cost beside another busy program?

    python benchmarks/beside.py

Forward and backward of `tiny` with as many threads as there are cores, alone and beside one program that
never rests, in processes of their own that take turns. The contenders differ in how threads wait for each
other:

    as torch does    actively, for long: quick where cores are free
    passively        they sleep at once, as in commands that begin on a busy machine (provico.threads)
    briefly          actively, but soon they sleep, as in other commands
    one thread       there is nothing to wait for

Given are medians over the rounds, and how many times as long a step takes beside the other program. The load
of the machine is noted: what else runs on it is beside all of them, also where it says alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

from provico.threads import SPINS

CONTENDERS: dict[str, dict[str, str]] = {
    "as torch does": {},
    "passively": {"OMP_WAIT_POLICY": "passive"},
    "briefly": {"GOMP_SPINCOUNT": str(SPINS)},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", default="tiny 8x64")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each turn")
    parser.add_argument("--spins", type=int, nargs="*", default=[], help="try these as well")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/beside.json"))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        take_turns(options)
        return
    contenders = CONTENDERS | {f"{spins} spins": {"GOMP_SPINCOUNT": str(spins)} for spins in options.spins}
    print(f"load {os.getloadavg()[0]:.1f} before it began", flush=True)
    load = os.getloadavg()[0]
    children = {name: start(options, variables) for name, variables in contenders.items()}
    alone: dict[str, list[float]] = {name: [] for name in contenders}
    beside: dict[str, list[float]] = {name: [] for name in contenders}
    try:
        for _ in range(options.rounds):
            for name, child in children.items():
                alone[name].append(turn(child))
                with busy_program():
                    beside[name].append(turn(child))
    finally:
        for child in children.values():
            child.kill()
            child.wait()
    report: dict[str, Any] = {"case": options.case, "cores": os.cpu_count(), "load before": round(load, 1)}
    for name in contenders:
        ratios = [there / here for here, there in zip(alone[name], beside[name], strict=True)]
        report[name] = {
            "alone_ms": round(1000 * median(alone[name]), 1),
            "beside_ms": round(1000 * median(beside[name]), 1),
            "times": round(median(ratios), 2),
            "times_from_to": [round(min(ratios), 2), round(max(ratios), 2)],
        }
        print(name, report[name], flush=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n")


def start(options: argparse.Namespace, variables: dict[str, str]) -> subprocess.Popen[str]:
    """A process with these variables, which takes its turns when it is told to."""
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    command = [sys.executable, __file__, "--child", "--case", options.case, "--seconds", str(options.seconds)]
    child = subprocess.Popen(
        command, env=kept | variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    child.stdout.readline()  # it is warm
    return child


def turn(child: subprocess.Popen[str]) -> float:
    """Seconds of a step."""
    assert child.stdin is not None
    assert child.stdout is not None
    print(file=child.stdin, flush=True)
    return float(child.stdout.readline())


@contextmanager
def busy_program() -> Iterator[None]:
    """One that never rests."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as program:
        try:
            yield
        finally:
            program.kill()


def take_turns(options: argparse.Namespace) -> None:
    """Warm up, then at each line of input: steps for some seconds, and how long one took."""
    from step import make_step

    run, _ = make_step(options.case, "ours")
    for _ in range(3):
        run()
    print("warm", flush=True)
    for _ in sys.stdin:
        num, began = 0, time.perf_counter()
        while time.perf_counter() - began < options.seconds:
            run()
            num += 1
        print((time.perf_counter() - began) / num, flush=True)


if __name__ == "__main__":
    main()
