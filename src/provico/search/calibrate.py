"""How often are the hits of a search right? Asked of the videos that are searched.

With labels, each video is a query among the videos of other recordings, and a hit is right if it has the same
label. Without, the first half of a video's clips is the query: its second half is what should be found, and
the second half of another video, drawn at random, is what should not. That is another question: half of these
pairs match, whatever the share of right hits is, and `docs/uncertainty.md` says how far its answers are off.
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
from provico.probability.calibration import Calibration, Source
from provico.probability.gaussian import Gaussian
from provico.search.exact.top_k import TopK

SourceChoice = Literal["auto", "judgements", "labels", "self-supervised"]

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

    def clips(self, rows: Int[Tensor, "some"]) -> Gaussian:
        """The clips "some clips dim" of some videos."""
        ...

    def best_of_other_groups(
        self, rows: Int[Tensor, "some"], *, k: int, allowed: Bool[Tensor, "videos"]
    ) -> list[TopK]:
        """The k best allowed videos of other groups for each of some videos."""
        ...

    def log_match_of_parts(
        self,
        rows: Int[Tensor, "some"],
        parts: Gaussian,
        other_rows: Int[Tensor, "some"],
        other_parts: Gaussian,
    ) -> Float[Tensor, "some"]:
        """Log match probabilities of parts of some videos with parts of others, pair by pair.

        parts, other_parts: "some clips dim", of the videos in these rows.
        """
        ...


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """Pairs of which it is known whether they match."""

    log_probability: Float[Tensor, "pairs"]
    is_match: Bool[Tensor, "pairs"]
    groups: tuple[str, ...]
    """The recording of the query of each."""
    source: Source
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
    source: SourceChoice = "auto",
    k: int = 10,
    num_queries: int = CALIBRATION_QUERIES,
    seed: int = 0,
) -> Calibration:
    """How often hits among these videos are right.

    source: `auto` takes labels if there are enough of them.
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
    if source != "self-supervised":
        pairs = labelled_pairs(videos, k=k, num_queries=num_queries, seed=seed)
        if pairs.num_of_rarer_kind >= LEAST_OF_A_KIND:
            return pairs.fit()
        if source == "labels":
            raise ConfigError(
                f"Of {len(pairs.is_match)} labelled pairs {int(pairs.is_match.sum())} match, but at least "
                f"{LEAST_OF_A_KIND} that match and as many that do not are needed. Label more videos of at "
                "least two classes, or calibrate without labels (--source self-supervised)."
            )
    return half_pairs(videos, num_queries=num_queries, seed=seed).fit()


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


def half_pairs(videos: Searched, *, num_queries: int = CALIBRATION_QUERIES, seed: int = 0) -> ScoredPairs:
    """First halves of videos, each with the second half of the same video and of one of another group."""
    all_rows = rows = _chosen(torch.arange(len(videos.labels)), num_queries, seed)
    whole = videos.clips(rows)
    if whole.mean.shape[1] < 2:
        raise ConfigError(
            "Each video has one clip, but two halves of a video are compared. Embed at least 2 clips of each "
            "(--num-clips), or calibrate with labels."
        )
    first, second = halves(whole)
    own = videos.log_match_of_parts(rows, first, rows, second)
    others = _others(rows, _numbered_groups(videos.groups), seed)
    has_other = others >= 0
    if not bool(has_other.any()):
        raise ConfigError(
            "All videos are parts of one recording, but those of two are compared. Add videos of another."
        )
    rows, others = rows[has_other], others[has_other]
    first = Gaussian(first.mean[has_other], first.log_var[has_other])
    strange = videos.log_match_of_parts(rows, first, others, halves(videos.clips(others))[1])
    is_match = torch.arange(len(own) + len(strange)) < len(own)
    return ScoredPairs(
        log_probability=torch.cat([own, strange]).double(),
        is_match=is_match,
        groups=_groups(videos, torch.cat([all_rows, rows]), [1] * len(is_match)),
        source="self-supervised",
        description=(
            f"the first halves of {len(own)} videos, each with its second half, which is a match, and with "
            "that of another video drawn at random, which is not"
        ),
    )


def halves(clips: Gaussian) -> tuple[Gaussian, Gaussian]:
    """The earlier and the later clips "videos clips dim" of videos; not every other clip, which overlap."""
    middle = clips.mean.shape[1] // 2
    return (
        Gaussian(clips.mean[:, :middle], clips.log_var[:, :middle]),
        Gaussian(clips.mean[:, middle:], clips.log_var[:, middle:]),
    )


def _chosen(rows: Int[Tensor, "videos"], most: int, seed: int) -> Int[Tensor, "chosen"]:
    if len(rows) <= most:
        return rows
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    return rows[order[:most]].sort().values


def _others(rows: Int[Tensor, "some"], group_of: Int[Tensor, "videos"], seed: int) -> Int[Tensor, "some"]:
    """For each video one of another group, drawn at random; -1 where there is none."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(group_of), generator=generator)
    others = torch.full_like(rows, -1)
    for index, row in enumerate(rows.tolist()):
        start = int(torch.randint(len(order), (), generator=generator))
        candidates = torch.cat([order[start:], order[:start]])
        strangers = candidates[group_of[candidates] != group_of[row]]
        if len(strangers):
            others[index] = strangers[0]
    return others


def _groups(videos: Searched, rows: Int[Tensor, "some"], counts: Sequence[int]) -> tuple[str, ...]:
    """The group of each pair; a video without one is one by itself."""
    names = [videos.groups[row] or f"video {row}" for row in rows.tolist()]
    return tuple(name for name, count in zip(names, counts, strict=True) for _ in range(count))


def _numbered_groups(groups: Sequence[str | None]) -> Int[Tensor, "videos"]:
    """Equal numbers for videos of one group; a video without one is one by itself."""
    numbers: dict[str | int, int] = {}
    keys: list[str | int] = [row if group is None else group for row, group in enumerate(groups)]
    return torch.tensor([numbers.setdefault(key, len(numbers)) for key in keys])
