"""Retrieval: are the nearest videos of a gallery of the query's class?

R@k is the share of queries with *at least one* video of their own class among the k nearest. The match
probability (eq. 9) compares samples, so each video's noise is seeded by its id and the seed: neither the
order of the videos nor the size of blocks changes a result. Ranks are those of log p, since p itself
underflows; ties are ordered by position in the gallery.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from provico.defaults import NUM_SAMPLES
from provico.embedding.embeddings import Embeddings
from provico.errors import ConfigError
from provico.evaluation.embedded_search import (
    Sampling,
    SearchedEmbeddings,
    barred_videos,
    chunks,
    ranked,
)
from provico.probability.distances import Moments, Sampled, check_metric, find_distance
from provico.probability.matching import MatchCurve
from provico.probability.seeded_samples import Draw
from provico.search.query import Exclusion


@dataclass(frozen=True, eq=False)
class RetrievalReport:
    """How well queries find videos of their own class."""

    metric: str
    recalls: dict[int, float]
    """k to R@k, a share between 0 and 1."""
    num_queries: int
    num_gallery: int
    num_failed: int
    """Videos of the queries and the gallery that could not be read. They are not counted anywhere else."""
    nearest: Int[Tensor, "queries k"]
    """Rows of the gallery, the nearest first, as many as the largest k."""
    right: Bool[Tensor, "queries k"]
    """Whether each of them is of the query's class."""
    score: Float[Tensor, "queries"]
    """Log match probability, cosine, or minus the distance of the nearest video."""

    @property
    def correct(self) -> Bool[Tensor, "queries"]:
        """Whether the nearest video is of the query's class."""
        return self.right[:, 0]

    def found_within(self, k: int) -> Bool[Tensor, "queries"]:
        """Whether one of the k nearest is of the query's class."""
        return self.right[:, :k].any(dim=1)

    def summary(self) -> dict[str, Any]:
        """The numbers that go into a JSON file or onto a line."""
        return {
            "metric": self.metric,
            **{f"R@{k}": recall for k, recall in self.recalls.items()},
            "num_queries": self.num_queries,
            "num_gallery": self.num_gallery,
            "num_failed": self.num_failed,
        }


@torch.no_grad()
def retrieve(
    queries: Embeddings,
    gallery: Embeddings,
    *,
    metric: str = "match",
    curve: MatchCurve | None = None,
    ks: Sequence[int] = (1, 5, 10, 20),
    num_samples: int = NUM_SAMPLES,
    seed: int = 0,
    draw: Draw = "moments",
    exclude_same: Exclusion = "nothing",
) -> RetrievalReport:
    """Rank the gallery for each query.

    curve: the encoder's `match_curve()`, which the metric `match` needs.
    metric: `match`, the log match probability of samples; `cosine` of the mean vectors mu_V, without
        sampling; or a name of `DISTANCES`, which is compared by its negative.
    num_samples, seed, draw: for `match` and sampled distances, the number of samples per video (K), their
        seed, and their distribution.
    exclude_same: with `video` or `group`, a set can be searched against itself.
    """
    check_metric(metric)
    _check_choice("draw", draw, get_args(Draw))
    _check_choice("exclude_same", exclude_same, get_args(Exclusion))
    for name, least in (("k", min(ks, default=0)), ("num_samples", num_samples)):
        if least < 1:
            raise ConfigError(f"{name} is {least}, but it must be at least 1.")
    if queries.videos.clips.dim != gallery.videos.clips.dim:
        raise ConfigError(
            f"The queries have {queries.videos.clips.dim} coordinates and the gallery has "
            f"{gallery.videos.clips.dim}. Embed both with the same encoder."
        )
    query_labels, gallery_labels = _indexed(_labels(queries, "queries"), _labels(gallery, "gallery"))
    num_nearest = max(ks)

    def barred() -> Iterator[Bool[Tensor, "chunk gallery"]]:
        return barred_videos(queries, gallery, exclude_same)

    num_left = min(int((~excluded).sum(dim=1).min()) for excluded in barred())
    if num_left < num_nearest:
        raise ConfigError(
            f"R@{num_nearest} needs {num_nearest} candidates, but some query has only {num_left} of the "
            f"{len(gallery)} videos of the gallery with exclude_same={exclude_same!r}. Lower the largest k, "
            "or use a larger gallery."
        )
    # Excluded videos may rank before the others.
    num_ranked = num_nearest + len(gallery) - num_left
    sampling = Sampling(num_samples, seed, draw)
    scores = _scores(queries, gallery, metric, curve, sampling, num_ranked)
    kept: list[tuple[Tensor, Tensor]] = []
    for chunk, excluded in zip(scores, barred(), strict=True):
        best, rows = ranked(chunk, excluded)
        # Copies, since a view would keep all scores alive.
        kept.append((best[:, 0].clone(), rows[:, :num_nearest].clone()))
    nearest = torch.cat([rows for _, rows in kept])
    right = gallery_labels[nearest] == query_labels.unsqueeze(1)
    return RetrievalReport(
        metric=metric,
        recalls={k: float(right[:, :k].any(dim=1).double().mean()) for k in sorted(ks)},
        num_queries=len(queries),
        num_gallery=len(gallery),
        num_failed=len(queries.failed) + (0 if gallery is queries else len(gallery.failed)),
        nearest=nearest,
        right=right,
        score=torch.cat([best for best, _ in kept]),
    )


