"""For benchmarks/search_shapes.py: how many videos must any certificate of exact search look at?

The threshold is the true score of the tenth, known from the start, and nothing is rounded. A video is left
by a bound if the bound, given what it knows, cannot dismiss it:

    spread      the mean of the squared distances, and the widths of both clouds
    A           and the variance over the query's samples: K products with the middle of the video
    A and B     and that over the video's samples: K products with the samples of the video
    variance    the exact mean and variance: K x K products
    mean        the mean, if the variance were 0: what no bound by mean and variance dismisses

The least cost is that of products of eight bits and of sums of their squares alone, and of scores in float64:
a pass over all middles, A of what the spread leaves, B of what A leaves, and so on. Nothing is sorted, copied
or compared, and no radius, table or Python costs anything.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provico.probability import MatchCurve
from provico.search import MomentBound, describe, exact_log_probabilities
from provico.search.exact.clouds import Spread
from provico.search.exact.rounded import products_of_codes
from provico.search.exact.sample_codes import cross_std

NUM_MEANS = 4096
VIDEOS_AT_ONCE = 4096
KERNEL_VIDEOS = {64: 1024, 1: 4096}
"""Videos in one step of a kernel, by queries: what it makes stays in the cache."""
STAGES = ("spread", "A", "A and B", "variance", "mean")


@torch.no_grad()
def limits(samples: Tensor, queries: Tensor, tenth: list[float], curve: MatchCurve) -> dict[str, Any]:
    """What is left at each stage, over some queries: median and 95 %; and the least cost of each query."""
    mean, spread = describe(samples)
    cross = torch.cat(
        [cross_std(deviations(part), moved=0.0) for part in samples.split(VIDEOS_AT_ONCE)]
    ).double()
    bound = MomentBound.of(curve)
    left = [
        left_of(query, math.exp(score), samples, mean, spread, cross, bound)
        for query, score in zip(queries, tenth, strict=True)
    ]
    counts = {stage: np.array([one[stage] for one in left]) for stage in STAGES}
    costs = {num: nanoseconds(samples, num, curve) for num in KERNEL_VIDEOS}
    least = {num: least_cost(counts, cost, len(samples)) for num, cost in costs.items()}
    return {
        "queries": len(queries),
        "left: median, 95 %": {name: median_and_95(values) for name, values in counts.items()},
        "nanoseconds a video, 64 queries": {name: round(value, 2) for name, value in costs[64].items()},
        "nanoseconds a video, alone": {name: round(value, 2) for name, value in costs[1].items()},
        "least milliseconds a query, together": round(float(least[64].mean()), 2),
        "least milliseconds a query, alone: median, 95 %": median_and_95(least[1]),
    }


def left_of(
    query: Tensor,
    probability: float,
    samples: Tensor,
    mean: Tensor,
    spread: Spread,
    cross: Tensor,
    bound: MomentBound,
) -> dict[str, int]:
    """How many videos each stage leaves."""
    middle, of_query = describe(query.unsqueeze(0))
    u = query.double() - middle
    gap = middle - mean
    squared = gap.square().sum(dim=1)
    distance = squared + of_query.mean_square + spread.mean_square
    means = torch.linspace(0, float(distance.max()), NUM_MEANS, dtype=torch.float64)
    most = bound.most_var(means, torch.tensor(probability, dtype=torch.float64)).cummax(dim=0).values
    room = most[(distance / float(distance.max()) * (NUM_MEANS - 1)).long()]
    a = (u.square().sum(dim=1) + 2 * gap @ u.T).var(dim=1, correction=0)
    b, crossed = torch.empty_like(a), torch.empty_like(a)
    for first in range(0, len(samples), VIDEOS_AT_ONCE):
        some = slice(first, first + VIDEOS_AT_ONCE)
        v = deviations(samples[some])
        b[some] = (v.square().sum(dim=2) - 2 * (v * gap[some].unsqueeze(1)).sum(dim=2)).var(
            dim=1, correction=0
        )
        crossed[some] = 4 * (v @ u.T).square().mean(dim=(1, 2))
    most_a = (of_query.square_std + 2 * of_query.axis_std * squared.sqrt()).square()
    most_b = (spread.square_std + 2 * spread.axis_std * squared.sqrt()).square()
    most_crossed = 4 * (cross_std(u.unsqueeze(0), moved=0.0).double() * cross).square()
    var = {
        "spread": most_a + most_b + most_crossed,
        "A": a + most_b + most_crossed,
        "A and B": a + b + most_crossed,
        "variance": a + b + crossed,
        "mean": torch.zeros_like(a),
    }
    return {stage: int((~(var[stage] < room)).sum()) for stage in STAGES}


def nanoseconds(samples: Tensor, num_queries: int, curve: MatchCurve) -> dict[str, float]:
    """What each step costs a query, for each video: kernels of eight bits, and scores in float64."""
    num_samples, dim = samples.shape[1:]
    num, step = min(32768, len(samples)), KERNEL_VIDEOS[num_queries]
    generator = torch.Generator().manual_seed(0)
    middles = codes(num, dim, generator)
    of_videos = codes(num * num_samples, dim, generator).view(num, num_samples, dim)
    rows = codes(num_queries * num_samples, dim, generator)

    def scan() -> None:
        for part in middles.split(step * num_samples):
            products_of_codes(rows[:num_queries], part)

    def a() -> None:
        for part in middles.split(step):
            products_of_codes(rows, part).view(num_queries, num_samples, -1).square_().sum(dim=1)

    def b() -> None:
        for part in of_videos.split(step):
            products = products_of_codes(rows[:num_queries], part.flatten(0, 1))
            products.view(num_queries, len(part), num_samples).square_().sum(dim=2)

    def crossed() -> None:
        for part in of_videos[: num // 16].split(step // num_samples):
            products_of_codes(rows, part.flatten(0, 1)).square_().mean(dim=1)

    few = samples[:256]

    def score() -> None:
        exact_log_probabilities(few[:1].expand(len(few), -1, -1), few, curve=curve)

    spent = {"scan": least(scan), "A": least(a), "B": least(b), "crossed": 16 * least(crossed)}
    found = {name: 1e9 * seconds / num / num_queries for name, seconds in spent.items()}
    return found | {"score": 1e9 * least(score) / len(few)}


def least_cost(counts: dict[str, np.ndarray], cost: dict[str, float], num: int) -> np.ndarray:
    """Milliseconds of each query."""
    together = cost["scan"] * num + cost["A"] * counts["spread"] + cost["B"] * counts["A"]
    return 1e-6 * (together + cost["crossed"] * counts["A and B"] + cost["score"] * counts["variance"])


def codes(num: int, dim: int, generator: torch.Generator) -> Tensor:
    return torch.randint(-127, 128, (num, dim), dtype=torch.int8, generator=generator)


def deviations(samples: Tensor) -> Tensor:
    samples = samples.double()
    return samples - samples.mean(dim=1, keepdim=True)


def least(call: Callable[[], object]) -> float:
    spent = []
    for _ in range(4):
        began = time.process_time()
        call()
        spent.append(time.process_time() - began)
    return min(spent)


def median_and_95(values: np.ndarray) -> list[float]:
    return [round(float(np.quantile(values, share)), 2) for share in (0.5, 0.95)]
