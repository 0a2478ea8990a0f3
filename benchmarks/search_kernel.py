"""How many videos does exact search score, and how fast is it, in memory?

    python benchmarks/search_kernel.py                                      # synthetic clouds only
    python benchmarks/search_kernel.py --run RUN --data DATA                # and clouds shaped like real ones

Kernels: the match probability of a pair of videos (K x K samples) by torch.cdist, by `provico.probability`,
and by the kernels of `provico.search`.

Search: the k best of a gallery by `exact_top_k`, against the naive scan with torch.cdist, which is timed on a
part of the gallery. With faiss installed also its flat L2 index on the means alone, which is what a search
without samples would do, and the share of the exact answer that it finds. Galleries:

    real        the videos of DATA, embedded by the encoder of RUN; half of them ask
    like real   mixtures of two real videos of a class, with noise, each in one of many turned copies of space
    loose       the same with so much noise that few videos are close
    outliers    the first of these, asked by queries that have no relatives in it
    others      means on the unit sphere in classes; cloud radius, its log-deviation, a, b, number of classes

Contenders take turns, so that whatever else the machine does hurts all alike. Given are medians.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from provico import Encoder, open_catalog
from provico.evaluation.embedding import embed
from provico.probability import Gaussian, MatchCurve, Mixture, log_match_probability, log_match_scores
from provico.search import Gallery, exact_log_probabilities, exact_top_k
from provico.search.scoring import screen

DIM, NUM_SAMPLES, K = 128, 10, 10
SYNTHETIC = [
    (0.1, 0.3, 5, 5, 100), (0.3, 0.3, 5, 5, 100), (0.6, 0.3, 5, 5, 100), (1.0, 0.3, 5, 5, 100),
    (0.3, 0.3, 10, 5, 100), (0.3, 0.3, 20, 8, 100), (0.3, 0.3, 5, 5, 1), (0.3, 0.5, 5, 5, 1000),
    (0.3, 0.8, 10, 5, 100),
]  # fmt: skip
VIDEOS_PER_WORLD = 1000
NAIVE_PART = 16384
"""Videos on which the naive scan is timed: more than fit into the cache, as those of the whole gallery."""
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}

Case = tuple[Tensor, Tensor, MatchCurve]
"""Samples of queries and of the gallery."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, help="a run of pretraining, for real clouds")
    parser.add_argument("--data", type=Path, help="the videos for it")
    parser.add_argument("--num-videos", type=int, nargs="*", default=[10_000, 100_000])
    parser.add_argument("--num-queries", type=int, default=64)
    parser.add_argument("--num-checked", type=int, default=8, help="queries checked against a float64 scan")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/search_kernel.json"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    report: dict[str, Any] = {
        "machine": {"cpu": platform.processor() or platform.machine(), "threads": options.threads},
        "clock": options.clock,
        "kernels, microseconds a pair": kernels(options),
        "search": [],
    }
    real = real_clips(options) if options.run else None
    for name, case, is_timed in cases(options, real):
        row = {"gallery": name, "videos": len(case[1])} | search(case, options, is_timed=is_timed)
        print(json.dumps(row), flush=True)
        report["search"].append(row)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n")


def cases(options: argparse.Namespace, real: dict[str, Any] | None):
    num_queries = options.num_queries
    if real is not None:
        yield "real", real_case(real), False
        for num_videos in options.num_videos:
            queries, gallery, curve = like_real(real, num_videos, num_queries)
            yield "like real", (queries, gallery, curve), True
            rotated = queries @ rotation(torch.Generator().manual_seed(5))
            yield "outliers", (rotated, gallery, curve), True
            yield "loose", like_real(real, num_videos, num_queries, mix=1.0, noise=1.0), True
    for setting in SYNTHETIC:
        yield str(setting), synthetic(*setting, options.num_videos[0], num_queries), False


# --- measuring ---------------------------------------------------------------------------------------------


