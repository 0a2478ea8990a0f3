"""How much memory does a loaded index take, and what does it cost to search it?

    python benchmarks/index_memory.py --size 40000 100000
    python benchmarks/index_memory.py --size 100000 --tree OTHER/src    # in turns with another version

An index of made-up videos (those of benchmarks/search_galleries.py, "like real", of made-up clusters) is
opened in a process of its own, made ready and asked, by one thread. "Held" are the bytes of all arrays,
tensors and words that a loaded index keeps; what is in a mapped file does not count, since it can be given
back at any time (files are used from 64 MB on; --mapped uses them at any size). "At most" is the largest
RssAnon meanwhile. CPU milliseconds a query: ranking alone, together and one at a time, and with the rows of
the hits; medians of the rounds. Results: benchmarks/results/index_memory.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from provico import Encoder, EncoderConfig, Index
from provico.probability import Gaussian, MatchCurve
from provico.search import exact_top_k
from provico.search.query import Asked
from provico.search.row_writer import sample_columns
from provico.search.store.folder import IndexFolder
from search_galleries import KINDS, QUERY_CHUNK, VIDEOS_A_CHUNK, Real, chunk

DIM, NUM_CLIPS, NUM_SAMPLES, K = 128, 10, 10, 10
NUM_CLASSES, VIDEOS_A_CLASS, NUM_QUERIES = 30, 20, 64
CURVE = {"a": 0.96, "b": 13.2, "sigmoid_scale": 1.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, nargs="+", default=[20_000, 100_000])
    parser.add_argument("--tree", type=Path, nargs="*", default=[], help="other versions, each a folder src")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scratch", type=Path, help="where indexes are made; 25 kB a video")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/index_memory.json"))
    parser.add_argument("--mapped", action="store_true", help="use files at any size")
    parser.add_argument("--ask", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.ask:
        if given.mapped:
            with suppress(ImportError):  # a version that has none
                mapped = importlib.import_module("provico.search.store.mapped")
                mapped.IN_MEMORY = 0
        print(json.dumps(ask(given.ask, given.size[0])))
        return
    trees = [None, *given.tree]
    found: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for size in given.size:
        folder = Path(tempfile.mkdtemp(prefix="provico-memory-", dir=given.scratch)) / "index"
        try:
            build(folder, size)
            for _ in range(given.rounds):
                for tree in trees:
                    name = "this version" if tree is None else "the other version"
                    found.setdefault(name, {}).setdefault(size, []).append(
                        measured(folder, size, tree, given.mapped)
                    )
        finally:
            shutil.rmtree(folder.parent)
    report = {name: summary(sizes) for name, sizes in found.items()}
    given.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


def measured(folder: Path, size: int, tree: Path | None, is_mapped: bool) -> dict[str, Any]:
    environment = os.environ | ({} if tree is None else {"PYTHONPATH": str(tree.absolute())})
    command = [sys.executable, __file__, "--ask", str(folder), "--size", str(size), *["--mapped"] * is_mapped]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    result: dict[str, Any] = json.loads(run.stdout)
    return result


def summary(sizes: dict[int, list[dict[str, Any]]]) -> dict[str, Any]:
    medians = {
        size: {name: statistics.median(one[name] for one in runs) for name in runs[0]}
        for size, runs in sizes.items()
    }
    first, last = min(medians), max(medians)
    report: dict[str, Any] = {f"{size:,} videos": values for size, values in medians.items()}
    if first < last:
        report["bytes a video"] = {
            name: round((medians[last][name] - medians[first][name]) / (last - first) * 2**20)
            for name in medians[last]
            if name.startswith("megabytes")
        }
    return report


def clusters() -> Real:
    """Videos of some classes, as far apart as real ones are with that curve."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(NUM_CLASSES).repeat_interleave(VIDEOS_A_CLASS)
    centres = F.normalize(torch.randn(NUM_CLASSES, 1, DIM, generator=generator), dim=2)
    videos = 0.6 * F.normalize(torch.randn(len(labels), 1, DIM, generator=generator), dim=2)
    clips = 0.3 * F.normalize(torch.randn(len(labels), NUM_CLIPS, DIM, generator=generator), dim=2)
    means = math.sqrt(DIM) * F.normalize(centres[labels] + videos + clips, dim=2)
    log_var = -2 + 0.3 * torch.randn(len(labels), NUM_CLIPS, DIM, generator=generator)
    return Real(
        Gaussian(means, log_var), labels, MatchCurve(torch.tensor(CURVE["a"]), torch.tensor(CURVE["b"]))
    )


