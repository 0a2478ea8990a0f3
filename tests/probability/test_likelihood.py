"""The likelihood of another clip against its definition, and what it teaches."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from provico.probability import Gaussian, negative_log_likelihood


@pytest.fixture
def clips() -> Gaussian:
    generator = torch.Generator().manual_seed(0)
    return Gaussian(
        torch.randn(7, 5, generator=generator, dtype=torch.float64),
        torch.randn(7, 5, generator=generator, dtype=torch.float64),
    )


def test_it_is_the_mean_negative_log_density(clips):
    others = clips.mean.flip(0)
    expected = -stats.norm.logpdf(others, clips.mean, clips.std).mean(axis=-1)
    torch.testing.assert_close(negative_log_likelihood(clips, others), torch.from_numpy(expected))


def test_gradients_agree_with_finite_differences(clips):
    def nll(mean: torch.Tensor, log_var: torch.Tensor) -> torch.Tensor:
        return negative_log_likelihood(Gaussian(mean, log_var), clips.mean.flip(0))

    inputs = (clips.mean.clone().requires_grad_(), clips.log_var.clone().requires_grad_())
    assert torch.autograd.gradcheck(nll, inputs)


def test_it_is_lowest_where_the_variance_is_the_mean_squared_distance():
    """Ten thousand clips that look alike, and so have one variance."""
    generator = torch.Generator().manual_seed(1)
    others = 3**0.5 * torch.randn(10_000, 4, generator=generator, dtype=torch.float64)
    best = others.square().mean(dim=0).log()

    def score(log_var: torch.Tensor) -> torch.Tensor:
        clips = Gaussian(torch.zeros_like(others), log_var.expand_as(others))
        return negative_log_likelihood(clips, others).mean()

    at_best = best.clone().requires_grad_()
    score(at_best).backward()
    torch.testing.assert_close(at_best.grad, torch.zeros(4, dtype=torch.float64))
    for step in (-0.01, 0.01):
        assert score(best + step) > score(best)
    assert best.exp().tolist() == pytest.approx([3.0] * 4, rel=0.06)
