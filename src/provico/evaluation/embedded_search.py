"""Embeddings in memory, searched by match probability as an index would be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from provico.embedding.embeddings import Embeddings
from provico.probability.gaussian import Gaussian
from provico.probability.match_scores import log_match_scores
from provico.probability.matching import MatchCurve, log_match_probability
from provico.probability.mixture import Mixture
from provico.probability.seeded_samples import seeded_samples
from provico.search.calibrate import numbered_groups, some_clips

QUERIES_AT_ONCE = 64
"""How many queries are compared with all videos at once."""


@dataclass(frozen=True, eq=False)
class SearchedEmbeddings:
    """Embeddings in memory, as search sees them."""

    embeddings: Embeddings
    curve: MatchCurve
    num_samples: int
    seed: int = 0

    @property
    def labels(self) -> Sequence[str | None]:
        """The label of each video."""
        return self.embeddings.labels

    @property
    def groups(self) -> Sequence[str | None]:
        """The recording that each video was cut from."""
        return self.embeddings.groups

    def clips(self, numbers: Int[Tensor, "some"]) -> Gaussian:
        """The clips of some videos."""
        return some_clips(self.embeddings.videos.clips, numbers)

    def nearest(
        self, numbers: Int[Tensor, "some"], clips: Gaussian, *, k: int, allowed: Bool[Tensor, "videos"]
    ) -> list[tuple[Float[Tensor, "found"], Int[Tensor, "found"]]]:
        """The best videos of other groups for each query."""
        theirs = self.samples(torch.arange(len(self.embeddings)), self.embeddings.videos.clips, "gallery")
        group_of = numbered_groups(self.groups)
        found = []
        for rows in torch.split(torch.arange(len(numbers)), QUERIES_AT_ONCE):
            ours = self.samples(numbers[rows], some_clips(clips, rows), "query")
            scores = log_match_scores(ours, theirs, curve=self.curve)
            barred = (group_of[numbers[rows]].unsqueeze(1) == group_of) | ~allowed
            best, order = scores.masked_fill(barred, -torch.inf).sort(dim=1, descending=True, stable=True)
            for values, places, num_left in zip(best, order, (~barred).sum(dim=1).tolist(), strict=True):
                found.append((values[: min(k, num_left)].double(), places[: min(k, num_left)]))
        return found

    def between(
        self,
        numbers: Int[Tensor, "some"],
        ours: Gaussian,
        other_numbers: Int[Tensor, "some"],
        theirs: Gaussian,
    ) -> Float[Tensor, "some"]:
        """Log match probabilities of queries and others, pair by pair."""
        left, right = self.samples(numbers, ours, "query"), self.samples(other_numbers, theirs, "gallery")
        pairs = zip(left.unsqueeze(1), right.unsqueeze(1), strict=True)
        return torch.cat([log_match_probability(a, b, curve=self.curve)[0] for a, b in pairs]).double()

    def samples(
        self, numbers: Int[Tensor, "some"], clips: Gaussian, stream: str
    ) -> Float[Tensor, "some samples dim"]:
        """K samples of parts of these videos, of the same kind as in search."""
        return seeded_samples(
            [self.embeddings.ids[number] for number in numbers.tolist()],
            Mixture(clips),
            num_samples=self.num_samples,
            seed=self.seed,
            stream=stream,
        )


def hits_of(
    queries: Embeddings, gallery: SearchedEmbeddings, *, k: int
) -> tuple[Float[Tensor, "queries k"], Bool[Tensor, "queries k"]]:
    """Log match probabilities of the k best hits of each query, and whether they have its label."""
    k = min(k, len(gallery.embeddings))
    asked = SearchedEmbeddings(queries, gallery.curve, gallery.num_samples, gallery.seed)
    theirs = gallery.samples(
        torch.arange(len(gallery.embeddings)), gallery.embeddings.videos.clips, "gallery"
    )
    parts = []
    for rows in torch.split(torch.arange(len(queries)), QUERIES_AT_ONCE):
        ours = asked.samples(rows, asked.clips(rows), "query")
        scores = log_match_scores(ours, theirs, curve=gallery.curve)
        best, order = scores.sort(dim=1, descending=True, stable=True)
        parts.append((best[:, :k].double(), order[:, :k]))
    found = torch.cat([order for _, order in parts])
    right = [
        [gallery.labels[place] == label for place in places]
        for label, places in zip(queries.labels, found.tolist(), strict=True)
    ]
    return torch.cat([best for best, _ in parts]), torch.tensor(right)
