"""Groups of similar videos, with an automatic number of groups.

Each video is connected to its nearest others, by the direction of its mean from that of the collection, with
weights relative to the local density. Groups are parts of this graph with few connections between them: its
Laplacian has one small eigenvalue per group, and a wide gap between eigenvalues gives their number: the last
one at least half as wide as the widest, since a group that holds most of a folder says little. The same
videos give the same groups, and a few more or fewer change little.

Junk belongs to no group, and copies join their originals, since a black video or a sixth copy says nothing
about a collection. In a large collection evenly spaced videos are grouped, and the others join the nearest
one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from provico.k_means import best_k_means

NO_GROUP = -1
MOST = 12
"""Maximum number of groups: what a reader can grasp at a glance."""
MOST_LABELS = 20
"""... and with labels."""
LEAST_VIDEOS = 8
"""Fewer videos form one group."""
WIDE = 0.5
"""How wide a gap between eigenvalues is, as a share of the widest, to give the number of groups."""
NUM_NEIGHBOURS = 6
NUM_GROUPED = 1000
"""Maximum number of videos in the graph."""
ROUNDS_OF_K_MEANS = 10
_AT_ONCE = 2048

Array = NDArray[np.float64]


def find_groups(
    means: Array, *, junk: NDArray[np.bool_], copy_of: NDArray[np.int64], num_labels: int = 0
) -> NDArray[np.int64]:
    """The group of each video "videos dim", the largest first; `NO_GROUP` for junk.

    copy_of: for a copy, the row of its original; negative for all others.
    num_labels: how many classes the videos have; if several, this is the number of groups.
    """
    groups = np.full(len(means), NO_GROUP, np.int64)
    copies = np.flatnonzero((copy_of >= 0) & ~junk & ~junk[copy_of])
    others = np.setdiff1d(np.flatnonzero(~junk), copies)
    if not len(others):
        return groups
    chosen = others[:: max(1, -(-len(others) // NUM_GROUPED))]
    directions = means - means[chosen].mean(axis=0)
    directions = directions / np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-12)
    found = _of_graph(directions[chosen], num_labels)
    groups[chosen] = found
    rest = np.setdiff1d(others, chosen)
    groups[rest] = found[_nearest(directions[rest], directions[chosen])]
    groups[copies] = groups[copy_of[copies]]
    is_grouped = groups != NO_GROUP
    order = np.argsort(-np.bincount(groups[is_grouped]), kind="stable")
    groups[is_grouped] = np.argsort(order)[groups[is_grouped]]
    return groups


def _of_graph(points: Array, num_labels: int) -> NDArray[np.int64]:
    if len(points) < LEAST_VIDEOS:
        return np.zeros(len(points), np.int64)
    ties = _ties(points)
    degrees = ties.sum(axis=1)
    values, vectors = np.linalg.eigh(np.eye(len(ties)) - ties / np.sqrt(np.outer(degrees, degrees)))
    if num_labels > 1:
        number = min(num_labels, MOST_LABELS, len(points))
    else:
        most = min(MOST, len(points) // 3)
        gaps = np.diff(values[1 : most + 1]).round(9)
        number = 2 + int(np.flatnonzero(gaps >= WIDE * gaps.max())[-1])
    places = vectors[:, :number]
    places = places / np.maximum(np.linalg.norm(places, axis=1, keepdims=True), 1e-12)
    return best_k_means(places, number, rounds=ROUNDS_OF_K_MEANS).members


def _ties(points: Array) -> Array:
    """The weights between points and their nearest others, from 0 to 1, relative to the local density."""
    squared = np.square(points).sum(axis=1)
    squares = np.maximum(squared[:, None] + squared - 2 * points @ points.T, 0.0)
    np.fill_diagonal(squares, np.inf)
    near = np.argsort(squares, axis=1, kind="stable")[:, : min(NUM_NEIGHBOURS, len(points) - 1)]
    rows = np.arange(len(points))[:, None]
    scales = np.maximum(np.sqrt(squares[rows[:, 0], near[:, -1]]), 1e-12)
    ties: Array = np.zeros_like(squares)
    ties[rows, near] = np.exp(-squares[rows, near] / (scales[:, None] * scales[near]))
    ties += ties.T.copy()
    return ties / 2


def _nearest(points: Array, known: Array) -> NDArray[np.int64]:
    found = np.empty(len(points), np.int64)
    squares = np.square(known).sum(axis=1)
    for first in range(0, len(points), _AT_ONCE):
        part = points[first : first + _AT_ONCE]
        found[first : first + _AT_ONCE] = (squares - 2 * part @ known.T).argmin(axis=1)
    return found
