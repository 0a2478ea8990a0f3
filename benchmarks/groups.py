"""Are groups those that a person would make, and do they stay when some videos are left out?

    python benchmarks/groups.py INDEX [--wide 0.5 1.0]

For each width that a gap between eigenvalues needs, as a share of the widest: the sizes of the groups, the
adjusted Rand index with the classes (the folders of the videos), and with the groups without a twentieth of
the videos, the mean of 30 draws. A width of 1 is the number of groups by the widest gap.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provico.curation import groups
from provico.search.index import Index

DRAWS = 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("--wide", type=float, nargs="+", default=[groups.WIDE, 1.0])
    options = parser.parse_args()
    index = Index.open(options.index)
    means = index.loaded.videos.mean.numpy().astype(float)
    classes = np.unique([Path(name).parent.name for name in index.ids], return_inverse=True)[1]
    for wide in options.wide:
        groups.WIDE = wide
        everything, rng = grouped(means), np.random.default_rng(0)
        same = []
        for _ in range(DRAWS):
            rows = np.sort(rng.permutation(len(means))[: round(0.95 * len(means))])
            same.append(rand_index(everything[rows], grouped(means[rows])))
        print(
            f"gap of {wide:g}: sizes {np.bincount(everything).tolist()}, classes "
            f"{rand_index(everything, classes):.2f}, without a twentieth {np.mean(same):.2f}"
        )


def grouped(means: NDArray[np.float64]) -> NDArray[np.int64]:
    nothing = np.zeros(len(means), bool)
    return groups.find_groups(means, junk=nothing, copy_of=np.full(len(means), -1))


def rand_index(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """The adjusted Rand index of two groupings."""
    table = np.zeros((one.max() + 1, other.max() + 1))
    np.add.at(table, (one, other), 1)

    def pairs(counts: Any) -> float:
        return float((counts * (counts - 1) / 2).sum())

    both, left, right = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    expected = left * right / pairs(np.array([len(one)]))
    return (both - expected) / ((left + right) / 2 - expected)


if __name__ == "__main__":
    main()
