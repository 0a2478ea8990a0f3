"""Distances between videos, all pairs at once, by name in `DISTANCES`.

Every function compares two batches and returns a matrix [videos_a, videos_b]. The sampled ones are means over
all K x K pairs of samples, but never form them: for two finite sets of points, coordinate by coordinate,

    mean_kk' (z_k - z'_k')^2  =  (m - m')^2 + s + s'

with m the mean and s the mean squared deviation of each set. Two moments of the samples are thus sufficient
for a squared distance, and `Moments` stores just those.

Sums over coordinates of products become one matrix product in float64: such identities subtract large
squares, and B x B values are cheap. Other terms (a logarithm of sigma_i^2 + sigma_j^2 for each coordinate)
are computed over blocks of rows, so that B x B x D is never in memory at once.

The paper prints some of these in a form that contradicts the definition. The correct ones have the plain
names, the printed ones end in `_printed`, and docs/notation.md lists the differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from provico.errors import ConfigError, did_you_mean, look_up
from provico.probability.gaussian import Gaussian
from provico.probability.precision import at_least_float32, autocast_off

BLOCK_ELEMENTS = 2**20
"""The number of values that a blockwise distance holds at once (4 MB in float32)."""


@dataclass(frozen=True)
class Moments:
    """Mean and mean squared deviation, coordinate by coordinate, of a set of points or a distribution."""

    mean: Float[Tensor, "videos dim"]
    var: Float[Tensor, "videos dim"]

    @classmethod
    def of_samples(cls, samples: Float[Tensor, "videos samples dim"]) -> Moments:
        """The moments of K given points; the divisor is K, since these are the whole set."""
        samples = at_least_float32(samples)
        mean = samples.mean(dim=1)
        return cls(mean, (samples - mean.unsqueeze(1)).square().mean(dim=1))

    @classmethod
    def of_gaussian(cls, gaussian: Gaussian) -> Moments:
        """The limit of the sample moments for many samples."""
        return cls(gaussian.mean, gaussian.var)


@dataclass(frozen=True)
class Sampled:
    """The input of a distance: the Gaussian of each video, and the moments of its K samples."""

    gaussian: Gaussian
    drawn: Moments


Distance = Callable[[Sampled, Sampled], Float[Tensor, "videos_a videos_b"]]


# --- squared Euclidean -------------------------------------------------------------------------------------


def squared_euclidean_means(a: Sampled, b: Sampled) -> Float[Tensor, "videos_a videos_b"]:
    """|mu_a - mu_b|^2: the distance of a deterministic embedding."""
    return _squared_distances(a.gaussian.mean, b.gaussian.mean)


def squared_euclidean_sampled(a: Sampled, b: Sampled) -> Float[Tensor, "videos_a videos_b"]:
    """1/K^2 sum_kk' |z_a^k - z_b^k'|^2, the paper's "Euclidean distance" ED (eq. A5)."""
    return _mean_squared_distances(a.drawn, b.drawn)


def squared_euclidean_expected(a: Sampled, b: Sampled) -> Float[Tensor, "videos_a videos_b"]:
    """E |z_a - z_b|^2 = |mu_a - mu_b|^2 + sum_d (v_a + v_b), the limit of the sampled one."""
    return _mean_squared_distances(Moments.of_gaussian(a.gaussian), Moments.of_gaussian(b.gaussian))


# --- Bhattacharyya -----------------------------------------------------------------------------------------


def bhattacharyya(a: Sampled, b: Sampled) -> Float[Tensor, "videos_a videos_b"]:
    """-log of the integral of sqrt(p q): zero for p = q, unbounded as they separate.

    sum_d  1/4 log(1/4 (v_a/v_b + v_b/v_a + 2))  +  1/4 (mu_a - mu_b)^2 / (v_a + v_b)
    """
    point_a = Moments(a.gaussian.mean, torch.zeros_like(a.gaussian.mean))
    point_b = Moments(b.gaussian.mean, torch.zeros_like(b.gaussian.mean))
    return _sum_of_coordinates(a.gaussian, b.gaussian, point_a, point_b, gap_weight=1 / 4)


def bhattacharyya_sampled(a: Sampled, b: Sampled) -> Float[Tensor, "videos_a videos_b"]:
    """Eq. (5) averaged over K x K sample pairs, with each coordinate's own variance, averaged over D.

    mean_d  1/4 [ log(1/4 (v_a/v_b + v_b/v_a + 2))  +  1/4 (z_a - z_b)^2 / (v_a + v_b) ]

    This is lambda = 1/(4D) read per coordinate. Two samples of one video have an expected distance of 1/16
    whatever its variance, so the meaning of the printed tau = 0.15 does not depend on D or sigma.
    """
    return _sum_of_coordinates(a.gaussian, b.gaussian, a.drawn, b.drawn, gap_weight=1 / 16) / a.gaussian.dim


