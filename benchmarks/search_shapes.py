"""Exact search among many videos shaped like several real sets: does it hold its speed, query by query?

    provico embed DATA --checkpoint RUN --out NAME.parquet      # for each set and each encoder
    python benchmarks/search_shapes.py *.parquet --size 100000

Galleries are those of benchmarks/search_galleries.py ("like real"), samples in memory, one thread. Exact
search, FAISS flat on the means (`pip install faiss-cpu`) and the naive scan (torch.cdist on all pairs of
samples, on a part of the gallery and scaled up) take turns. CPU seconds, once for all queries together and
once for each by itself, since some queries are hard; medians of the rounds. Some answers are compared with a
scan of everything that no bound has a part in. `benchmarks/search_limits.py` says what the bounds could reach
at best. Results: benchmarks/results/search_shapes.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
from torch import Tensor

from provico import Mixture
from provico.probability import MatchCurve, log_match_scores
from provico.probability.seeded_samples import seeded_samples
from provico.search import Gallery, TopK, exact_log_probabilities, exact_top_k
from provico.search.exact.rounded import eight_bits_are_fast
from search import LIKELY, NAIVE_QUERIES, NAIVE_VIDEOS, NUM_SAMPLES, K, problem
from search_galleries import QUERY_CHUNK, VIDEOS_A_CHUNK, chunk
from search_kernels import naive
from search_limits import limits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("embeddings", type=Path, nargs="+")
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--num-queries", type=int, default=64)
    parser.add_argument("--num-checked", type=int, default=8)
    parser.add_argument("--num-limits", type=int, default=16, help="queries of which the limits are found")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/search_shapes.json"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    report: dict[str, Any] = {
        "machine": {
            "cpu": platform.machine(),
            "capability": torch.backends.cpu.get_cpu_capability(),
            "eight bits": eight_bits_are_fast(),
        },
        "videos": given.size,
    }
    for path in given.embeddings:
        given.kind = ["like real"]
        report[path.stem] = measure(path, given)
        print(path.stem, json.dumps(report[path.stem], indent=1), flush=True)
        given.out.write_text(json.dumps(report, indent=1) + "\n")


def measure(path: Path, given: argparse.Namespace) -> dict[str, Any]:
    given.embeddings = path
    samples, means, queries, their_means, curve = made_up(given)
    began = time.process_time()
    gallery = Gallery.of_samples(samples)
    built = time.process_time() - began
    flat = faiss.IndexFlatL2(means.shape[1])
    flat.add(means)
    part = samples[: min(NAIVE_VIDEOS, len(samples))]
    cold = cpu(lambda: exact_top_k(queries, gallery, curve=curve, k=K))
    found = exact_top_k(queries, gallery, curve=curve, k=K)
    together: dict[str, list[float]] = {"exact": [], "faiss": [], "naive": []}
    alone: dict[str, list[list[float]]] = {"exact": [], "faiss": []}
    for _ in range(given.rounds):
        together["exact"].append(cpu(lambda: exact_top_k(queries, gallery, curve=curve, k=K)) / len(queries))
        together["faiss"].append(cpu(lambda: flat.search(their_means, K)) / len(queries))
        scan = cpu(lambda: [naive(queries[:NAIVE_QUERIES], some, curve) for some in part.split(2048)])
        together["naive"].append(scan / NAIVE_QUERIES * len(samples) / len(part))
        each = range(len(queries))
        alone["exact"].append(
            [cpu(lambda i=i: exact_top_k(queries[i : i + 1], gallery, curve=curve, k=K)) for i in each]
        )
        alone["faiss"].append([cpu(lambda i=i: flat.search(their_means[i : i + 1], K)) for i in each])
    seconds = {name: float(np.median(values)) for name, values in together.items()}
    apart = {name: np.median(values, axis=0) for name, values in alone.items()}
    certificates = [top.certificate for top in found]
    nearest = flat.search(their_means, K)[1].tolist()
    pairs = zip(found, nearest, strict=True)
    shared = [len({*top.rows.tolist()} & {*theirs}) for top, theirs in pairs]
    return {
        "p of the last hit, median": float(f"{np.median([np.exp(top.scores[-1]) for top in found]):.3g}"),
        "milliseconds a query, together": {name: round(1e3 * value, 2) for name, value in seconds.items()},
        "times the naive scan": round(seconds["naive"] / seconds["exact"], 1),
        "times faiss flat": round(seconds["faiss"] / seconds["exact"], 2),
        "milliseconds a query, alone: median, 95 %": {
            name: [round(1e3 * float(np.quantile(values, share)), 2) for share in (0.5, 0.95)]
            for name, values in apart.items()
        },
        "milliseconds a query, the first time": round(1e3 * cold / len(queries), 2),
        "scored exactly: median, 95 %, most": spread([one.num_scored for one in certificates]),
        "needed a bound: median, 95 %, most": spread([one.num_bounded for one in certificates]),
        "share certified": float(np.mean([one.is_exact for one in certificates])),
        "equal to a scan of all": equal_to_scan(queries[: given.num_checked], samples, curve, found),
        "found by faiss flat": round(float(np.mean(shared)) / K, 3),
        "limits": limits(
            samples,
            queries[: given.num_limits],
            [float(top.scores[-1]) for top in found[: given.num_limits]],
            curve,
        ),
        "seconds to build": round(built, 1),
        "peak megabytes so far": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def made_up(given: argparse.Namespace) -> tuple[Tensor, Any, Tensor, Any, MatchCurve]:
    """Samples and means of the gallery and of the queries."""
    real, kind = problem(given)
    numbers = [(first // VIDEOS_A_CHUNK, min(VIDEOS_A_CHUNK, given.size - first)) for first in
               range(0, given.size, VIDEOS_A_CHUNK)]  # fmt: skip
    samples, means = [], []
    for number, size in [*numbers, (QUERY_CHUNK, given.num_queries)]:
        mixture = Mixture(chunk(real, kind, number, size, num_videos=given.size))
        names = [f"{number}-{place}" for place in range(size)]
        stream = "query" if number == QUERY_CHUNK else "gallery"
        samples.append(seeded_samples(names, mixture, num_samples=NUM_SAMPLES, seed=0, stream=stream).float())
        means.append(mixture.mean.numpy())
    return torch.cat(samples[:-1]), np.concatenate(means[:-1]), samples[-1], means[-1], real.curve


def equal_to_scan(queries: Tensor, samples: Tensor, curve: MatchCurve, found: list[TopK]) -> float:
    """The share of answers that are those of a scan: in float32, and of the best of these in float64."""
    scores = [log_match_scores(queries, some, curve=curve, num_ranked=K) for some in samples.split(2048)]
    likely = torch.cat(scores, dim=1).topk(LIKELY, dim=1).indices.sort(dim=1).values
    num_equal = 0
    for query, rows, top in zip(queries, likely, found, strict=False):
        exact = exact_log_probabilities(query.expand(LIKELY, -1, -1), samples[rows], curve=curve)
        best, order = exact.sort(descending=True, stable=True)
        is_near = torch.allclose(best[:K], top.scores, rtol=1e-11, atol=0)
        num_equal += is_near and torch.equal(rows[order[:K]], top.rows)
    return num_equal / len(queries)


def cpu(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def spread(values: list[int]) -> list[float]:
    return [float(round(np.quantile(values, share))) for share in (0.5, 0.95, 1)]


if __name__ == "__main__":
    main()
