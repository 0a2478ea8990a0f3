"""The heads start where the parametrisation says, stay within bounds, and can leave a bound again."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from provico.models.heads import GaussianHead, LogVarHead, LowDimProjection, MatchScale, MeanHead, bounded
from provico.probability import PARAMETRISATIONS, Gaussian

SQRT_DIM = PARAMETRISATIONS["sqrt_dim"]
names = pytest.mark.parametrize("name", PARAMETRISATIONS)


@names
@pytest.mark.parametrize("dim", [8, 128, 1024])
@pytest.mark.parametrize("hidden_dim", [None, 256])
def test_variance_starts_where_the_parametrisation_says(name: str, dim: int, hidden_dim: int | None) -> None:
    torch.manual_seed(0)
    scale = PARAMETRISATIONS[name]
    head = GaussianHead(512, dim, parametrisation=scale, hidden_dim=hidden_dim)
    # Pooled features of a network that ends in a ReLU: non-negative and of order one.
    gaussian = head(torch.randn(64, 512).relu())
    total_noise = float(gaussian.var.detach().sum(-1).mean())
    assert total_noise == pytest.approx(dim * math.exp(scale.initial_log_var(dim)), rel=0.2)
    norms = gaussian.mean.detach().norm(dim=-1)
    torch.testing.assert_close(norms, torch.full_like(norms, scale.mean_norm(dim)))


def test_the_printed_advice_for_the_start_of_the_variance() -> None:
    # log(0.1 / D), as for PCME's unit means: what matters is D sigma^2 = 0.1.
    for dim, bias in ((128, -7.15), (256, -7.85), (512, -8.54), (1024, -9.23)):
        head = LogVarHead(16, dim, parametrisation=PARAMETRISATIONS["pcme"])
        assert float(head.layers[-1].bias.detach().mean()) == pytest.approx(bias, abs=0.01)


def test_mean_is_linear_then_layer_norm_then_l2() -> None:
    torch.manual_seed(0)
    head = MeanHead(6, 4, parametrisation=SQRT_DIM)
    features = torch.randn(3, 6)
    linear = features @ head.layers[0].weight.T + head.layers[0].bias
    centred = linear - linear.mean(-1, keepdim=True)
    # LayerNorm only centres and scales here, and l2 takes the scale away again.
    expected = 2.0 * centred / centred.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(head(features), expected)


def test_the_two_heads_share_nothing() -> None:
    head = GaussianHead(6, 4, parametrisation=SQRT_DIM, hidden_dim=5)
    head(torch.randn(3, 6)).log_var.sum().backward()
    assert all(parameter.grad is None for parameter in head.mean.parameters())
    assert all(parameter.grad is not None for parameter in head.log_var.parameters())


@names
def test_features_of_any_size_give_finite_values_and_gradients(name: str) -> None:
    scale = PARAMETRISATIONS[name]
    for size in (0.0, 1e-6, 1.0, 1e4):
        head = GaussianHead(16, 8, parametrisation=scale)
        features = torch.full((2, 16), size).requires_grad_()
        gaussian = head(features)
        low, high = scale.log_var_bounds(8)
        assert bool(((gaussian.log_var >= low) & (gaussian.log_var <= high)).all())
        (gaussian.mean.sum() + gaussian.log_var.sum()).backward()
        assert bool(features.grad.isfinite().all())


@settings(deadline=None)
@given(values=st.lists(st.floats(-10, 10), min_size=1, max_size=8), sign=st.sampled_from([-1.0, 1.0]))
def test_bounded_is_a_clamp_whose_gradient_never_points_further_out(values: list[float], sign: float) -> None:
    raw = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    output = bounded(raw, -2.0, 3.0)
    assert torch.equal(output, raw.detach().clamp(-2.0, 3.0))
    (sign * output).sum().backward()
    for value, grad in zip(values, raw.grad.tolist(), strict=True):
        pushes_out = (value < -2.0 and sign > 0) or (value > 3.0 and sign < 0)
        assert grad == (0.0 if pushes_out else sign)


@pytest.mark.parametrize("start", [-50.0, 50.0])
def test_a_log_variance_far_outside_comes_back(start: float) -> None:
    head = LogVarHead(4, 8, parametrisation=SQRT_DIM)
    torch.nn.init.constant_(head.layers[-1].bias, start)
    optimiser = torch.optim.Adam(head.parameters(), lr=1.0)
    features = torch.ones(2, 4)
    for _ in range(120):
        optimiser.zero_grad()
        (head(features) + 1.0).square().sum().backward()
        optimiser.step()
    torch.testing.assert_close(head(features), torch.full((2, 8), -1.0), atol=0.1, rtol=0)


def test_heads_keep_float32_under_autocast() -> None:
    torch.manual_seed(0)
    head = GaussianHead(32, 8, parametrisation=SQRT_DIM)
    features = torch.randn(4, 32)
    expected = head(features)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = head(features)
        assert head(features.bfloat16()).mean.dtype == torch.float32
    assert torch.equal(found.mean, expected.mean)
    assert torch.equal(found.log_var, expected.log_var)


@names
def test_projection_to_three_dimensions(name: str) -> None:
    torch.manual_seed(0)
    scale = PARAMETRISATIONS[name]
    head = GaussianHead(64, 128, parametrisation=scale)
    project = LowDimProjection(128, parametrisation=scale)
    drawn = project(head(torch.randn(200, 64).relu()))
    assert drawn.mean.shape == drawn.log_var.shape == (200, 3)
    assert float(drawn.log_var.detach().mean()) == pytest.approx(scale.initial_log_var(3), abs=0.3)
    assert float(drawn.mean.detach().norm(dim=-1).std()) > 0  # not on a sphere
    (drawn.mean.sum() + drawn.log_var.sum()).backward()
    assert all(bool(p.grad.isfinite().all()) for module in (head, project) for p in module.parameters())


def test_projection_takes_mean_and_variance_apart() -> None:
    project = LowDimProjection(8, parametrisation=SQRT_DIM)
    a = Gaussian(torch.randn(2, 8), torch.randn(2, 8))
    b = Gaussian(a.mean, a.log_var + 1)
    assert torch.equal(project(a).mean, project(b).mean)
    assert not torch.equal(project(a).log_var, project(b).log_var)


@names
@pytest.mark.parametrize("dim", [8, 512])
def test_match_scale_starts_as_asked_and_stays_positive(name: str, dim: int) -> None:
    scale = PARAMETRISATIONS[name]
    match = MatchScale(dim, parametrisation=scale)
    curve = match()
    assert float(curve.a.detach()) == pytest.approx(scale.initial_a(dim))
    assert float(curve.b.detach()) == pytest.approx(scale.initial_b(dim))
    assert curve.sigmoid_scale == scale.sigmoid_scale
    optimiser = torch.optim.SGD(match.parameters(), lr=1.0)
    for _ in range(20):  # pushes a down as hard as it can
        optimiser.zero_grad()
        match().a.backward()
        optimiser.step()
    assert 0 < float(match().a.detach()) < scale.initial_a(dim)
