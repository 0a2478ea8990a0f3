"""What two clouds tell of the K x K squared distances between their samples: mean, variance, least.

With e_k = z_k - mean_g, from a sample of the query to the middle of a video, and v_k' the deviations there,

    |z_k - z'_k'|^2 = |e_k|^2 + |v_k'|^2 - 2 e_k . v_k'

has over k' the mean |e_k|^2 + V_g, and at most the standard deviation of |v|^2 plus twice that of v along
e_k. `item_moments` knows the e_k of each video, which takes K products. `hopeless_from` knows only the length
of their mean, which stage 1 computes anyway. Proofs: lemmas 4 to 6 of docs/exact-search.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from provico.search.exact.bounds import DistanceMoments, MomentBound, least_probability
from provico.search.exact.clouds import SAMPLE_MARGIN, Spread

NUM_RINGS = 24
"""Rings about a query, in each of which one bound holds for all videos of a group."""
FLOAT32_UNIT = 2.0**-24


@dataclass(frozen=True, eq=False)
class Extents:
    """How far the clouds of each group of videos reach at most: what holds for all its videos at once."""

    least_mean_square: Float[Tensor, "groups"]
    most_mean_square: Float[Tensor, "groups"]
    square_std: Float[Tensor, "groups"]
    axis_std: Float[Tensor, "groups"]
    radius: Float[Tensor, "groups"]

    @classmethod
    def of_groups(cls, spread: Spread, group: Int[Tensor, "videos"]) -> Extents:
        """The extents of all groups, from the number of the group of each video."""

        return cls(
            least_mean_square=-largest(-spread.mean_square, group),
            most_mean_square=largest(spread.mean_square, group),
            square_std=largest(spread.square_std, group),
            axis_std=largest(spread.axis_std, group),
            radius=largest(spread.radius, group),
        )


def largest(values: Float[Tensor, "videos"], group: Int[Tensor, "videos"]) -> Float[Tensor, "groups"]:
    """The largest value of each group, from the number of the group of each video."""
    start = torch.zeros(int(group.max()) + 1, dtype=values.dtype)
    return start.scatter_reduce(0, group, values, "amax", include_self=False)


def squared_gaps(
    samples: Float[Tensor, "samples dim"], middles: Float[Tensor, "videos dim"]
) -> tuple[Float[Tensor, "videos samples"], Float[Tensor, "videos"]]:
    """|e_k|^2 for each video in float32, and the lengths that its rounding depends on.

    samples, middles: of the query and of the videos, about a common centre.
    """
    squares, lengths = samples.square().sum(dim=1), middles.square().sum(dim=1)
    gaps = torch.addmm(squares, middles, samples.T, alpha=-2).add_(lengths.unsqueeze(1))
    return gaps, lengths.sqrt() + squares.max().sqrt()


def item_moments(
    gaps: Float[Tensor, "videos samples"],
    reaches: Float[Tensor, "videos"],
    spread: Spread,
    *,
    dim: int,
    origin: float,
    rest_var: Float[Tensor, "#videos"],
) -> DistanceMoments:
    """Moments against each video, from what `squared_gaps` found and its spread.

    origin: the length of the longest sample itself, of all videos and the query.
    rest_var: at least the variance without that of |e_k|^2, where something is known of it beyond the spread.
    """
    gaps = gaps.double()
    error = square_error(reaches.double() + spread.radius, dim, origin)
    mean = gaps.mean(dim=1)
    of_query = (gaps - mean.unsqueeze(1)).square().mean(dim=1).sqrt() + error
    of_video = spread.square_std + 2 * spread.axis_std * (mean + error).clamp(min=0).sqrt()
    nearest = (gaps.amin(dim=1) - error).clamp(min=0).sqrt()
    return DistanceMoments(
        mean=mean - error + spread.mean_square,
        var=of_query.square() + torch.minimum(of_video.square(), rest_var),
        least=(nearest - spread.radius).clamp(min=0).square(),
    )


def hopeless_from(
    log_thresholds: Sequence[float],
    bound: MomentBound,
    middles: Float[Tensor, "queries dim"],
    spread: Spread,
    extents: Extents,
    *,
    origin: float,
    scan_error: Float[Tensor, "queries groups"] | None = None,
) -> Float[Tensor, "queries groups"]:
    """From which squared distance of stage 1 on no video of a group reaches the threshold (theorem 2).

    middles, spread: of the queries; extents: of the groups of the gallery.
    scan_error: how far stage 1 may be off, besides the rounding of float32.
    """
    # Axes: queries, rings, groups. Within the first ring the mean squared distance itself leaves hope; beyond
    # the last one no two samples are near enough.
    query = spread[:, None, None]
    near = bound.distance_at(torch.tensor(log_thresholds, dtype=torch.float64))[:, None, None]
    of_scan = torch.zeros(1, 1, 1) if scan_error is None else scan_error.unsqueeze(1)
    first = (near.square() - query.mean_square).clamp(min=0).sqrt()
    last = (near + query.radius + extents.radius).square() + extents.most_mean_square + of_scan
    steps = torch.linspace(0, 1, NUM_RINGS + 1, dtype=torch.float64).unsqueeze(1)
    edges = (first + steps * (1.001 * last.sqrt() - first)).square()
    reaches = 2 * middles.double().norm(dim=1)[:, None, None] + (2 * (edges + of_scan)).sqrt()
    error = square_error(reaches + extents.radius, middles.shape[1], query.reach.clamp(min=origin))
    error = error + of_scan
    rings = _ring_moments(query, extents, (edges - error)[:, :-1], (edges + error)[:, 1:])
    outside = _ring_moments(query, extents, (edges - error)[:, -1:], edges[:, -1:])
    bounds = torch.cat([bound(rings), bound.at_least(outside.least)], dim=1)
    least = torch.tensor([least_probability(one) for one in log_thresholds], dtype=torch.float64)
    is_hopeless = bounds < least[:, None, None]
    num_hopeless = is_hopeless.flip(1).long().cumprod(dim=1).sum(dim=1, keepdim=True)
    starts = torch.cat([edges, torch.full_like(edges[:, :1], torch.inf)], dim=1)
    return starts.gather(1, NUM_RINGS + 1 - num_hopeless).squeeze(1)


def _ring_moments(
    query: Spread,
    extents: Extents,
    start: Float[Tensor, "*rings groups"],
    stop: Float[Tensor, "*rings groups"],
) -> DistanceMoments:
    """Moments against any video of each group with start <= |mean_q - mean_g|^2 + V_g <= stop."""
    gap_square = (stop - extents.least_mean_square).clamp(min=0)
    nearest = (start - extents.most_mean_square).clamp(min=0).sqrt()
    of_query = query.square_std + 2 * query.axis_std * gap_square.sqrt()
    of_video = extents.square_std + 2 * extents.axis_std * (gap_square + query.mean_square).sqrt()
    return DistanceMoments(
        mean=start + query.mean_square,
        var=of_query.square() + of_video.square(),
        least=(nearest - query.radius - extents.radius).clamp(min=0).square(),
    )


def square_error(
    reaches: Float[Tensor, "*pairs"], dim: int, origin: float | Tensor
) -> Float[Tensor, "*pairs"]:
    """How far a squared distance may be off that is taken from products of float32 vectors (lemma 6).

    reaches: the lengths, from the centre, of all that goes into it; origin: of the longest sample itself.
    """
    moved = 4 * SAMPLE_MARGIN * origin
    return 2 * FLOAT32_UNIT * (dim + 16) * reaches.square() + moved * (2 * reaches + moved)
