"""The map is a rotation that keeps most of the variance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provico.explorer.collection import principal_axes


@st.composite
def clouds(draw: st.DrawFn) -> np.ndarray:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_points, dim = draw(st.integers(1, 30)), draw(st.integers(1, 6))
    return rng.normal(size=(num_points, dim)) * rng.uniform(0.1, 5, dim) + rng.normal(size=dim)


@given(clouds())
def test_axes_are_at_right_angles_and_sorted(points):
    axes = principal_axes(points)
    lengths = np.linalg.norm(axes.directions, axis=1)
    assert np.all((np.abs(lengths - 1) < 1e-9) | (lengths == 0))
    products = axes.directions @ axes.directions.T
    assert np.abs(products - np.diag(np.diag(products))).max() < 1e-9
    assert np.all(np.diff(axes.explained) <= 1e-12)
    assert axes.explained.sum() <= 1 + 1e-9


@given(clouds())
def test_no_direction_has_more_variance_than_the_first_axis(points):
    axes = principal_axes(points)
    shown = axes.project(points)[:, 0].var()
    directions = np.random.default_rng(0).normal(size=(20, points.shape[1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    assert shown >= ((points - points.mean(axis=0)) @ directions.T).var(axis=0).max() - 1e-9


@given(clouds(), st.integers(0, 2**32 - 1))
def test_the_order_of_the_points_does_not_matter(points, seed):
    order = np.random.default_rng(seed).permutation(len(points))
    first, second = principal_axes(points), principal_axes(points[order])
    assert np.allclose(first.explained, second.explained, atol=1e-9)
    gaps = np.abs(np.diff(first.explained[: min(points.shape)]))
    if len(points) > 2 and (gaps > 1e-3).all():  # else axes may be exchanged
        kept = first.explained > 1e-3
        assert np.allclose(first.directions[kept], second.directions[kept], atol=1e-5)


def test_explained_shares_are_those_of_a_known_cloud():
    points = np.array([[3.0, 0, 0], [-3, 0, 0], [0, 1, 0], [0, -1, 0]])
    axes = principal_axes(points)
    assert axes.explained == pytest.approx([0.9, 0.1, 0.0])
    assert axes.directions[:2] == pytest.approx(np.eye(3)[:2])
    assert axes.directions[2] == pytest.approx(np.zeros(3))


def test_spread_is_the_standard_deviation_along_an_axis():
    rng = np.random.default_rng(0)
    axes = principal_axes(rng.normal(size=(50, 4)))
    variances = rng.uniform(0.1, 2, 4)
    samples = rng.normal(size=(200_000, 4)) * np.sqrt(variances)
    assert axes.spread(variances) == pytest.approx((samples @ axes.directions.T).std(axis=0), rel=0.01)


@pytest.mark.parametrize("shape", [(0, 4), (1, 4), (2, 4), (5, 1), (5, 2)])
def test_small_collections_have_all_axes(shape):
    points = np.random.default_rng(0).normal(size=shape)
    axes = principal_axes(points)
    assert axes.project(points).shape == (shape[0], 3)
    assert np.isfinite(axes.project(points)).all()


def test_equal_points_are_no_error():
    points = np.ones((7, 3))
    assert np.allclose(principal_axes(points).project(points), 0)
