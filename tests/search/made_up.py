"""Made-up videos as clouds of samples, and what must be true of what is found among them."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from provico.probability import MatchCurve
from provico.search import TopK

UNKNOWN = torch.tensor([torch.inf], dtype=torch.float64)
"""The variance of distances of which nothing is known beyond the spread."""


def curve(a: float, b: float, sigmoid_scale: float = 1.0) -> MatchCurve:
    return MatchCurve(
        torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64), sigmoid_scale
    )


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def clouds(seed: int, num: int, num_samples: int, dim: int, width: float, hetero: float = 0.0) -> Tensor:
    widths = width * torch.exp(hetero * draw(seed, num, 1, 1)) / math.sqrt(dim)
    return draw(seed + 1, num, 1, dim) / math.sqrt(dim) + widths * draw(seed + 2, num, num_samples, dim)


def check(loop, found: TopK, query: Tensor, videos: Tensor, of: MatchCurve, k: int) -> None:
    """The k best, in order. Scores that differ by less than rounding may be in either order."""
    scores, order = loop.ranking(query, videos, of)
    k = min(k, len(videos))
    assert found.certificate.is_exact
    assert len(set(found.rows.tolist())) == len(found.rows) == k
    assert np.allclose(found.scores.numpy(), scores[:k], rtol=1e-9, atol=0)
    own = loop.scores(query, videos[found.rows], of)
    assert np.allclose(own, scores[:k], rtol=1e-9, atol=0)
    is_clear = np.diff(scores[: k + 1], append=-np.inf)[:k] < -1e-9 * np.abs(scores[:k])
    is_clear[1:] &= is_clear[:-1]
    assert (found.rows.numpy() == order[:k])[is_clear].all()
    assert found.certificate.num_scored <= len(videos)
