"""What does `provico index` cost for a video, part by part, against another version?

    python benchmarks/indexing.py RUN DATA --num-videos 100
    git archive COMMIT | tar -x -C /tmp/before
    python benchmarks/indexing.py RUN DATA --against /tmp/before/src OTHER_RUN

Nothing is remembered from before: files are decoded and embedded, rows are written. One process and one
thread on each side, in CPU seconds with those of child processes; the sides take turns, and of the rounds
there are medians. A part is what a function takes without the parts inside it. `in Python` is `Index.add` in
a process as it starts; `as the command` keeps freed memory, as commands do, which spares torch a lot.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

PARTS = {
    "index_video": "decode once, frame index",
    "read_scaled": "clips",
    "read_clips": "clips",
    "make_thumbnail": "thumbnail",
    "make_previews": "preview and thumbnail",
    "content_hash": "hash of the content",
    "features": "network",
    "from_features": "heads and evidence",
    "sample_columns": "samples",
    "write": "rows",
    "tidy": "rows",
}
"""Functions, wherever they are, and methods of `Encoder` and the store, by what they do."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a run whose encoder is used")
    parser.add_argument("data", type=Path)
    parser.add_argument("--against", type=Path, nargs=2, metavar=("SRC", "RUN"), help="another version")
    parser.add_argument("--num-videos", type=int, default=100)
    parser.add_argument("--num-clips", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/indexing.json"))
    parser.add_argument("--child", choices=("in Python", "as the command"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options)))
        return
    sides = {"now": (Path(__file__).parents[1] / "src", options.run)}
    if options.against:
        sides["before"] = (options.against[0], options.against[1])
    found: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(options.rounds):
        for way in ("as the command", "in Python"):
            for name, (source, run) in sides.items():
                found[way][name].append(in_a_process(options, source, run, way))
                print(way, name, found[way][name][-1], flush=True)
    report: dict[str, Any] = {"cpu": platform.processor() or platform.machine(), "rounds": options.rounds}
    for way, by_side in found.items():
        report[way] = {name: summary(rounds) for name, rounds in by_side.items()}
        if options.against:
            totals = [
                [one["CPU milliseconds a video"] for one in by_side[name]] for name in ("before", "now")
            ]
            ratios = [before / now for before, now in zip(*totals, strict=True)]
            report[way]["times faster: median, least, most"] = [
                round(value, 2) for value in (median(ratios), min(ratios), max(ratios))
            ]
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


def in_a_process(options: argparse.Namespace, source: Path, run: Path, way: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as home:
        environment = os.environ | {"PYTHONPATH": str(source), "PROVICO_HOME": home, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-W", "ignore", __file__, str(run.resolve()), str(options.data.resolve())]
        command += ["--child", way, "--num-videos", str(options.num_videos)]
        command += ["--num-clips", str(options.num_clips)]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def summary(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    def middle(values: list[Any]) -> Any:
        if isinstance(values[0], dict):
            names = dict.fromkeys(name for value in values for name in value)
            return {name: middle([value.get(name, 0.0) for value in values]) for name in names}
        return round(median(values), 2)

    return {name: middle([one[name] for one in rounds]) for name in rounds[0]}


# --- one process -------------------------------------------------------------------------------------------


def cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, who))


class Clock:
    """CPU seconds by part, each without the parts inside it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inside: list[float] = []

    def wrap(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, counted as a part."""

        @functools.wraps(function)
        def timed(*given: Any, **named: Any) -> Any:
            began = time.process_time()
            self._inside.append(0.0)
            try:
                return function(*given, **named)
            finally:
                taken = time.process_time() - began
                self.seconds[part] += taken - self._inside.pop()
                if self._inside:
                    self._inside[-1] += taken

        return timed

    def wrap_all(self) -> None:
        """In every module that has imported them."""
        wrapped: dict[int, Any] = {}
        for module in [module for name, module in sys.modules.items() if name.startswith("provico")]:
            for name, part in PARTS.items():
                function = vars(module).get(name)
                if callable(function) and not isinstance(function, type):
                    wrapped.setdefault(id(function), self.wrap(part, function))
                    setattr(module, name, wrapped[id(function)])
        from provico.models.encoder import Encoder

        try:
            from provico.search.store.lance import LanceStore
        except ImportError:  # where 0.1.0 has it
            from provico.search.lance_store import LanceStore
        for owner, names in ((Encoder, ("features", "from_features")), (LanceStore, ("write", "tidy"))):
            for name in names:
                setattr(owner, name, self.wrap(PARTS[name], getattr(owner, name)))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    import torch

    from provico import Index, Library, open_catalog, open_encoder

    torch.set_num_threads(1)
    if options.child == "as the command":
        try:
            from provico.processes import keep_freed_memory
        except ImportError:  # where 0.1.0 has it
            from provico.models import keep_freed_memory
        keep_freed_memory()
    catalog = open_catalog(options.data)
    step = max(1, len(catalog) // options.num_videos)
    catalog = catalog.subset(range(0, len(catalog), step)[: options.num_videos])
    encoder, clock = open_encoder(options.run), Clock()
    with tempfile.TemporaryDirectory() as folder:
        index = Index.create(Path(folder) / "index", encoder, num_clips=options.num_clips)
        clock.wrap_all()
        started = cpu_seconds()
        added = index.add(catalog, library=Library())
        taken = cpu_seconds() - started
        thumbnails = [len(index.thumbnail(name)) for name in index.ids]
    num = added.num_added
    milliseconds = {part: 1e3 * seconds / num for part, seconds in sorted(clock.seconds.items())}
    milliseconds["all else"] = 1e3 * taken / num - sum(milliseconds.values())
    return {
        "videos": num,
        "CPU milliseconds a video": 1e3 * taken / num,
        "by part": milliseconds,
        "CPU seconds before the first video": started,
        "bytes of a thumbnail": sum(thumbnails) / len(thumbnails),
        "peak megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


if __name__ == "__main__":
    main()