def _scores(
    queries: Embeddings,
    gallery: Embeddings,
    metric: str,
    curve: MatchCurve | None,
    sampling: Sampling,
    num_ranked: int,
) -> Iterator[Float[Tensor, "chunk gallery"]]:
    """The similarity of queries to the whole gallery, in blocks; exact for the `num_ranked` nearest."""
    if metric == "cosine":
        theirs = F.normalize(gallery.videos.mean, dim=1)
        for part in chunks(queries):
            yield F.normalize(part.videos.mean, dim=1) @ theirs.T
        return
    if metric == "match":
        if curve is None:
            raise ConfigError(
                "The match probability needs the trained curve. Give curve=encoder.match_curve(), or choose "
                "the metric 'cosine'."
            )
        searched = SearchedEmbeddings(gallery, curve.fixed(), sampling)
        yield from searched.log_scores(queries, num_ranked=num_ranked)
        return
    distance = find_distance(metric)
    drawn = Moments.of_samples(sampling.of(gallery.ids, gallery.videos, "gallery"))
    known = Sampled(gallery.videos.moment_matched, drawn)
    for part in chunks(queries):
        drawn = Moments.of_samples(sampling.of(part.ids, part.videos, "query"))
        yield -distance(Sampled(part.videos.moment_matched, drawn), known)


def _indexed(
    ours: Sequence[str | None], theirs: Sequence[str | None]
) -> tuple[Int[Tensor, "ours"], Int[Tensor, "theirs"]]:
    """Indices of names: equal for equal names, -1 for no name."""
    index_of: dict[str, int] = {}

    def of(names: Iterable[str | None]) -> Tensor:
        return torch.tensor(
            [-1 if name is None else index_of.setdefault(name, len(index_of)) for name in names]
        )

    return of(ours), of(theirs)


def _labels(embeddings: Embeddings, what: str) -> tuple[str | None, ...]:
    if not len(embeddings):
        raise ConfigError(f"There are no videos among the {what}. Give at least one.")
    without = [name for name, label in zip(embeddings.ids, embeddings.labels, strict=True) if label is None]
    if without:
        raise ConfigError(
            f"{len(without)} of {len(embeddings)} videos of the {what} have no label, the first of them "
            f"{without[0]}, but retrieval compares labels. "
            "Put videos into class folders, or give a list with labels."
        )
    return embeddings.labels


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} is {value!r}, but it must be one of {', '.join(choices)}.")
