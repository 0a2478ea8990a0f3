"""Exhaustive search of embeddings in memory.

It equals the search of an index, without the index: the same samples, the same exclusion rules, and the
kernel of `probability/match_scores` in float32.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from provico.embedding.embeddings import Embeddings
from provico.probability.match_scores import log_match_scores
from provico.probability.matching import MatchCurve
from provico.probability.mixture import Mixture
from provico.probability.seeded_samples import Draw, seeded_samples
from provico.search.exact.found import Certificate, TopK
from provico.search.query import Barred, Exclusion

QUERIES_AT_ONCE = 64
"""Number of queries that are compared with all videos at once."""


@dataclass(frozen=True, eq=False)
class Sampling:
    """The choice of samples per video."""

    num_samples: int
    seed: int = 0
    draw: Draw = "moments"

    def of(self, ids: Sequence[str], videos: Mixture, stream: str) -> Float[Tensor, "videos samples dim"]:
        """K samples of each video; a video that is a query and in the gallery has two independent sets."""
        return seeded_samples(
            ids, videos, num_samples=self.num_samples, seed=self.seed, draw=self.draw, stream=stream
        )


@dataclass(frozen=True, eq=False)
class SearchedEmbeddings:
    """A gallery of embeddings; a `provico.search.calibrate.Searched`."""

    embeddings: Embeddings
    curve: MatchCurve
    sampling: Sampling

    def log_scores(
        self, queries: Embeddings, *, num_ranked: int | None = None
    ) -> Iterator[Float[Tensor, "chunk gallery"]]:
        """The log match probability of queries with the whole gallery, a block of queries at a time.

        num_ranked: only this many of the largest are needed; see `log_match_scores`.
        """
        for part in chunks(queries):
            ours = self.sampling.of(part.ids, part.videos, "query")
            yield log_match_scores(ours, self._samples, curve=self.curve, num_ranked=num_ranked)

    def best(
        self,
        queries: Embeddings,
        *,
        k: int,
        exclude_same: Exclusion = "nothing",
        allowed: Bool[Tensor, "videos"] | None = None,
    ) -> list[TopK]:
        """The k best videos for each query."""
        found = []
        masks = barred_videos(queries, self.embeddings, exclude_same)
        for scores, barred in zip(self.log_scores(queries), masks, strict=True):
            if allowed is not None:
                barred |= ~allowed
            for best, rows, num_left in zip(
                *ranked(scores, barred), (~barred).sum(dim=1).tolist(), strict=True
            ):
                num = min(k, num_left)
                found.append(TopK(rows[:num], best[:num].double(), Certificate.of_scan(num_left)))
        return found

    @cached_property
    def _samples(self) -> Float[Tensor, "videos samples dim"]:
        return self.sampling.of(self.embeddings.ids, self.embeddings.videos, "gallery")

    # --- for calibrations -----------------------------------------------------------------------------------

    @property
    def labels(self) -> Sequence[str | None]:
        """The label of each video."""
        return self.embeddings.labels

    @property
    def groups(self) -> Sequence[str | None]:
        """The recording of each video."""
        return self.embeddings.groups

    def best_of_other_groups(
        self, rows: Int[Tensor, "some"], *, k: int, allowed: Bool[Tensor, "videos"]
    ) -> list[TopK]:
        """The k best allowed videos of other groups for each of the given videos."""
        queries = some_of(self.embeddings, rows.tolist())
        return self.best(queries, k=k, exclude_same="group", allowed=allowed)


def hits_of(
    queries: Embeddings, gallery: SearchedEmbeddings, *, k: int
) -> tuple[Float[Tensor, "queries k"], Bool[Tensor, "queries k"]]:
    """Log match probabilities of the k best hits of each query, and whether they have its label."""
    found = gallery.best(queries, k=k)
    right = [
        [gallery.labels[row] == label for row in hits.rows.tolist()]
        for label, hits in zip(queries.labels, found, strict=True)
    ]
    return torch.stack([hits.scores for hits in found]), torch.tensor(right)


def ranked(
    scores: Float[Tensor, "queries gallery"], barred: Bool[Tensor, "queries gallery"]
) -> tuple[Float[Tensor, "queries gallery"], Int[Tensor, "queries gallery"]]:
    """Scores in descending order, and their rows; ties are ordered by position in the gallery."""
    # Not topk, whose order of ties is undefined.
    best, rows = scores.masked_fill(barred, -torch.inf).sort(dim=1, descending=True, stable=True)
    return best, rows


def barred_videos(
    queries: Embeddings, gallery: Embeddings, exclude_same: Exclusion
) -> Iterator[Bool[Tensor, "chunk gallery"]]:
    """The excluded videos of the gallery, for a block of queries at a time."""
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, name in enumerate(gallery.ids):
        rows_of[name].append(row)
    groups = np.array(gallery.groups, object)
    masks = (
        Barred.of(exclude_same, rows=rows_of.get(name, ()), group=group).mask(groups)
        for name, group in zip(queries.ids, queries.groups, strict=True)
    )
    while some := list(islice(masks, QUERIES_AT_ONCE)):
        yield torch.stack(some)


def chunks(videos: Embeddings) -> Iterator[Embeddings]:
    """Blocks of videos."""
    for first in range(0, len(videos), QUERIES_AT_ONCE):
        yield some_of(videos, range(first, min(first + QUERIES_AT_ONCE, len(videos))))


def some_of(videos: Embeddings, rows: Sequence[int]) -> Embeddings:
    """A selection of videos, without the list of failed ones."""
    indices = torch.tensor(rows)
    return replace(
        videos,
        ids=tuple(videos.ids[row] for row in rows),
        videos=videos.videos[indices],
        labels=tuple(videos.labels[row] for row in rows),
        groups=tuple(videos.groups[row] for row in rows),
        failed=(),
        clip_seconds=None,
    )
