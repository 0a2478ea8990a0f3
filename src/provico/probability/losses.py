"""From match probabilities to the objective (eqs. 8 and 10-12).

    L_soft(i, j)  = -log p if (i, j) is positive, else -log(1 - p)
    L_stoc(i, j)  = L_soft / (4 sigma_i^2 sigma_j^2) + 1/2 (log sigma_i^2 + log sigma_j^2)
    L_ProViCo     = sum_ij L_stoc(i, j) + beta (KL_i + KL_j)

An uncertain video weighs less in the first term and pays for it in the second. Everything is a matrix over
all ordered pairs, including the diagonal; one matrix of weights says how pairs are averaged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from provico.errors import ConfigError
from provico.probability.matching import MatchLogProbabilities

Reduction = Literal["mean", "balanced", "rows"]
"""How pairs are combined; `pair_weights` explains each."""

UncertaintyFrom = Literal["all_pairs", "positives"]
"""Which pairs train a video's uncertainty; `provico_loss` explains each."""


@dataclass(frozen=True)
class LossParts:
    """The objective and its terms: total = attenuated_soft + regulariser + kl_weight * kl."""

    total: Float[Tensor, ""]
    attenuated_soft: Float[Tensor, ""]
    """The soft contrastive loss, weighted by certainty."""
    regulariser: Float[Tensor, ""]
    """1/2 (log sigma_i^2 + log sigma_j^2), the price of being uncertain."""
    kl: Float[Tensor, ""]
    """KL_i + KL_j, before kl_weight."""
    soft_positive: Float[Tensor, ""]
    """Plain mean of L_soft over the positive pairs, without gradient; for the log."""
    soft_negative: Float[Tensor, ""]
    """Plain mean of L_soft over the negative pairs, without gradient; nan if every pair is positive."""


def soft_contrastive(
    log_probabilities: MatchLogProbabilities, positive: Bool[Tensor, "videos_a videos_b"]
) -> Float[Tensor, "videos_a videos_b"]:
    """L_soft of every pair (eq. 8): minus the log-probability of the pair's assigned label."""
    return -torch.where(positive, log_probabilities.match, log_probabilities.non_match)


def certainty_weights(
    log_uncertainty: Float[Tensor, "videos"], *, detach: bool = False
) -> Float[Tensor, "videos videos"]:
    """1 / (4 sigma_i^2 sigma_j^2) of every pair, formed in log space.

    With `detach` the weight has no gradient. Nothing then opposes the regulariser, so the variance falls to
    its lower bound unless the KL term prevents it.
    """
    log_sum = log_uncertainty.unsqueeze(1) + log_uncertainty
    return torch.exp(-(log_sum.detach() if detach else log_sum) - math.log(4))


def pair_weights(
    positive: Bool[Tensor, "videos videos"],
    *,
    reduction: Reduction,
    log_match: Float[Tensor, "videos videos"] | None = None,
    hardness: float = 0.0,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "videos videos"]:
    """The weight of each pair in the objective.

    `mean`      1/B^2: same optimum as the printed sum, independent of the batch size.
    `balanced`  half the weight to the positives and half to the negatives. Of B^2 pairs only about B are
                positive, so a plain mean is nearly all easy negatives.
    `rows`      as `balanced`, but for the pairs of each video, so that a video with many positives counts as
                much as one with few. With `hardness` h > 0 the negatives of a row are weighted by p^h, with p
                their match probability `log_match` without gradient: the most similar ones count most, as in
                the softmax of InfoNCE.
    """
    if reduction == "rows":
        return _row_weights(positive, log_match, hardness).to(dtype)
    ones = torch.ones(positive.shape, dtype=dtype, device=positive.device)
    num_pairs, num_positive = positive.numel(), positive.sum()
    if reduction == "mean" or bool(num_positive == 0) or bool(num_positive == num_pairs):
        return ones / num_pairs
    return 0.5 * torch.where(positive, ones / num_positive, ones / (num_pairs - num_positive))


def _row_weights(
    positive: Bool[Tensor, "videos videos"],
    log_match: Float[Tensor, "videos videos"] | None,
    hardness: float,
) -> Float[Tensor, "videos videos"]:
    """Half the weight of each row to its positives, half to its negatives; all to one if alone."""
    if log_match is None:
        if hardness:
            raise ConfigError("Weighting negatives by hardness needs `log_match`, their match probabilities.")
        log_match = torch.zeros(positive.shape, device=positive.device)
    both = positive.any(dim=1, keepdim=True) & ~positive.all(dim=1, keepdim=True)
    of_positives = positive / positive.sum(dim=1, keepdim=True).clamp(min=1)
    scores = (hardness * log_match.detach()).masked_fill(positive, -torch.inf)
    of_negatives = torch.softmax(scores, dim=1).nan_to_num(0.0)
    return torch.where(both, 0.5, 1.0) * (of_positives + of_negatives) / len(positive)


def provico_loss(
    log_probabilities: MatchLogProbabilities,
    positive: Bool[Tensor, "videos videos"],
    *,
    log_uncertainty: Float[Tensor, "videos"],
    kl: Float[Tensor, "videos"],
    kl_weight: float = 1e-4,
    reduction: Reduction = "mean",
    hardness: float = 0.0,
    detach_weight: bool = False,
    uncertainty_from: UncertaintyFrom = "all_pairs",
) -> LossParts:
    """The objective of the paper (eq. 12), and its parts.

    uncertainty_from: with `positives`, the certainty weight and the regulariser of negative pairs have no
        gradient. Without labels, the negatives that look like matches are mostly videos of the same class:
        learning from them makes *typical* videos uncertain, and outliers certain.
    """
    soft = soft_contrastive(log_probabilities, positive)
    weights = pair_weights(
        positive,
        reduction=reduction,
        log_match=log_probabilities.match,
        hardness=hardness,
        dtype=soft.dtype,
    )
    certainty = certainty_weights(log_uncertainty, detach=detach_weight)
    price = _regulariser(log_uncertainty)
    if uncertainty_from == "positives":
        certainty = torch.where(positive, certainty, certainty.detach())
        price = torch.where(positive, price, price.detach())
    # Weighted before summation: at the lower bounds of the variance the sum over all pairs would overflow.
    attenuated_soft = (weights * certainty * soft).sum()
    regulariser = (weights * price).sum()
    kl_total = (weights * (kl.unsqueeze(1) + kl)).sum()
    plain = soft.detach()
    return LossParts(
        total=attenuated_soft + regulariser + kl_weight * kl_total,
        attenuated_soft=attenuated_soft,
        regulariser=regulariser,
        kl=kl_total,
        soft_positive=plain[positive].mean(),
        soft_negative=plain[~positive].mean(),
    )


def _regulariser(log_uncertainty: Float[Tensor, "videos"]) -> Float[Tensor, "videos videos"]:
    return 0.5 * (log_uncertainty.unsqueeze(1) + log_uncertainty)