def build(folder: Path, size: int) -> None:
    from search import rows_of

    torch.manual_seed(0)
    encoder = Encoder(EncoderConfig.for_backbone("tiny", dim=DIM)).eval()
    made = Index.create(folder.with_name("empty"), encoder, num_clips=NUM_CLIPS, num_samples=NUM_SAMPLES)
    header = dataclasses.replace(made.settings.embedding, match_curve=CURVE)
    settings = dataclasses.replace(made.settings, embedding=header)
    there = IndexFolder(folder)
    there.create(settings, encoder)
    real = clusters()
    with there.changing(settings) as store:
        for first in range(0, size, VIDEOS_A_CHUNK):
            rows = rows_of(real, KINDS["like real"], first, min(VIDEOS_A_CHUNK, size - first), size)
            num = len(rows["id"])
            rows["label"] = [f"class {number % 50}" for number in range(first, first + num)]
            rows["group"] = [f"recording {number // 5}" for number in range(first, first + num)]
            rows["subset"] = [None] * num
            for name, column in settings.columns.items():
                if column.is_ragged:
                    rows[name] = [np.empty((0, *column.shape), column.dtype)] * num
            store.write(rows | sample_columns(rows, settings))
        store.tidy()


def ask(folder: Path, size: int) -> dict[str, Any]:
    clips = chunk(clusters(), KINDS["like real"], QUERY_CHUNK, NUM_QUERIES, num_videos=size)
    seconds = torch.zeros(NUM_CLIPS, 2, dtype=torch.float64)
    pairs = enumerate(zip(clips.mean, clips.log_var, strict=True))
    questions = [Asked(f"query-{number}", None, None, Gaussian(*one), seconds) for number, one in pairs]
    index = Index.open(folder)
    gc.collect()
    before = megabytes("RssAnon")
    with Peak() as peak:
        began = time.process_time()
        loaded = index.loaded
        gallery = loaded.gallery
        opened = time.process_time() - began
    kept = held(loaded) / 2**20
    queries = torch.cat([one.samples(index.settings) for one in questions])
    curve = index.settings.curve
    found = exact_top_k(queries, gallery, curve=curve, k=K)
    answers = index.search_many(questions, k=K, max_chance=None)
    assert all(one.certificate.is_exact for one in (*found, *answers))
    ranking = cpu(lambda: exact_top_k(queries, gallery, curve=curve, k=K))
    alone = cpu(lambda: [exact_top_k(one[None], gallery, curve=curve, k=K) for one in queries[:16]])
    hits = cpu(lambda: index.search_many(questions, k=K, max_chance=None))
    certificates = [one.certificate for one in found]
    return {
        "megabytes held": kept,
        "megabytes at most while opening": peak.most - before,
        "CPU seconds to open": opened,
        "CPU ms a query, ranking together": 1e3 * ranking / len(queries),
        "CPU ms a query, ranking one at a time": 1e3 * alone / 16,
        "CPU ms a query, with hits": 1e3 * hits / len(queries),
        "scored exactly, mean": statistics.mean(one.num_scored for one in certificates),
        "needed a bound, mean": statistics.mean(one.num_bounded for one in certificates),
        "p of the last hit, median": statistics.median(math.exp(one.scores[-1]) for one in found),
        "sum of log p": sum(float(one.scores.sum()) for one in found),
    }


def held(start: object) -> int:
    """The bytes of all that an object refers to, each once, without modules, code and mapped files."""
    seen: set[int] = set()
    storages: dict[int, int] = {}
    total, left = 0, [start]
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, (type, ModuleType, FunctionType, CodeType)):
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            if not is_mapped(one.data_ptr()):
                storages[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
            continue
        if isinstance(one, np.ndarray):
            total += one.nbytes if one.base is None else 0
            left += one.tolist() if one.dtype == object else []
            left += [one.base] if isinstance(one.base, np.ndarray) else []
            continue
        if type(one).__module__.startswith(("provico", "builtins")):
            total += sys.getsizeof(one)
            left += gc.get_referents(one)
    return total + sum(storages.values())


def is_mapped(address: int) -> bool:
    """Whether a file is behind an address of this process."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, _, _, inode, *_ = line.split()
        first, last = (int(end, 16) for end in span.split("-"))
        if first <= address < last:
            return inode != "0"
    return False


class Peak:
    """The most memory of its own that a process had meanwhile."""

    def __enter__(self) -> Peak:
        self.most, self._ends = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self._ends.wait(0.01):
            self.most = max(self.most, megabytes("RssAnon"))

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()


def megabytes(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) / 1024


def cpu(call: Callable[[], object], *, rounds: int = 5) -> float:
    spent = []
    for _ in range(rounds):
        began = time.process_time()
        call()
        spent.append(time.process_time() - began)
    return statistics.median(spent)


if __name__ == "__main__":
    main()