def bhattacharyya_expected(a: Sampled, b: Sampled) -> Float[Tensor, "videos_a videos_b"]:
    """The limit of `bhattacharyya_sampled`: no sampling noise, the same threshold."""
    true_a, true_b = Moments.of_gaussian(a.gaussian), Moments.of_gaussian(b.gaussian)
    return _sum_of_coordinates(a.gaussian, b.gaussian, true_a, true_b, gap_weight=1 / 16) / a.gaussian.dim


def bhattacharyya_sampled_scalar(a: Sampled, b: Sampled) -> Float[Tensor, "videos_a videos_b"]:
    """Eq. (5) to the letter: sigma_i^2 is one number per video, the geometric mean of its variances."""
    return _scalar_bhattacharyya(a, b, squared_euclidean_sampled(a, b))


def bhattacharyya_expected_scalar(a: Sampled, b: Sampled) -> Float[Tensor, "videos_a videos_b"]:
    """The limit of `bhattacharyya_sampled_scalar`."""
    return _scalar_bhattacharyya(a, b, squared_euclidean_expected(a, b))


# --- other divergences, by definition ---------------------------------------------------------------------


def kl(a: Sampled, b: Sampled) -> Float[Tensor, "videos_a videos_b"]:
    """KL(p_a || p_b) = 1/2 sum_d [ log(v_b / v_a) + v_a / v_b + (mu_a - mu_b)^2 / v_b - 1 ]."""
    p, q = _doubled(a.gaussian), _doubled(b.gaussian)
    centre = q.mean.mean(dim=0)
    mean_a, mean_b = p.mean - centre, q.mean - centre
    precision = torch.exp(-q.log_var)
    with autocast_off(precision):
        # v_a / v_b + (mu_a - mu_b)^2 / v_b, multiplied out so that each part is one matrix product.
        ratios = (p.var + mean_a.square()) @ precision.T - 2 * mean_a @ (mean_b * precision).T
    ratios = ratios + (mean_b.square() * precision).sum(dim=1)
    logs = q.log_var.sum(dim=1) - p.log_var.sum(dim=1).unsqueeze(1)
    return (0.5 * (logs + ratios - p.dim)).clamp(min=0).to(a.gaussian.mean.dtype)


def jeffreys(a: Sampled, b: Sampled) -> Float[Tensor, "videos_a videos_b"]:
    """1/2 [KL(p_a || p_b) + KL(p_b || p_a)], half of Jeffreys' divergence: the paper's "JS"."""
    return 0.5 * (kl(a, b) + kl(b, a).T)


def wasserstein2_squared(a: Sampled, b: Sampled) -> Float[Tensor, "videos_a videos_b"]:
    """W_2^2 = |mu_a - mu_b|^2 + |sigma_a - sigma_b|^2, with sigma the standard deviations."""
    return _squared_distances(
        torch.cat([a.gaussian.mean, a.gaussian.std], dim=1),
        torch.cat([b.gaussian.mean, b.gaussian.std], dim=1),
    )


# --- divergences as printed in the paper (Fig. A1) ---------------------------------------------------------


def kl_printed(a: Sampled, b: Sampled) -> Float[Tensor, "videos_a videos_b"]:
    """1/2 [ log(v_b / v_a) + v_a / v_b + ED / v_b ] with scalar variances: no -1, and ED sampled."""
    log_a, log_b = a.gaussian.log_uncertainty.unsqueeze(1), b.gaussian.log_uncertainty
    sampled = squared_euclidean_sampled(a, b) * torch.exp(-log_b)
    return 0.5 * (log_b - log_a + torch.exp(log_a - log_b) + sampled)


def js_printed(a: Sampled, b: Sampled) -> Float[Tensor, "videos_a videos_b"]:
    """1/2 [KL(a, b) + KL(b, a)] of the printed KL."""
    return 0.5 * (kl_printed(a, b) + kl_printed(b, a).T)


def wasserstein2_squared_printed(a: Sampled, b: Sampled) -> Float[Tensor, "videos_a videos_b"]:
    """ED + sigma_a - sigma_b^2: neither symmetric nor zero at equality, and it can be negative."""
    return (
        squared_euclidean_sampled(a, b)
        + torch.exp(0.5 * a.gaussian.log_uncertainty).unsqueeze(1)
        - b.gaussian.uncertainty
    )


