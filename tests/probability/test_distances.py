"""Every distance against its definition, and the laws that all of DISTANCES obey.

Definitions are integrals (scipy), PyTorch's own divergences, sums over sample pairs, or Monte-Carlo; the laws
run over the dict, so a new distance is held to them unasked.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special
from torch import Tensor

from provico.errors import ConfigError
from provico.probability import (
    DISTANCES,
    Gaussian,
    Moments,
    Sampled,
    distances,
    find_distance,
    self_distances,
)

seeds = st.integers(0, 2**31)
every = pytest.mark.parametrize("name", DISTANCES)

# Which laws a distance does not obey, and may not: everything else in DISTANCES must.
ASYMMETRIC = {"kl", "kl_printed", "wasserstein2_squared_printed"}
MAY_BE_NEGATIVE = {"wasserstein2_squared_printed"}  # it subtracts a variance, as printed
NOT_ZERO_AT_EQUALITY = {
    name for name in DISTANCES if name.endswith(("_sampled", "_expected", "_scalar", "_printed"))
}


def make(seed: int, num_videos: int = 4, dim: int = 3, num_samples: int = 5) -> tuple[Sampled, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mean, log_var = torch.randn(2, num_videos, dim, generator=generator, dtype=torch.float64)
    gaussian = Gaussian(mean, log_var)
    samples = gaussian.sample(num_samples, generator=generator)
    return Sampled(gaussian, Moments.of_samples(samples)), samples


def pick(videos: Sampled, index: list[int]) -> Sampled:
    gaussian = Gaussian(videos.gaussian.mean[index], videos.gaussian.log_var[index])
    return Sampled(gaussian, Moments(videos.drawn.mean[index], videos.drawn.var[index]))


def normals(gaussian: Gaussian) -> torch.distributions.Normal:
    return torch.distributions.Normal(gaussian.mean, gaussian.std)


def density(z: float, mean: float, std: float) -> float:
    """Of a normal distribution."""
    return math.exp(-0.5 * ((z - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))


# --- definitions -------------------------------------------------------------------------------------------


@settings(max_examples=10)
@given(seed=seeds)
def test_bhattacharyya_is_the_integral(seed: int) -> None:
    p, q = make(seed, 1, 2)[0], make(seed + 1, 1, 2)[0]
    total = 0.0
    for d in range(2):
        first, second = ((float(g.mean[0, d]), float(g.std[0, d])) for g in (p.gaussian, q.gaussian))
        overlap, _ = integrate.quad(
            lambda z: math.sqrt(density(z, *first) * density(z, *second)),  # noqa: B023
            -40,
            40,
            limit=400,
        )
        total -= math.log(overlap)
    assert distances.bhattacharyya(p, q).item() == pytest.approx(total, rel=1e-6)


@given(seed=seeds)
def test_kl_and_jeffreys_are_those_of_torch(seed: int) -> None:
    p, q = make(seed)[0], make(seed + 1, num_videos=6)[0]
    first = torch.distributions.Normal(p.gaussian.mean.unsqueeze(1), p.gaussian.std.unsqueeze(1))
    second = normals(q.gaussian)
    forward = torch.distributions.kl_divergence(first, second).sum(dim=-1)
    backward = torch.distributions.kl_divergence(second, first).sum(dim=-1)
    torch.testing.assert_close(distances.kl(p, q), forward)
    torch.testing.assert_close(distances.jeffreys(p, q), 0.5 * (forward + backward))


@settings(max_examples=10)
@given(seed=seeds)
def test_wasserstein_is_the_integral_over_quantiles(seed: int) -> None:
    # In one dimension W_2^2 couples equal quantiles; over independent coordinates it adds up.
    p, q = make(seed, 1, 2)[0].gaussian, make(seed + 1, 1, 2)[0].gaussian
    total = 0.0
    for d in range(2):
        shift, stretch = float(p.mean[0, d] - q.mean[0, d]), float(p.std[0, d] - q.std[0, d])
        part, _ = integrate.quad(lambda u: (shift + stretch * special.ndtri(u)) ** 2, 0, 1, limit=400)  # noqa: B023
        total += part
    ours = distances.wasserstein2_squared(make(seed, 1, 2)[0], make(seed + 1, 1, 2)[0])
    assert ours.item() == pytest.approx(total, rel=1e-5)


def test_wasserstein_is_that_of_sorted_samples() -> None:
    p, q = make(2, 1, 1, 400_000), make(3, 1, 1, 400_000)
    coupled = (p[1].flatten().sort().values - q[1].flatten().sort().values).square().mean()
    assert distances.wasserstein2_squared(p[0], q[0]).item() == pytest.approx(coupled.item(), rel=0.01)


@given(seed=seeds)
def test_sampled_distances_are_means_over_all_sample_pairs(seed: int) -> None:
    (p, z), (q, y) = make(seed), make(seed + 1, num_videos=2, num_samples=7)
    dim = p.gaussian.dim
    for i in range(4):
        for j in range(2):
            gaps = (z[i].unsqueeze(1) - y[j]).square()  # samples, samples, dim
            var_i, var_j = p.gaussian.var[i], q.gaussian.var[j]
            scalar_i, scalar_j = p.gaussian.uncertainty[i], q.gaussian.uncertainty[j]
            euclidean = gaps.sum(dim=-1)

            vector = 0.25 * (
                torch.log(0.25 * (var_i / var_j + var_j / var_i + 2)) + 0.25 * gaps / (var_i + var_j)
            )
            ratio = 0.25 * (scalar_i / scalar_j + scalar_j / scalar_i + 2)
            scalar = 0.25 * (ratio.log() + euclidean / (4 * dim) / (scalar_i + scalar_j))
            kl = 0.5 * (torch.log(scalar_j / scalar_i) + scalar_i / scalar_j + euclidean.mean() / scalar_j)
            back = 0.5 * (torch.log(scalar_i / scalar_j) + scalar_j / scalar_i + euclidean.mean() / scalar_i)
            printed = {
                "squared_euclidean_sampled": euclidean.mean(),
                "bhattacharyya_sampled": vector.mean(),
                "bhattacharyya_sampled_scalar": scalar.mean(),
                "kl_printed": kl,
                "js_printed": 0.5 * (kl + back),
                "wasserstein2_squared_printed": euclidean.mean() + scalar_i.sqrt() - scalar_j,
            }
            for name, value in printed.items():
                assert DISTANCES[name](p, q)[i, j].item() == pytest.approx(value.item(), rel=1e-9), name


@pytest.mark.parametrize("name", [name for name in DISTANCES if "_expected" in name])
def test_expected_distances_are_what_sampling_converges_to(name: str) -> None:
    expected, sampled = DISTANCES[name], DISTANCES[name.replace("_expected", "_sampled")]
    generator = torch.Generator().manual_seed(0)
    p, q = make(0)[0].gaussian, make(1)[0].gaussian
    draws = torch.stack(
        [
            sampled(
                Sampled(p, Moments.of_samples(p.sample(8, generator=generator))),
                Sampled(q, Moments.of_samples(q.sample(8, generator=generator))),
            )
            for _ in range(400)
        ]
    )
    truth = expected(make(0)[0], make(1)[0])
    assert ((draws.mean(dim=0) - truth) / (draws.std(dim=0) / 400**0.5)).abs().max() < 5  # standard errors


@given(seed=seeds)
def test_distance_between_means(seed: int) -> None:
    p, q = make(seed)[0], make(seed + 1)[0]
    expected = torch.cdist(p.gaussian.mean, q.gaussian.mean, compute_mode="donot_use_mm_for_euclid_dist") ** 2
    torch.testing.assert_close(distances.squared_euclidean_means(p, q), expected)


# --- self-distances ----------------------------------------------------------------------------------------


@given(seed=seeds, num_samples=st.integers(2, 6))
def test_self_distances_leave_out_equal_samples(seed: int, num_samples: int) -> None:
    videos, z = make(seed, num_samples=num_samples)
    for i in range(4):
        different = ~torch.eye(num_samples, dtype=torch.bool)
        gaps = (z[i].unsqueeze(1) - z[i]).square()[different]
        euclidean = self_distances(distances.squared_euclidean_sampled, videos, num_samples=num_samples)
        assert euclidean[i].item() == pytest.approx(gaps.sum(dim=-1).mean().item())
        vector = self_distances(distances.bhattacharyya_sampled, videos, num_samples=num_samples)
        expected = (gaps / (32 * videos.gaussian.var[i])).mean()
        assert vector[i].item() == pytest.approx(expected.item())


def test_the_self_distance_is_one_sixteenth_whatever_the_variance() -> None:
    videos, _ = make(0, num_videos=400, dim=64, num_samples=10)
    own = self_distances(distances.bhattacharyya_sampled, videos, num_samples=10)
    assert abs(own.mean() - 1 / 16) < 5 * own.std() / 400**0.5
    assert own.std() < 0.01
    kept = distances.bhattacharyya_sampled(videos, videos).diagonal()
    assert kept.mean().item() == pytest.approx(0.9 / 16, rel=0.02)  # K zeros among K^2 pairs
    exact = distances.bhattacharyya_expected(videos, videos).diagonal()
    torch.testing.assert_close(exact, torch.full_like(exact, 1 / 16))


def test_a_self_distance_needs_two_samples() -> None:
    with pytest.raises(ConfigError, match="at least 2 samples"):
        self_distances(distances.bhattacharyya_sampled, make(0, num_samples=1)[0], num_samples=1)


# --- laws over the dict ------------------------------------------------------------------------------------


@every
@settings(max_examples=20)
@given(seed=seeds)
def test_non_negative_symmetric_and_zero_at_equality(name: str, seed: int) -> None:
    p, q = make(seed)[0], make(seed + 1, num_videos=3)[0]
    there, back = DISTANCES[name](p, q), DISTANCES[name](q, p)
    assert there.shape == (4, 3)
    assert (there.min() >= 0) or name in MAY_BE_NEGATIVE
    if name in ASYMMETRIC:
        assert not torch.allclose(there, back.T)
    else:
        torch.testing.assert_close(there, back.T)
    own = DISTANCES[name](p, p).diagonal()
    if name in NOT_ZERO_AT_EQUALITY:
        assert (own > 1e-3).any()
    else:
        assert own.abs().max() < 1e-12


@every
@settings(max_examples=10)
@given(seed=seeds, order=st.permutations(range(4)))
def test_each_pair_stands_alone(name: str, seed: int, order: list[int]) -> None:
    p, q = make(seed)[0], make(seed + 1)[0]
    whole = DISTANCES[name](p, q)
    torch.testing.assert_close(DISTANCES[name](pick(p, order), q), whole[order])
    torch.testing.assert_close(DISTANCES[name](p, pick(q, order)), whole[:, order])
    torch.testing.assert_close(DISTANCES[name](pick(p, [2]), pick(q, [1])), whole[2:3, 1:2])


@every
@given(seed=seeds)
def test_grows_as_the_means_part(name: str, seed: int) -> None:
    p, direction = make(seed)[0], torch.ones(3, dtype=torch.float64)

    def moved(by: float) -> Sampled:
        gaussian = Gaussian(p.gaussian.mean + by * direction, p.gaussian.log_var)
        return Sampled(gaussian, Moments(p.drawn.mean + by * direction, p.drawn.var))

    near, far, farther = (DISTANCES[name](p, moved(by)).diagonal() for by in (0.0, 1.0, 2.0))
    assert (near < far).all()
    assert (far < farther).all()


@every
def test_blocks_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    p, q = make(0, num_videos=7)[0], make(1, num_videos=5)[0]
    whole = DISTANCES[name](p, q)
    monkeypatch.setattr(distances, "BLOCK_ELEMENTS", 31)
    torch.testing.assert_close(DISTANCES[name](p, q), whole)


@every
def test_gradients_are_right(name: str) -> None:
    gaussian, samples = make(0, num_videos=2)[0].gaussian, make(0, num_videos=2)[1]
    other = make(1, num_videos=3)[0]

    def distance(mean: Tensor, log_var: Tensor, samples: Tensor) -> Tensor:
        return DISTANCES[name](Sampled(Gaussian(mean, log_var), Moments.of_samples(samples)), other)

    inputs = (gaussian.mean.requires_grad_(), gaussian.log_var.requires_grad_(), samples.requires_grad_())
    assert torch.autograd.gradcheck(distance, inputs)


@every
@pytest.mark.parametrize("log_vars", [(-40.0, -40.0), (40.0, 40.0), (-40.0, 40.0)])
def test_finite_at_extreme_variances(name: str, log_vars: tuple[float, float]) -> None:
    mean = torch.zeros(2, 128, requires_grad=True)
    log_var = torch.tensor(log_vars).unsqueeze(1).repeat(1, 128).requires_grad_()
    gaussian = Gaussian(mean, log_var)
    videos = Sampled(
        gaussian, Moments.of_samples(gaussian.sample(4, generator=torch.Generator().manual_seed(0)))
    )
    values = DISTANCES[name](videos, videos)
    assert values.dtype == torch.float32
    assert values.isfinite().all()
    values.mean().backward()
    for leaf in (mean, log_var):
        assert leaf.grad is None or leaf.grad.isfinite().all()


@every
def test_autocast_changes_nothing(name: str) -> None:
    p, samples = make(0)
    single = Sampled(
        Gaussian(p.gaussian.mean.float(), p.gaussian.log_var.float()), Moments.of_samples(samples.float())
    )
    plain = DISTANCES[name](single, single)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(DISTANCES[name](single, single), plain)


def test_an_unknown_name_is_refused() -> None:
    assert find_distance("kl") is distances.kl
    with pytest.raises(ConfigError, match=r"no distance 'cosine'.*bhattacharyya_sampled"):
        find_distance("cosine")