def kernels(options: argparse.Namespace) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    queries, videos = (torch.randn(n, NUM_SAMPLES, DIM, generator=generator) for n in (16, 512))
    curve = MatchCurve(torch.tensor(0.5), torch.tensor(5.0))
    few = videos[:64]
    contenders: dict[str, tuple[int, Callable[[], object]]] = {
        "torch.cdist, 1 query": (512, lambda: naive(queries[:1], videos, curve)),
        "torch.cdist, 16 queries": (16 * 512, lambda: naive(queries, videos, curve)),
        "provico.probability, 16 queries": (
            16 * 512,
            lambda: log_match_probability(queries, videos, curve=curve),
        ),
        "search: 16 queries": (16 * 512, lambda: log_match_scores(queries, videos, curve=curve)),
        "search: 1 query with error bounds": (512, lambda: screen(queries[0], videos, curve=curve)),
        "search: float64": (
            64,
            lambda: exact_log_probabilities(queries[:1].expand(64, -1, -1), few, curve=curve),
        ),
    }
    seconds = take_turns({name: call for name, (_, call) in contenders.items()}, options, rounds=15)
    return {name: round(1e6 * seconds[name] / num, 3) for name, (num, _) in contenders.items()}


@torch.no_grad()
def naive(queries: Tensor, videos: Tensor, curve: MatchCurve) -> Tensor:
    """As one would write it first."""
    distances = torch.cdist(queries.flatten(0, 1), videos.flatten(0, 1))
    p = torch.sigmoid(curve.b - curve.a * distances)
    return p.view(len(queries), NUM_SAMPLES, len(videos), NUM_SAMPLES).mean(dim=(1, 3))


def search(case: Case, options: argparse.Namespace, *, is_timed: bool) -> dict[str, Any]:
    queries, videos, curve = case
    began = CLOCKS[options.clock]()
    gallery = Gallery.of_samples(videos)
    build_seconds = CLOCKS[options.clock]() - began
    found = exact_top_k(queries, gallery, curve=curve, k=K)
    scored = [top.num_scored for top in found]
    bounded = [top.num_bounded for top in found]
    best = [math.exp(float(top.log_probabilities[-1])) for top in found]
    row: dict[str, Any] = {
        "p of the 10th": [float(f"{end:.3g}") for end in (median(best), min(best), max(best))],
        "scored: median, mean, max": [median(scored), round(float(np.mean(scored)), 1), max(scored)],
        "bounded: median, mean, max": [median(bounded), round(float(np.mean(bounded)), 1), max(bounded)],
        "certified": sum(top.is_certified for top in found) / len(found),
        "exact": exact_share(queries[: options.num_checked], videos, curve, found),
        "build seconds": round(build_seconds, 2),
    }
    if not is_timed:
        return row
    part = videos[:NAIVE_PART]
    contenders: dict[str, Callable[[], object]] = {
        "exact": lambda: exact_top_k(queries, gallery, curve=curve, k=K),
        "exact, one at a time": lambda: [
            exact_top_k(one[None], gallery, curve=curve, k=K) for one in queries[:4]
        ],
        "naive": lambda: [naive(queries[:4], some, curve) for some in torch.split(part, 2048)],
    }
    shares = {
        "exact": len(queries),
        "exact, one at a time": min(4, len(queries)),
        "naive": min(4, len(queries)) * len(part) / len(videos),
    }
    try:
        import faiss
    except ImportError:
        print("faiss is not installed, so that there is no comparison with it.")
    else:
        faiss.omp_set_num_threads(options.threads)
        flat = faiss.IndexFlatL2(DIM)
        flat.add(videos.mean(dim=1).numpy())
        means = queries.mean(dim=1).numpy()
        _, nearest = flat.search(means, K)
        pairs = zip(nearest, found, strict=True)
        shared = [len(set(ours.numbers.tolist()) & set(theirs.tolist())) for theirs, ours in pairs]
        row["recall of faiss"] = round(float(np.mean(shared)) / K, 3)
        contenders["faiss"], shares["faiss"] = lambda: flat.search(means, K), len(queries)
    seconds = take_turns(contenders, options, rounds=options.rounds)
    per_query = {name: 1e3 * seconds[name] / shares[name] for name in contenders}
    row["milliseconds a query"] = {name: round(value, 2) for name, value in per_query.items()}
    row["times the naive scan"] = round(per_query["naive"] / per_query["exact"], 1)
    if "faiss" in per_query:
        row["times faiss"] = round(per_query["faiss"] / per_query["exact"], 2)
    return row


def exact_share(queries: Tensor, videos: Tensor, curve: MatchCurve, found: list[Any]) -> float:
    """The share of queries whose answer is that of a float64 scan of everything."""
    right = []
    for query, top in zip(queries, found, strict=False):
        scores = torch.cat(
            [
                exact_log_probabilities(query.expand(len(part), -1, -1), part, curve=curve)
                for part in torch.split(videos, 2048)
            ]
        )
        best, order = scores.sort(descending=True, stable=True)
        is_same = torch.equal(order[:K], top.numbers)
        right.append(is_same and torch.allclose(best[:K], top.log_probabilities, rtol=1e-11, atol=0))
    return float(np.mean(right))


