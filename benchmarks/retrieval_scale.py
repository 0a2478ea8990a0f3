"""Retrieval at the size of UCF101: 3,783 queries against 9,537 videos, K = 10, D = 128.

    python benchmarks/retrieval_scale.py

Made-up distributions, since only their number matters here. Each metric runs in a process of its own, so that
its peak memory is its own; the naive scan (torch.cdist on all pairs of samples, some queries at a time) is
timed on a few queries of the same run and scaled up. Results: benchmarks/results/retrieval_scale.json.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch

from provico.embedding.embeddings import Embeddings
from provico.evaluation.retrieval import retrieve
from provico.probability import Gaussian, MatchCurve, Mixture
from provico.probability.seeded_samples import seeded_samples

NUM_QUERIES, NUM_GALLERY, NUM_CLASSES, NUM_CLIPS, DIM, NUM_SAMPLES = 3783, 9537, 101, 10, 128, 10
METRICS = ("match", "cosine", "squared_euclidean_expected", "bhattacharyya", "wasserstein2_squared")
NAIVE_QUERIES = 64
RESULTS = Path("benchmarks/results/retrieval_scale.json")
CURVE = MatchCurve(torch.tensor(1.0), torch.tensor(8.0))


def made_up(prefix: str, number: int, seed: int) -> Embeddings:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(NUM_CLASSES, (number,), generator=generator)
    centres = torch.randn(NUM_CLASSES, DIM, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(number, NUM_CLIPS, DIM, generator=generator)
    log_var = -2 + 0.3 * torch.randn(number, NUM_CLIPS, DIM, generator=generator)
    return Embeddings(
        ids=tuple(f"{prefix}{place}" for place in range(number)),
        videos=Mixture(Gaussian(centres[labels].unsqueeze(1) + noise, log_var)),
        labels=tuple(str(label) for label in labels.tolist()),
        groups=(None,) * number,
    )


def naive_seconds_per_query(queries: Embeddings, gallery: Embeddings) -> float:
    ours, theirs = (
        seeded_samples(of.ids, of.videos, num_samples=NUM_SAMPLES, seed=0) for of in (queries, gallery)
    )
    flat = theirs.flatten(0, 1)
    began = time.perf_counter()
    for query in ours[:NAIVE_QUERIES]:
        distances = torch.cdist(query, flat).view(NUM_SAMPLES, len(theirs), NUM_SAMPLES)
        probability = torch.sigmoid(CURVE.b - CURVE.a * distances).mean(dim=(0, 2))
        probability.sort(descending=True)
    return (time.perf_counter() - began) / NAIVE_QUERIES


def measure(metric: str) -> dict[str, float]:
    torch.set_num_threads(2)
    queries, gallery = made_up("query", NUM_QUERIES, 1), made_up("gallery", NUM_GALLERY, 2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    report = retrieve(queries, gallery, metric=metric, curve=CURVE, ks=(1, 5, 10, 20, 50))
    result = {
        "seconds": time.perf_counter() - began,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "of_which_before": before / 1024,
        "R@1": report.recalls[1],
    }
    if metric == "match":
        result["naive_seconds"] = naive_seconds_per_query(queries, gallery) * NUM_QUERIES
    return {name: round(value, 3) for name, value in result.items()}


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
        return
    results = {}
    for metric in METRICS:
        run = subprocess.run([sys.executable, __file__, metric], capture_output=True, text=True, check=True)
        results[metric] = json.loads(run.stdout)
        print(metric, results[metric], flush=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
