"""Clusters are stable, sorted by size, and each point is in the nearest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provico.k_means import k_means


def test_clusters_that_are_far_apart_are_found():
    rng = np.random.default_rng(1)
    truth = np.repeat([0, 1, 2], [30, 20, 10])
    places = np.array([[0.0, 0], [50, 0], [0, 50]])
    points = places[truth] + rng.normal(size=(60, 2))
    found = k_means(points, 3)
    assert found.members.tolist() == truth.tolist()  # numbered from the largest
    assert found.centres == pytest.approx(np.stack([points[truth == one].mean(axis=0) for one in range(3)]))


@given(
    st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 6), st.integers(1, 5), st.floats(0.1, 100)
)
def test_every_point_is_nearest_to_the_centre_of_its_cluster(seed, num_points, dim, num_clusters, size):
    points = size * np.random.default_rng(seed).normal(size=(num_points, dim))
    found = k_means(points, num_clusters)
    assert found.members.tolist() == k_means(points, num_clusters).members.tolist()
    assert found.centres.shape == (min(num_clusters, num_points), dim)
    assert np.all(np.diff(np.bincount(found.members)) <= 0)
    squared = np.square(points[:, None] - found.centres).sum(axis=2)
    own = squared[np.arange(num_points), found.members]
    assert np.all(own <= squared.min(axis=1) + 1e-6 * size**2)


@pytest.mark.parametrize("shape", [(0, 4), (1, 4), (2, 4), (5, 1)])
def test_small_sets_are_no_error(shape):
    found = k_means(np.random.default_rng(0).normal(size=shape), 3)
    assert len(found.members) == shape[0]
    assert np.isfinite(found.centres).all()


def test_equal_points_are_no_error():
    found = k_means(np.ones((7, 3)), 3)
    assert set(found.members.tolist()) == {0}
    assert (found.centres == 1).all()
