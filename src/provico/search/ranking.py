"""Which videos of a snapshot are best for a query, by any metric, without approximation.

The match probability goes through `exact_top_k`, which looks at few videos and proves that they are enough.
The other metrics look at all of them, in float64.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from provico.errors import ConfigError
from provico.probability.distances import Moments, Sampled, find_distance
from provico.probability.gaussian import Gaussian
from provico.search.exact.top_k import TopK, exact_top_k
from provico.search.hits import Certificate, Exclusion
from provico.search.query import Asked
from provico.search.snapshot import Snapshot

METRICS = ("match", "cosine", "squared_euclidean_expected", "bhattacharyya", "wasserstein2_squared")
"""`match`: log match probability; `cosine`: of the means; else a distance, ranked by its negative."""
VIDEOS_AT_ONCE = 2**14
"""How many videos a scan holds in float64 at once."""


@dataclass(frozen=True, eq=False)
class Ranked:
    """The best videos for one query."""

    numbers: Int[Tensor, "found"]
    scores: Float[Tensor, "found"]
    certificate: Certificate


def rank(
    asked: Sequence[Asked],
    snapshot: Snapshot,
    *,
    metric: str,
    k: int,
    allowed: Bool[Tensor, "videos"],
    exclude_same: Exclusion,
) -> list[Ranked]:
    """The k best videos for each query; of equal scores the one whose id comes first."""
    if metric not in METRICS:
        raise ConfigError(f"The metric is {metric!r}, but it must be one of {', '.join(METRICS)}.")
    if k < 1:
        raise ConfigError(f"k is {k}, but it must be at least 1.")
    if metric == "match" and exclude_same != "group":
        return _match_together(asked, snapshot, k, allowed, exclude_same)
    ranked = []
    for one in asked:
        mask = allowed & ~_barred(one, snapshot, exclude_same)
        if metric == "match":
            ranked += _match([one], snapshot, k, mask)
        else:
            ranked.append(_scan(one, snapshot, metric, k, mask))
    return ranked


def _barred(one: Asked, snapshot: Snapshot, exclude_same: Exclusion) -> Bool[Tensor, "videos"]:
    barred = torch.zeros(len(snapshot), dtype=torch.bool)
    if one.number is None or exclude_same == "nothing":
        return barred
    if exclude_same == "group":
        return snapshot.same_group(one.number)
    barred[one.number] = True
    return barred


def _match_together(
    asked: Sequence[Asked],
    snapshot: Snapshot,
    k: int,
    allowed: Bool[Tensor, "videos"],
    exclude_same: Exclusion,
) -> list[Ranked]:
    """All queries in one call: each asks for one more video, since it may find itself and leave that out."""
    own = [one.number if exclude_same == "video" else None for one in asked]
    is_own_allowed = [number is not None and bool(allowed[number]) for number in own]
    ranked = []
    for found, number, is_there in zip(
        _match(asked, snapshot, k + any(is_own_allowed), allowed), own, is_own_allowed, strict=True
    ):
        kept = (found.numbers != (-1 if number is None else number)).nonzero().flatten()[:k]
        certificate = dataclasses.replace(
            found.certificate, num_allowed=found.certificate.num_allowed - is_there
        )
        ranked.append(Ranked(found.numbers[kept], found.scores[kept], certificate))
    return ranked


def _match(
    asked: Sequence[Asked], snapshot: Snapshot, k: int, allowed: Bool[Tensor, "videos"]
) -> list[Ranked]:
    settings, num_allowed = snapshot.settings, int(allowed.sum())
    if not asked or not num_allowed:
        return [_nothing() for _ in asked]
    found = exact_top_k(
        torch.cat([one.samples(settings) for one in asked]),
        snapshot.gallery,
        curve=settings.curve,
        k=k,
        allowed=None if num_allowed == len(snapshot) else allowed,
    )
    return [Ranked(top.numbers, top.log_probabilities, _certificate(top, num_allowed)) for top in found]


def _certificate(top: TopK, num_allowed: int) -> Certificate:
    return Certificate(
        is_exact=top.is_certified,
        ceiling=top.ceiling,
        num_allowed=num_allowed,
        num_scored=top.num_scored,
        num_bounded=top.num_bounded,
    )


def _scan(one: Asked, snapshot: Snapshot, metric: str, k: int, allowed: Bool[Tensor, "videos"]) -> Ranked:
    """Compare a query with every allowed video."""
    numbers = allowed.nonzero().flatten()
    if not len(numbers):
        return _nothing()
    query = _doubled(one.mixture.moment_matched)
    parts = [
        _similarities(metric, query, _doubled(snapshot.videos, part))
        for part in torch.split(numbers, VIDEOS_AT_ONCE)
    ]
    # Not topk, which leaves the order of equal scores open.
    scores, order = torch.cat(parts).sort(descending=True, stable=True)
    certificate = Certificate(
        is_exact=True, ceiling=-math.inf, num_allowed=len(numbers), num_scored=len(numbers), num_bounded=0
    )
    return Ranked(numbers[order[:k]], scores[:k], certificate)


def _similarities(metric: str, query: Gaussian, videos: Gaussian) -> Float[Tensor, "videos"]:
    if metric == "cosine":
        return F.normalize(videos.mean, dim=1) @ F.normalize(query.mean, dim=1).squeeze(0)
    return -find_distance(metric)(_unsampled(query), _unsampled(videos)).squeeze(0)


def _unsampled(videos: Gaussian) -> Sampled:
    """For distances that look at no samples."""
    return Sampled(videos, Moments.of_gaussian(videos))


def _doubled(videos: Gaussian, numbers: Int[Tensor, "some"] | slice = slice(None)) -> Gaussian:
    return Gaussian(videos.mean[numbers].double(), videos.log_var[numbers].double())


def _nothing() -> Ranked:
    certificate = Certificate(is_exact=True, ceiling=-math.inf, num_allowed=0, num_scored=0, num_bounded=0)
    return Ranked(torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.float64), certificate)
