"""Fast match probabilities between many videos for rankings, without gradient.

All squared distances come from one product of augmented matrices,

    [-2 A^2 z, A^2 (|z|^2 + floor), A^2] . [z', 1, |z'|^2] = A^2 (|z - z'|^2 + floor),

whose root is the distance in units of the logit; everything after it is done in place. The result equals
`log_match_probability` up to rounding.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from provico.probability.matching import SQUARED_DISTANCE_FLOOR, MatchCurve, log_match_probability

QUERIES_AT_ONCE, VIDEOS_AT_ONCE = 16, 128
"""Block sizes for which the product stays in the cache."""
SMALLEST_MEAN = 1e-28
"""Means of sigmoids below this are recomputed in log space, before float32 underflows."""


@torch.no_grad()
def log_match_scores(
    queries: Float[Tensor, "queries samples_q dim"],
    gallery: Float[Tensor, "videos samples_g dim"],
    *,
    curve: MatchCurve,
    num_ranked: int | None = None,
) -> Float[Tensor, "queries videos"]:
    """log p for all pairs of queries and videos in float32, a block at a time.

    num_ranked: only this many of the largest values of each row are needed. Others may be -inf if float32
        underflows, since computing them in log space would take most of the time.
    """
    slope, offset = slope_and_offset(curve)
    # Squared distances by products lose digits as points move from the origin: centre them first.
    centre = gallery.mean(dim=(0, 1))
    left = torch.split(augmented_queries(queries, centre, slope), QUERIES_AT_ONCE)
    scores = queries.new_empty(len(queries), len(gallery))
    room = queries.new_empty(QUERIES_AT_ONCE * queries.shape[1] * VIDEOS_AT_ONCE * gallery.shape[1])
    for column in range(0, len(gallery), VIDEOS_AT_ONCE):
        right = augmented_videos(gallery[column : column + VIDEOS_AT_ONCE], centre)
        for number, rows in enumerate(left):
            row = number * QUERIES_AT_ONCE
            logits = scaled_distances(rows, right, slope, room=room).neg_().add_(offset)
            mean = mean_over_pairs(logits.sigmoid_())
            scores[row : row + len(rows), column : column + len(right)] = mean
    is_known = scores >= SMALLEST_MEAN
    scores = scores.log_().masked_fill_(~is_known, -torch.inf)
    too_few = is_known.sum(dim=1) < (len(gallery) if num_ranked is None else min(num_ranked, len(gallery)))
    if bool(too_few.any()):
        scores[too_few] = log_match_probability(queries[too_few], gallery, curve=curve)
    return scores


def slope_and_offset(curve: MatchCurve) -> tuple[float, float]:
    """A and B of the logit B - A |z - z'|."""
    scale = float(curve.sigmoid_scale)
    return scale * float(curve.a), scale * float(curve.b)


def augmented_queries(
    samples: Float[Tensor, "queries samples dim"], centre: Float[Tensor, "dim"], slope: float
) -> Float[Tensor, "queries samples wider"]:
    """The left factor of the product."""
    samples = samples - centre
    squares = samples.square().sum(dim=2, keepdim=True) + SQUARED_DISTANCE_FLOOR
    return slope**2 * torch.cat([-2 * samples, squares, torch.ones_like(squares)], dim=2)


def augmented_videos(
    samples: Float[Tensor, "videos samples dim"], centre: Float[Tensor, "dim"]
) -> Float[Tensor, "videos samples wider"]:
    """The right factor of the product."""
    # Written in place: for a single query, a copy takes as long as the product.
    wider = samples.new_empty(*samples.shape[:2], samples.shape[2] + 2)
    centred = torch.sub(samples, centre, out=wider[..., :-2])
    wider[..., -2] = 1
    torch.linalg.vector_norm(centred, dim=2, out=wider[..., -1]).square_()
    return wider


def scaled_distances(
    left: Float[Tensor, "queries samples_q wider"],
    right: Float[Tensor, "videos samples_g wider"],
    slope: float,
    *,
    room: Float[Tensor, "numbers"] | None = None,
) -> Float[Tensor, "queries samples_q videos samples_g"]:
    """Distances between all samples in units of the logit.

    room: a buffer for the result, which a loop reuses.
    """
    rows, columns = left.flatten(0, 1), right.flatten(0, 1).T
    shape = len(rows), columns.shape[1]
    squares = rows.new_empty(shape) if room is None else room[: shape[0] * shape[1]].view(shape)
    torch.mm(rows, columns, out=squares)
    roots = squares.clamp_(min=slope**2 * SQUARED_DISTANCE_FLOOR).sqrt_()
    return roots.view(left.shape[0], left.shape[1], right.shape[0], right.shape[1])


def mean_over_pairs(
    probabilities: Float[Tensor, "queries samples_q videos samples_g"],
) -> Float[Tensor, "queries videos"]:
    """The mean over pairs of samples, p of two videos, as long as float32 does not underflow."""
    return probabilities.sum(dim=3).sum(dim=1) / (probabilities.shape[1] * probabilities.shape[3])
