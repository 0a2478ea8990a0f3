"""For benchmarks/search.py: what the match probability of a pair costs, and how many pairs are looked at.

Contenders take turns, so that whatever else the machine does hurts all alike.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provico.probability import MatchCurve, log_match_probability, log_match_scores
from provico.search import Gallery, exact_log_probabilities, exact_top_k
from provico.search.exact.scoring import screen
from search_galleries import SPHERES, sphere

NUM_SAMPLES, DIM, K = 10, 128, 10
NUM_VIDEOS = 10_000


def kernels() -> dict[str, float]:
    """Microseconds for a pair of videos."""
    generator = torch.Generator().manual_seed(0)
    queries, videos = (torch.randn(n, NUM_SAMPLES, DIM, generator=generator) for n in (16, 512))
    curve, few = MatchCurve(torch.tensor(0.5), torch.tensor(5.0)), videos[:64]
    contenders: dict[str, tuple[int, Callable[[], object]]] = {
        "torch.cdist, 16 queries": (16 * 512, lambda: naive(queries, videos, curve)),
        "log_match_probability, 16 queries": (
            16 * 512,
            lambda: log_match_probability(queries, videos, curve=curve),
        ),
        "log_match_scores, 16 queries": (16 * 512, lambda: log_match_scores(queries, videos, curve=curve)),
        "1 query with error bounds": (512, lambda: screen(queries[0], videos, curve=curve)),
        "float64": (64, lambda: exact_log_probabilities(queries[:1].expand(64, -1, -1), few, curve=curve)),
    }
    seconds = take_turns({name: call for name, (_, call) in contenders.items()}, rounds=15)
    return {name: round(1e6 * seconds[name] / num, 3) for name, (num, _) in contenders.items()}


def spheres(num_queries: int) -> dict[str, Any]:
    table = {}
    for setting in SPHERES:
        num = NUM_VIDEOS + num_queries
        samples, curve = sphere(*setting, num, dim=DIM, num_samples=NUM_SAMPLES)
        found = exact_top_k(samples[NUM_VIDEOS:], Gallery.of_samples(samples[:NUM_VIDEOS]), curve=curve, k=K)
        tenth = [math.exp(float(top.scores[-1])) for top in found]
        table[str(setting)] = {
            "p of the last hit, median": float(f"{median(tenth):.3g}"),
            "scored exactly: median, 95 %, most": spread_of(
                np.array([top.certificate.num_scored for top in found])
            ),
            "share certified": sum(top.certificate.is_exact for top in found) / len(found),
        }
    return table


@torch.no_grad()
def naive(queries: Tensor, videos: Tensor, curve: MatchCurve) -> Tensor:
    """As one would write it first."""
    distances = torch.cdist(queries.flatten(0, 1), videos.flatten(0, 1))
    p = torch.sigmoid(curve.sigmoid_scale * (curve.b - curve.a * distances))
    return p.view(*queries.shape[:2], *videos.shape[:2]).mean(dim=(1, 3))


def take_turns(contenders: dict[str, Callable[[], object]], *, rounds: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, call in contenders.items():
            spent = once(call)
            if number:  # the first round warms up
                seconds[name].append(spent)
    return {name: median(values) for name, values in seconds.items()}


def timed(call: Callable[[], object], rounds: int) -> float:
    return median(once(call) for _ in range(rounds))


def once(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def spread_of(values: Any) -> list[float]:
    return [float(np.median(values)), float(np.quantile(values, 0.95)), float(values.max())]
