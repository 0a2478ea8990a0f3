"""The match probability of a query with some videos: quickly in float32, or to the last digit in float64.

The quick one, by the kernel of `provico.probability.match_scores`, says how far it may be off, and so which
videos are worth the slow one. Both agree with `provico.probability.matching` up to rounding.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from provico.probability.match_scores import (
    SMALLEST_MEAN,
    augmented_queries,
    augmented_videos,
    mean_over_pairs,
    scaled_distances,
    slope_and_offset,
)
from provico.probability.matching import SQUARED_DISTANCE_FLOOR, MatchCurve

FLOAT32_UNIT = 2.0**-24


@torch.no_grad()
def screen(
    query: Float[Tensor, "samples_q dim"], videos: Float[Tensor, "videos samples_g dim"], *, curve: MatchCurve
) -> tuple[Float[Tensor, "videos"], Float[Tensor, "videos"]]:
    """log p of one query with some videos in float32, and how far each may be off (lemma 7).

    Where float32 overflows, the error is infinite or not a number.
    """
    slope, offset = slope_and_offset(curve)
    centre = query.mean(dim=0)
    left = augmented_queries(query.unsqueeze(0), centre, slope)
    right = augmented_videos(videos, centre)
    roots = scaled_distances(left, right, slope)
    nearest = roots.amin(dim=3).amin(dim=1).squeeze(0).double()
    score = _log_mean_sigmoids(roots, offset).squeeze(0).double()
    # Both in units of the logit: how long the vectors are, and how far their squared distances may be off.
    lengths = slope * right[..., -1].amax(dim=1).double().sqrt() + left[..., -2].max().double().sqrt()
    in_square = FLOAT32_UNIT * (2 * query.shape[1] + 32) * lengths.square()
    in_logit = torch.minimum(in_square.sqrt(), in_square / nearest)
    in_logit = in_logit + 8 * FLOAT32_UNIT * (abs(offset) + lengths)
    num_pairs = len(query) * videos.shape[1]
    return score, in_logit + FLOAT32_UNIT * (num_pairs + 64 + 4 * score.abs())


@torch.no_grad()
def exact_log_probabilities(
    queries: Float[Tensor, "pairs samples_q dim"],
    videos: Float[Tensor, "pairs samples_g dim"],
    *,
    curve: MatchCurve,
) -> Float[Tensor, "pairs"]:
    """log p of each query with its video in float64, from differences, without loss where p is almost 1."""
    slope, offset = slope_and_offset(curve)
    distances = torch.cdist(queries.double(), videos.double(), compute_mode="donot_use_mm_for_euclid_dist")
    logits = (offset - slope * (distances.square() + SQUARED_DISTANCE_FLOOR).sqrt()).flatten(1)
    log_num_pairs = math.log(queries.shape[1] * videos.shape[1])
    match = F.logsigmoid(logits).logsumexp(dim=1) - log_num_pairs
    non_match = F.logsigmoid(-logits).logsumexp(dim=1) - log_num_pairs
    # Either is exact where it is small, so where p is more than one half, it is taken from 1 - p.
    return torch.where(non_match < -math.log(2), torch.log1p(-non_match.exp()), match)


def _log_mean_sigmoids(
    roots: Float[Tensor, "queries samples_q videos samples_g"], offset: float
) -> Float[Tensor, "queries videos"]:
    """log p. The distances are overwritten."""
    num_pairs = roots.shape[1] * roots.shape[3]
    logits = roots.neg_().add_(offset)
    mean = mean_over_pairs(logits.sigmoid())
    log_mean = mean.log()
    is_lost = mean < SMALLEST_MEAN
    if bool(is_lost.any()):
        log_terms = F.logsigmoid(logits.transpose(1, 2)[is_lost])
        log_mean[is_lost] = log_terms.logsumexp(dim=(1, 2)) - math.log(num_pairs)
    return log_mean
