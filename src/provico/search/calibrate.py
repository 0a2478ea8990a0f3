"""How often are the hits of a search right? Asked of the videos that are searched.

Each labelled video is a query among the videos of other recordings, and a hit is right if it has the same
label. Without labels that cannot be known; `search/chance.py` says how surprising a hit is instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from provico.defaults import CALIBRATION_QUERIES
from provico.errors import ConfigError
from provico.probability.calibration import Calibration, JudgedBy
from provico.search.exact.found import TopK

SourceChoice = Literal["auto", "judgements", "labels"]

LEAST_VIDEOS = 20
"""Of fewer videos nothing can be said."""
LEAST_OF_A_KIND = 20
"""Pairs that match, and pairs that do not, below which labels are not enough."""


class Searched(Protocol):
    """Videos that are searched by match probability, each of which can be a query."""

    @property
    def labels(self) -> Sequence[str | None]:
        """The label of each video."""
        ...

    @property
    def groups(self) -> Sequence[str | None]:
        """The recording that each video was cut from, where that is known."""
        ...

    def best_of_other_groups(
        self, rows: Int[Tensor, "some"], *, k: int, allowed: Bool[Tensor, "videos"]
    ) -> list[TopK]:
        """The k best allowed videos of other groups for each of some videos."""
        ...


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """Pairs of which it is known whether they match."""

    log_probability: Float[Tensor, "pairs"]
    is_match: Bool[Tensor, "pairs"]
    groups: tuple[str, ...]
    """The recording of the query of each."""
    source: JudgedBy
    description: str

    @property
    def num_of_rarer_kind(self) -> int:
        """Matches or others, whichever are fewer."""
        num_matches = int(self.is_match.sum())
        return min(num_matches, len(self.is_match) - num_matches)

    def fit(self) -> Calibration:
        """The calibration that follows from them."""
        return Calibration.fit(
            self.log_probability,
            self.is_match,
            source=self.source,
            pairs=self.description,
            groups=self.groups,
        )


def calibrate(
    videos: Searched,
    *,
    k: int = 10,
    num_queries: int = CALIBRATION_QUERIES,
    seed: int = 0,
) -> Calibration:
    """How often hits among these videos are right.

    k: hits of each query.
    num_queries: at most so many videos, chosen by the seed, are queries.
    """
    for name, value in (("k", k), ("num_queries", num_queries)):
        if value < 1:
            raise ConfigError(f"{name} is {value}, but it must be at least 1.")
    if len(videos.labels) < LEAST_VIDEOS:
        raise ConfigError(
            f"There are {len(videos.labels)} videos, but a calibration needs at least {LEAST_VIDEOS}. Add "
            "more."
        )
    pairs = labelled_pairs(videos, k=k, num_queries=num_queries, seed=seed)
    if pairs.num_of_rarer_kind < LEAST_OF_A_KIND:
        raise ConfigError(
            f"Of {len(pairs.is_match)} labelled pairs {int(pairs.is_match.sum())} match, but at least "
            f"{LEAST_OF_A_KIND} that match and as many that do not are needed. Label more videos of at least "
            "two classes. Without labels, --max-chance leaves out what may match by chance."
        )
    return pairs.fit()


def labelled_pairs(
    videos: Searched, *, k: int = 10, num_queries: int = CALIBRATION_QUERIES, seed: int = 0
) -> ScoredPairs:
    """Labelled videos and their hits among the labelled videos of other groups."""
    classes = {
        label: number for number, label in enumerate(dict.fromkeys(videos.labels)) if label is not None
    }
    label_of = torch.tensor([-1 if label is None else classes[label] for label in videos.labels])
    is_labelled = label_of >= 0
    rows = _chosen(is_labelled.nonzero().flatten(), num_queries, seed)
    found = videos.best_of_other_groups(rows, k=k, allowed=is_labelled) if len(rows) else []
    scores = [hits.scores for hits in found]
    right = [label_of[hits.rows] == label_of[row] for row, hits in zip(rows, found, strict=True)]
    return ScoredPairs(
        log_probability=torch.cat([torch.empty(0, dtype=torch.float64), *scores]),
        is_match=torch.cat([torch.empty(0, dtype=torch.bool), *right]),
        groups=_groups(videos, rows, [len(some) for some in scores]),
        source="labels",
        description=(
            f"{len(rows)} videos and their {k} best hits of other recordings; a match has the same label"
        ),
    )


def _chosen(rows: Int[Tensor, "videos"], most: int, seed: int) -> Int[Tensor, "chosen"]:
    if len(rows) <= most:
        return rows
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    return rows[order[:most]].sort().values


def _groups(videos: Searched, rows: Int[Tensor, "some"], counts: Sequence[int]) -> tuple[str, ...]:
    """The group of each pair; a video without one is one by itself."""
    names = [videos.groups[row] or f"video {row}" for row in rows.tolist()]
    return tuple(name for name, count in zip(names, counts, strict=True) for _ in range(count))