DISTANCES: dict[str, Distance] = {
    "bhattacharyya_sampled": bhattacharyya_sampled,
    "bhattacharyya_sampled_scalar": bhattacharyya_sampled_scalar,
    "bhattacharyya_expected": bhattacharyya_expected,
    "bhattacharyya_expected_scalar": bhattacharyya_expected_scalar,
    "bhattacharyya": bhattacharyya,
    "squared_euclidean_sampled": squared_euclidean_sampled,
    "squared_euclidean_means": squared_euclidean_means,
    "squared_euclidean_expected": squared_euclidean_expected,
    "kl": kl,
    "jeffreys": jeffreys,
    "wasserstein2_squared": wasserstein2_squared,
    "kl_printed": kl_printed,
    "js_printed": js_printed,
    "wasserstein2_squared_printed": wasserstein2_squared_printed,
}
"""Every distance by name. A new one is a function and a line here; the tests then check it, too."""


def find_distance(name: str) -> Distance:
    """The distance of that name, or an error with the nearest name."""
    return look_up("distance", name, DISTANCES)


def check_metric(name: str) -> None:
    """Raise ConfigError unless the name is match, cosine or a distance."""
    known = ("match", "cosine", *DISTANCES)
    if name not in known:
        raise ConfigError(f"There is no metric {name!r}. {did_you_mean(name, known)}")


def self_distances(distance: Distance, videos: Sampled, *, num_samples: int) -> Float[Tensor, "videos"]:
    """The distance of each video to itself, over the K (K - 1) pairs of two *different* samples.

    With k = k' kept, K of the K^2 pairs are zero and a sampled distance is too small by (K - 1)/K: a perfect
    duplicate would then not pass a threshold set by it. Leaving them out divides the squared differences by
    (K - 1)/K, so each video is compared with a copy whose sample variance is raised accordingly.
    """
    if num_samples < 2:
        raise ConfigError(
            "A self-distance compares two different samples, so it needs at least 2 samples per video."
        )
    missing = (num_samples + 1) / (num_samples - 1)
    twins = Sampled(videos.gaussian, Moments(videos.drawn.mean, videos.drawn.var * missing))
    return distance(videos, twins).diagonal()


def _squared_distances(
    a: Float[Tensor, "videos_a dim"], b: Float[Tensor, "videos_b dim"]
) -> Float[Tensor, "videos_a videos_b"]:
    """|a|^2 + |b|^2 - 2 a.b in float64 about a common centre, where the subtraction is most accurate."""
    centre = b.double().mean(dim=0)
    left, right = a.double() - centre, b.double() - centre
    with autocast_off(left):
        products = left @ right.T
    squares = left.square().sum(dim=1).unsqueeze(1) + right.square().sum(dim=1)
    return (squares - 2 * products).clamp(min=0).to(a.dtype)


def _mean_squared_distances(a: Moments, b: Moments) -> Float[Tensor, "videos_a videos_b"]:
    return _squared_distances(a.mean, b.mean) + (a.var.sum(dim=1).unsqueeze(1) + b.var.sum(dim=1))


def _scalar_bhattacharyya(
    a: Sampled, b: Sampled, squared_distances: Float[Tensor, "videos_a videos_b"]
) -> Float[Tensor, "videos_a videos_b"]:
    log_a, log_b = a.gaussian.log_uncertainty.unsqueeze(1), b.gaussian.log_uncertainty
    gap = squared_distances * torch.exp(-torch.logaddexp(log_a, log_b))
    return _width_term(log_a, log_b) + gap / (16 * a.gaussian.dim)


def _sum_of_coordinates(
    a: Gaussian, b: Gaussian, moments_a: Moments, moments_b: Moments, *, gap_weight: float
) -> Float[Tensor, "videos_a videos_b"]:
    """sum_d  width term + gap_weight * mean (z_a - z_b)^2 / (v_a + v_b), a block of rows at a time."""
    block = max(1, BLOCK_ELEMENTS // max(1, b.mean.numel()))
    rows = []
    for start in range(0, len(a.mean), block):
        part = slice(start, start + block)
        gap = (moments_a.mean[part].unsqueeze(1) - moments_b.mean).square()
        gap = gap + (moments_a.var[part].unsqueeze(1) + moments_b.var)
        gap = gap / (a.var[part].unsqueeze(1) + b.var)
        rows.append((_width_term(a.log_var[part].unsqueeze(1), b.log_var) + gap_weight * gap).sum(dim=-1))
    return torch.cat(rows)


def _width_term(log_var_a: Tensor, log_var_b: Tensor) -> Tensor:
    """1/4 log(1/4 (v_a/v_b + v_b/v_a + 2)) = 1/2 log cosh((log v_a - log v_b) / 2), which cannot overflow."""
    half = 0.5 * (log_var_a - log_var_b).abs()
    return 0.5 * (half + F.softplus(-2 * half) - math.log(2))


def _doubled(gaussian: Gaussian) -> Gaussian:
    return Gaussian(gaussian.mean.double(), gaussian.log_var.double())
