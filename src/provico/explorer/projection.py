"""Many dimensions on two or three axes, and how many clusters a map shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NUM_AXES = 3


@dataclass(frozen=True)
class Axes:
    """The directions in which points differ most, about their mean."""

    mean: Array
    directions: Array
    """Rows of length one, at right angles: "axes dim"."""
    explained: Array
    """The share of the variance along each."""

    def project(self, points: Array) -> Array:
        """Coordinates of points "*points dim" on the axes."""
        return (points - self.mean) @ self.directions.T

    def spread(self, variances: Array) -> Array:
        """Standard deviation along each axis of diagonal Gaussians "*points dim"."""
        return np.sqrt(variances @ np.square(self.directions).T)


def principal_axes(points: Array, num_axes: int = NUM_AXES) -> Axes:
    """Principal components of points "points dim"; axes in which nothing differs are zero.

    A direction and its opposite are equally good: the one whose largest entry is positive is taken, so that a
    map does not flip between two versions of an index.
    """
    num_points, dim = points.shape
    mean = points.mean(axis=0) if num_points else np.zeros(dim)
    centred = points - mean
    covariance = centred.T @ centred / max(1, num_points)
    values, vectors = np.linalg.eigh(covariance)
    order = np.argsort(-values, kind="stable")[:num_axes]
    values, directions = np.maximum(values[order], 0.0), vectors[:, order].T
    largest = np.abs(directions).argmax(axis=1)
    directions = directions * np.sign(directions[np.arange(len(directions)), largest])[:, None]
    total = float(np.trace(covariance))
    # Below the rounding of the decomposition there is no direction, only noise.
    directions[values <= 1e-12 * total] = 0.0
    missing = num_axes - len(directions)
    return Axes(
        mean,
        np.pad(directions, ((0, missing), (0, 0))),
        np.pad(values / total if total > 0 else np.zeros_like(values), (0, missing)),
    )


def sensible_num_clusters(num_points: int, num_labels: int) -> int:
    """As many as there are classes, or what a collection of this size can show; at most 20 colours."""
    return max(1, min(20, num_labels if num_labels > 1 else round((num_points / 2) ** 0.5)))
