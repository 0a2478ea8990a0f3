"""InfoNCE, the deterministic contrastive loss (eq. 1): the baseline of ProViCo.

    -log  exp(sim / temperature)  /  sum_{all keys} exp(sim / temperature)

with sim the cosine of a query and its key. The temperature is the paper's tau of eq. (1), not the threshold
tau of eq. (7). If mined videos are positives too, `to_find` says how they enter.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from provico.probability.precision import at_least_float32, autocast_off

ToFind = Literal["any", "each"]
"""With several positives, `any` takes one logarithm of the sum over all, as printed. The nearest one, mostly
the query's own, then suffices, and the others are hardly attracted. With `each`, half the loss is that of the
own key and half the mean over the mined ones."""


def info_nce(
    first: Float[Tensor, "videos dim"],
    second: Float[Tensor, "videos dim"],
    *,
    temperature: float = 0.1,
    positive: Bool[Tensor, "videos videos"] | None = None,
    to_find: ToFind = "any",
) -> Float[Tensor, ""]:
    """Two views: each of the 2B clips must identify the other clip of its video among the 2B - 1 others.

    `positive` marks other videos that are also positives of a video, as mined.
    """
    own = torch.eye(len(first), dtype=torch.bool, device=first.device)
    views = torch.cat([first, second])
    itself = torch.eye(len(views), dtype=torch.bool, device=first.device)
    similarities = (_cosines(views) / temperature).masked_fill(itself, -torch.inf)
    pairs = own if positive is None else positive
    return _mean_loss(similarities, own.repeat(2, 2) & ~itself, pairs.repeat(2, 2) & ~itself, to_find)


def _cosines(clips: Float[Tensor, "clips dim"]) -> Float[Tensor, "clips clips"]:
    clips = at_least_float32(clips)
    with autocast_off(clips):
        return F.normalize(clips, dim=1) @ F.normalize(clips, dim=1).T


def _mean_loss(
    similarities: Float[Tensor, "queries keys"],
    own: Bool[Tensor, "queries keys"],
    positive: Bool[Tensor, "queries keys"],
    to_find: ToFind,
) -> Float[Tensor, ""]:
    among_all = similarities.logsumexp(dim=1, keepdim=True)
    if to_find == "any":
        among_positives = similarities.masked_fill(~positive, -torch.inf).logsumexp(dim=1, keepdim=True)
        return (among_all - among_positives).mean()
    mined = positive & ~own
    num_mined = mined.sum(dim=1, keepdim=True)
    weights = torch.where(num_mined > 0, 0.5, 1.0) * own + 0.5 * mined / num_mined.clamp(min=1)
    # A clip is not its own key: its similarity is -inf and its weight 0, whose product would be nan.
    losses = (among_all - similarities).masked_fill(weights == 0, 0.0)
    return (weights * losses).sum(dim=1).mean()