def take_turns(
    contenders: dict[str, Callable[[], object]], options: argparse.Namespace, *, rounds: int
) -> dict[str, float]:
    clock = CLOCKS[options.clock]
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, call in contenders.items():
            began = clock()
            call()
            if number:  # the first round warms up
                seconds[name].append(clock() - began)
    return {name: median(values) for name, values in seconds.items()}


# --- galleries ---------------------------------------------------------------------------------------------


def real_clips(options: argparse.Namespace) -> dict[str, Any]:
    encoder = Encoder.from_pretrained(options.run / "encoder").eval()
    embeddings = embed(encoder, open_catalog(options.data))
    curve = encoder.match_curve()
    names = sorted({str(label) for label in embeddings.labels})
    return {
        "clips": embeddings.videos.clips,
        "labels": torch.tensor([names.index(str(label)) for label in embeddings.labels]),
        "curve": MatchCurve(curve.a.detach(), curve.b.detach(), curve.sigmoid_scale),
    }


def real_case(real: dict[str, Any]) -> Case:
    videos = Mixture(real["clips"]).moment_matched
    samples = videos.sample(2 * NUM_SAMPLES, generator=torch.Generator().manual_seed(0))
    # Other samples than those of the gallery: a query should not find itself by its noise.
    return samples[::2, NUM_SAMPLES:], samples[:, :NUM_SAMPLES], real["curve"]


def like_real(
    real: dict[str, Any], num_videos: int, num_queries: int, *, mix: float = 0.3, noise: float = 0.3
) -> Case:
    generator = torch.Generator().manual_seed(0)
    clips, labels = real["clips"], real["labels"]
    num, dim = num_videos + num_queries, clips.dim
    first = torch.randint(len(labels), (num,), generator=generator)
    # Another video of the same class: its class begins at `starts` in an order by class.
    by_class, counts = labels.argsort(stable=True), labels.bincount()
    starts, place = counts.cumsum(0) - counts, torch.rand(num, generator=generator)
    second = by_class[starts[labels[first]] + (place * counts[labels[first]]).long()]
    worlds = max(1, num_videos // VIDEOS_PER_WORLD)
    world = torch.randint(worlds, (num,), generator=generator)
    samples = torch.empty(num, NUM_SAMPLES, dim)
    for number in range(worlds):
        turn = rotation(generator)
        for part in torch.split((world == number).nonzero().squeeze(1), 2048):
            share = mix * torch.rand(len(part), 1, 1, generator=generator)
            means = (1 - share) * clips.mean[first[part]] + share * clips.mean[second[part]]
            means = means + noise * torch.randn(len(part), 1, dim, generator=generator)
            means = math.sqrt(dim) * F.normalize(means, dim=2) @ turn
            wider = 0.3 * torch.randn(len(part), 1, 1, generator=generator)
            videos = Mixture(Gaussian(means, clips.log_var[first[part]] + wider)).moment_matched
            samples[part] = videos.sample(NUM_SAMPLES, generator=generator)
    return samples[num_videos:], samples[:num_videos], real["curve"]


def synthetic(
    radius: float, hetero: float, a: float, b: float, classes: int, num_videos: int, num_queries: int
) -> Case:
    generator = torch.Generator().manual_seed(0)
    num = num_videos + num_queries
    centres = F.normalize(torch.randn(classes, DIM, generator=generator), dim=1)
    noise = 0.5 * torch.randn(num, DIM, generator=generator) / math.sqrt(DIM)
    means = F.normalize(centres[torch.randint(classes, (num,), generator=generator)] + noise, dim=1)
    widths = radius / math.sqrt(DIM) * torch.exp(hetero * torch.randn(num, 1, 1, generator=generator))
    samples = means.unsqueeze(1) + widths * torch.randn(num, NUM_SAMPLES, DIM, generator=generator)
    return (
        samples[num_videos:],
        samples[:num_videos],
        MatchCurve(torch.tensor(float(a)), torch.tensor(float(b))),
    )


def rotation(generator: torch.Generator) -> Tensor:
    return torch.linalg.qr(torch.randn(DIM, DIM, generator=generator)).Q


if __name__ == "__main__":
    main()
