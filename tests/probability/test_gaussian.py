"""Laws of the clip Gaussian."""

from __future__ import annotations

import jaxtyping
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from provico.probability import Gaussian

seeds = st.integers(0, 2**31)


def make(seed: int, *shape: int) -> Gaussian:
    generator = torch.Generator().manual_seed(seed)
    mean, log_var = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
    return Gaussian(mean, 1.5 * log_var)


@given(seed=seeds, dim=st.integers(1, 9))
def test_kl_to_unit_is_that_of_torch(seed: int, dim: int) -> None:
    gaussian = make(seed, 4, dim)
    ours = torch.distributions.Normal(gaussian.mean, gaussian.std)
    unit = torch.distributions.Normal(torch.zeros_like(gaussian.mean), torch.ones_like(gaussian.mean))
    expected = torch.distributions.kl_divergence(ours, unit).sum(dim=-1)
    torch.testing.assert_close(gaussian.kl_to_unit(), expected)
    without_mean = expected - 0.5 * gaussian.mean.square().sum(dim=-1)
    torch.testing.assert_close(gaussian.kl_to_unit(mean_term=False), without_mean)


@given(seed=seeds)
def test_uncertainty_is_the_geometric_mean_of_the_variances(seed: int) -> None:
    gaussian = make(seed, 3, 5)
    torch.testing.assert_close(gaussian.uncertainty, gaussian.var.prod(dim=-1) ** (1 / 5))
    torch.testing.assert_close(gaussian.std.square(), gaussian.var)


def test_uncertainty_does_not_underflow() -> None:
    gaussian = Gaussian(torch.zeros(1, 512), torch.full((1, 512), -40.0))
    assert gaussian.var.prod(dim=-1).item() == 0  # the product of the variances is lost in float32
    assert gaussian.log_uncertainty.item() == pytest.approx(-40)


def test_samples_have_the_moments_of_the_gaussian() -> None:
    gaussian = make(0, 3, 2)
    samples = gaussian.sample(200_000, generator=torch.Generator().manual_seed(1))
    assert samples.shape == (3, 200_000, 2)
    error = (samples.mean(dim=1) - gaussian.mean) / (gaussian.std / 200_000**0.5)
    assert error.abs().max() < 5  # standard errors
    torch.testing.assert_close(samples.var(dim=1), gaussian.var, rtol=0.02, atol=0)


def test_samples_follow_the_generator_and_carry_the_gradient() -> None:
    gaussian = make(0, 3, 2)
    mean, log_var = gaussian.mean.requires_grad_(), gaussian.log_var.requires_grad_()

    def draw(mean: torch.Tensor, log_var: torch.Tensor) -> torch.Tensor:
        return Gaussian(mean, log_var).sample(4, generator=torch.Generator().manual_seed(7))

    assert torch.equal(draw(mean, log_var), draw(mean, log_var))
    assert torch.autograd.gradcheck(draw, (mean, log_var))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_lifted(dtype: torch.dtype) -> None:
    gaussian = Gaussian(torch.ones(2, 3, dtype=dtype), torch.zeros(2, 3, dtype=dtype))
    assert gaussian.mean.dtype == gaussian.log_var.dtype == gaussian.sample(2).dtype == torch.float32
    assert make(0, 2, 3).mean.dtype == torch.float64


def test_shapes_must_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # outside tests no shape checker is on
    with pytest.raises(ValueError, match="one log-variance for each coordinate"):
        Gaussian(torch.zeros(2, 3), torch.zeros(2, 4))


@settings(max_examples=20)
@given(log_var=st.floats(-40, 40))
def test_values_and_gradients_stay_finite(log_var: float) -> None:
    mean = torch.zeros(2, 128, requires_grad=True)
    spread = torch.full((2, 128), log_var, requires_grad=True)
    gaussian = Gaussian(mean, spread)
    total = gaussian.kl_to_unit().sum() + gaussian.sample(3).sum() + gaussian.log_uncertainty.sum()
    total.backward()
    for values in (total, mean.grad, spread.grad):
        assert values is not None
        assert values.isfinite().all()


def test_parts_of_a_batch_are_the_batch_again() -> None:
    whole = make(0, 6, 3)
    again = Gaussian.joined([whole[:2], whole[torch.tensor([2, 3])], whole[4:]])
    assert torch.equal(again.mean, whole.mean)
    assert torch.equal(again.log_var, whole.log_var)
    assert whole[0].mean.shape == (3,)
