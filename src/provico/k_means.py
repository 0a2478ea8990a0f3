"""Plain, deterministic k-means."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MAX_ROUNDS = 50
"""Upper limit of iterations."""


@dataclass(frozen=True)
class Clusters:
    """Clusters of points, from the largest to the smallest."""

    centres: Array
    """Their means: "clusters dim"."""
    members: NDArray[np.int64]
    """The cluster of each point."""

    def squared_error(self, points: Array) -> float:
        """Sum of squared distances of the points to the centres of their clusters."""
        return float(np.square(points - self.centres[self.members]).sum())


def k_means(points: Array, num_clusters: int, *, seed: int = 0) -> Clusters:
    """Cluster points "points dim" into at most as many clusters as points; deterministic for a seed."""
    num_clusters = max(1, min(num_clusters, len(points)))
    if num_clusters == 1:
        centre = points.mean(axis=0) if len(points) else np.zeros(points.shape[1])
        return Clusters(centre[None], np.zeros(len(points), np.int64))
    centres = _spread_out(points, num_clusters, np.random.default_rng(seed))
    nearest = _squared_distances(points, centres).argmin(axis=1)
    for _ in range(MAX_ROUNDS):
        for number in range(num_clusters):
            members = points[nearest == number]
            if len(members):  # a centre without points stays where it is
                centres[number] = members.mean(axis=0)
        before, nearest = nearest, _squared_distances(points, centres).argmin(axis=1)
        if np.array_equal(before, nearest):
            break
    order = np.argsort(-np.bincount(nearest, minlength=num_clusters), kind="stable")
    return Clusters(centres[order], np.argsort(order)[nearest])


def best_k_means(points: Array, num_clusters: int, *, rounds: int) -> Clusters:
    """The best of several rounds with different seeds, since each ends in a local optimum."""
    found = (k_means(points, num_clusters, seed=seed) for seed in range(rounds))
    return min(found, key=lambda clusters: clusters.squared_error(points))


def _spread_out(points: Array, num_clusters: int, rng: np.random.Generator) -> Array:
    """k-means++ initialisation: points far from the centres so far are more likely to be the next one."""
    chosen = [int(rng.integers(len(points)))]
    squared = _squared_distances(points, points[chosen])[:, 0]
    while len(chosen) < num_clusters:
        total = float(squared.sum())
        weights = squared / total if total > 0 else None
        chosen.append(int(rng.choice(len(points), p=weights)))
        squared = np.minimum(squared, _squared_distances(points, points[chosen[-1:]])[:, 0])
    return points[chosen].copy()


def _squared_distances(points: Array, centres: Array) -> Array:
    products = points @ centres.T
    squares: Array = np.square(points).sum(axis=1)[:, None] + np.square(centres).sum(axis=1) - 2 * products
    return np.maximum(squares, 0.0)
