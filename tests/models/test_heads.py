"""The heads start where the parametrisation says, stay within bounds, and can leave a bound again."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from provico.models.heads import (
    WHITENING,
    FeatureStandardisation,
    GaussianHead,
    LogVarHead,
    LowDimProjection,
    MatchScale,
    MeanHead,
    bounded,
)
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
    unit_means = replace(PARAMETRISATIONS["sqrt_dim"], mean_length="unit", initial_variance=0.1)
    for dim, bias in ((128, -7.15), (256, -7.85), (512, -8.54), (1024, -9.23)):
        head = LogVarHead(16, dim, parametrisation=unit_means)
        assert float(head.layers[-1].bias.detach().mean()) == pytest.approx(bias, abs=0.01)


def test_mean_is_linear_then_layer_norm_then_l2() -> None:
    torch.manual_seed(0)
    head = MeanHead(6, 4, length=2.0)
    features = torch.randn(3, 6)
    linear = features @ head.layers[0].weight.T + head.layers[0].bias
    centred = linear - linear.mean(-1, keepdim=True)
    # LayerNorm only centres and scales here, and l2 takes the scale away again.
    expected = 2.0 * centred / centred.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(head(features), expected)


def test_networks_side_by_side_have_means_of_their_own() -> None:
    """Each depends on its own features alone and has its share of the length."""
    torch.manual_seed(0)
    head = GaussianHead(8, 6, parametrisation=SQRT_DIM, hidden_dim=5, streams=(3.0, 1.0))
    features = torch.randn(4, 8)
    first, second = head(features).mean.detach().chunk(2, dim=-1)
    torch.testing.assert_close(first.square().sum(-1), torch.full((4,), 4.5))
    torch.testing.assert_close(second.square().sum(-1), torch.full((4,), 1.5))
    features[:, 4:] += 1
    same, other = head(features).mean.detach().chunk(2, dim=-1)
    assert torch.equal(same, first)
    assert not torch.equal(other, second)
    torch.testing.assert_close(second, head.mean.streams[1](features[:, 4:] - 1))


def test_the_two_heads_share_nothing() -> None:
    head = GaussianHead(6, 4, parametrisation=SQRT_DIM, hidden_dim=5)
    head(torch.randn(3, 6)).log_var.sum().backward()
    assert all(parameter.grad is None for parameter in head.mean.parameters())
    assert all(parameter.grad is not None for parameter in head.log_var.parameters())


@pytest.mark.parametrize(
    ("shared", "own", "widths"), [(None, 7, (None, 7)), (5, None, (5, 5)), (5, 7, (5, 7))]
)
def test_the_variance_can_have_a_hidden_layer_of_its_own(
    shared: int | None, own: int | None, widths: tuple[int | None, int | None]
) -> None:
    head = GaussianHead(6, 4, parametrisation=SQRT_DIM, hidden_dim=shared, log_var_hidden_dim=own)
    found = [
        layers[0].out_features if len(layers) > 1 else None
        for layers in (head.mean.layers, head.log_var.layers)
    ]
    assert found == list(widths)
    assert head(torch.randn(3, 6)).log_var.shape == (3, 4)


def test_standardisation_as_built_changes_nothing() -> None:
    features = torch.randn(3, 2, 6)
    assert torch.equal(FeatureStandardisation(6)(features), features)
    head = GaussianHead(6, 4, parametrisation=SQRT_DIM)
    assert torch.equal(head(features).mean, head.mean(features))
    assert not any("standardisation" in name for name, _ in head.named_parameters())


@given(
    seed=st.integers(0, 2**31),
    shift=st.floats(-50, 50),
    size=st.floats(1e-3, 1e3),
    blocks=st.sampled_from([None, (6,), (2, 4), (3, 1, 2), (1,) * 6]),
)
def test_fitted_features_are_centred_and_every_block_has_the_same_variance(
    seed: int, shift: float, size: float, blocks: tuple[int, ...] | None
) -> None:
    generator = torch.Generator().manual_seed(seed)
    features = size * (torch.randn(9, 6, generator=generator) * torch.arange(1, 7) + shift)
    standardisation = FeatureStandardisation(6)
    standardisation.fit(features, blocks=blocks)
    found = standardisation(features)
    columns, start = features.double().T.tolist(), 0
    for width in blocks or (6,):
        block = range(start, start + width)
        means = {column: sum(columns[column]) / 9 for column in block}
        total = sum((value - means[column]) ** 2 for column in block for value in columns[column]) / 8
        scale = math.sqrt(6 / len(blocks or (6,)) / total)
        # float32 resolves a feature to 6e-8 of its distance from zero.
        tolerance = 1e-5 + 2e-7 * size * (abs(shift) + 20) * scale
        for column in block:
            expected = [(value - means[column]) * scale for value in columns[column]]
            assert found[:, column].tolist() == pytest.approx(expected, abs=tolerance)
        start += width
    # A coordinate has a variance of one on average, and clips are put into the same units as videos.
    assert float(found.var(dim=0).sum()) == pytest.approx(6, rel=1e-3)
    assert torch.equal(standardisation(features.view(3, 3, 6)), found.view(3, 3, 6))


def test_a_block_that_never_changes_is_only_centred() -> None:
    features = torch.cat([torch.randn(9, 2), torch.tensor([0.1, 3e7, -5.0]).expand(9, 3)], dim=1)
    standardisation = FeatureStandardisation(5)
    standardisation.fit(features, blocks=(2, 3))
    assert torch.equal(standardisation(features)[:, 2:], torch.zeros(9, 3))
    assert torch.equal(standardisation.scale[2:], torch.ones(3))


def test_fitted_units_make_heads_blind_to_the_units_of_each_block_and_are_saved() -> None:
    torch.manual_seed(0)
    features = torch.randn(20, 6)
    units = torch.tensor([1e-3, 1e-3, 1e4, 1e4, 1e4, 1e4])
    head = GaussianHead(6, 4, parametrisation=SQRT_DIM)
    head.standardisation.fit(features, blocks=(2, 4))
    expected = head(features)
    head.standardisation.fit(features * units + 3 * units, blocks=(2, 4))
    found = head(features * units + 3 * units)
    torch.testing.assert_close(found.mean, expected.mean, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.log_var, expected.log_var, rtol=1e-4, atol=1e-4)
    other = GaussianHead(6, 4, parametrisation=SQRT_DIM)
    other.load_state_dict(head.state_dict())
    assert torch.equal(other(features).mean, head(features).mean)


def test_a_mean_head_can_start_at_the_principal_axes() -> None:
    torch.manual_seed(0)
    features = torch.randn(40, 6) @ torch.randn(6, 6) + 5
    head = MeanHead(6, 4, length=2.0)
    head.start_at_principal_axes(features)
    coordinates = head.layers(features)
    # By the definition: eigenvectors of the covariance, largest eigenvalue first, softly whitened.
    centred = (features - features.mean(dim=0)).double()
    values, vectors = torch.linalg.eigh(centred.T @ centred / 39)
    expected = (centred @ (vectors * values ** (-WHITENING / 2)).flip(1)[:, :4]).float()
    expected = expected / expected.std()
    for found, wanted in zip(coordinates.T, expected.T, strict=True):
        sign = torch.sign(found @ wanted)
        torch.testing.assert_close(found, sign * wanted, rtol=1e-3, atol=1e-4)
    axes = torch.nn.functional.normalize(head.layers[0].weight.detach(), dim=1)
    torch.testing.assert_close(axes @ axes.T, torch.eye(4), rtol=0, atol=1e-5)
    assert bool((axes.gather(1, axes.abs().argmax(dim=1, keepdim=True)) > 0).all())
    variances = coordinates.var(dim=0)
    torch.testing.assert_close(
        (variances / variances[0]).double(),
        (values.flip(0)[:4] / values[-1]) ** (1 - WHITENING),
        rtol=1e-3,
        atol=1e-4,
    )
    norms = head(features).norm(dim=-1)
    torch.testing.assert_close(norms, torch.full_like(norms, 2.0))


@pytest.mark.parametrize(("num_videos", "feature_dim"), [(40, 3), (4, 30)])
def test_axes_that_do_not_exist_are_zero(num_videos: int, feature_dim: int) -> None:
    torch.manual_seed(0)
    features = torch.randn(num_videos, feature_dim) + 1
    head = MeanHead(feature_dim, 16, length=4.0)
    head.start_at_principal_axes(features)
    num_axes = min(num_videos, feature_dim)
    coordinates = head.layers(features)
    assert not coordinates[:, num_axes:].any()
    # Nothing is lost: the videos can be told from their coordinates.
    centred = (features - features.mean(dim=0)).double()
    known = coordinates.detach().double()
    again = known @ torch.linalg.pinv(known, rtol=1e-4) @ centred
    torch.testing.assert_close(again, centred, rtol=1e-3, atol=1e-4)
    loss = head(features).square().sum() + head(features)[0].sum()
    loss.backward()
    assert bool(head.layers[0].weight.grad.isfinite().all())


def test_the_axes_do_not_depend_on_the_order_of_the_videos() -> None:
    torch.manual_seed(0)
    features = torch.randn(12, 5)
    head, other = (MeanHead(5, 3, length=1.0) for _ in range(2))
    head.start_at_principal_axes(features)
    other.start_at_principal_axes(features.flip(0))
    torch.testing.assert_close(head(features), other(features), rtol=1e-4, atol=1e-4)


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
