"""InfoNCE, the deterministic contrastive loss (eq. 1): the baseline against which ProViCo is measured.

    -log  sum_{positives} exp(sim / temperature)  /  sum_{all keys} exp(sim / temperature)

with sim the cosine. The temperature is the paper's tau of eq. (1), not the threshold tau of eq. (7).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from provico.probability.precision import at_least_float32, autocast_off


def info_nce(
    queries: Float[Tensor, "videos dim"],
    keys: Float[Tensor, "videos dim"],
    *,
    temperature: float = 0.1,
    positive: Bool[Tensor, "videos videos"] | None = None,
) -> Float[Tensor, ""]:
    """One view: each query must find the key of its own video among the keys of all.

    `positive` marks which keys are right for each query; by default the one of the same video.
    """
    if positive is None:
        positive = torch.eye(len(queries), dtype=torch.bool, device=queries.device)
    return _mean_loss(_cosines(queries, keys) / temperature, positive)


def info_nce_two_view(
    first: Float[Tensor, "videos dim"],
    second: Float[Tensor, "videos dim"],
    *,
    temperature: float = 0.1,
    positive: Bool[Tensor, "videos videos"] | None = None,
) -> Float[Tensor, ""]:
    """Two views: each of the 2B clips must find the other clip of its video among the 2B - 1 others."""
    num_videos = len(first)
    if positive is None:
        positive = torch.eye(num_videos, dtype=torch.bool, device=first.device)
    views = torch.cat([first, second])
    itself = torch.eye(2 * num_videos, dtype=torch.bool, device=first.device)
    similarities = (_cosines(views, views) / temperature).masked_fill(itself, -torch.inf)
    return _mean_loss(similarities, positive.repeat(2, 2) & ~itself)


def _cosines(
    queries: Float[Tensor, "queries dim"], keys: Float[Tensor, "keys dim"]
) -> Float[Tensor, "queries keys"]:
    queries, keys = at_least_float32(queries), at_least_float32(keys)
    with autocast_off(queries):
        return F.normalize(queries, dim=1) @ F.normalize(keys, dim=1).T


def _mean_loss(
    similarities: Float[Tensor, "queries keys"], positive: Bool[Tensor, "queries keys"]
) -> Float[Tensor, ""]:
    among_positives = similarities.masked_fill(~positive, -torch.inf).logsumexp(dim=1)
    return (similarities.logsumexp(dim=1) - among_positives).mean()
