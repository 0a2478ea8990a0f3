"""One version of an index in memory, and which of its videos are best for a query, without approximation.

The match probability goes through `exact_top_k`, which looks at few videos and proves that they are enough.
The other metrics look at all of them, in float64. Clips and pictures stay in the store until a video is a
hit. Samples are made again from ids and the seed.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from provico.defaults import LONG_SECONDS
from provico.errors import ConfigError
from provico.probability.distances import Moments, Sampled, check_metric, find_distance
from provico.probability.gaussian import Gaussian
from provico.search.exact.clouds import Spread
from provico.search.exact.found import Certificate, TopK
from provico.search.exact.gallery import Gallery
from provico.search.exact.scoring import exact_log_probabilities
from provico.search.exact.top_k import exact_top_k
from provico.search.query import (
    Asked,
    Barred,
    Described,
    Exclusion,
    Filter,
    check_words,
    drawn_by_name,
    gallery_samples,
    no_such_video,
    recording_of,
)
from provico.search.segments import KeptSamples, Segments, WithSegments, merged, with_segments
from provico.search.store.folder import IndexSettings
from provico.search.store.mapped import mapped
from provico.search.store.video_store import RowCache, Rows, VideoStore

ROWS_AT_ONCE = 4096
"""How many videos are read together where all of them are looked at."""
VIDEOS_AT_ONCE = 2**14
"""How many videos a scan holds in float64 at once."""


WORDS = ("label", "group", "subset")
"""What the data say of a video."""


class LoadedVideos(WithSegments):
    """The videos of one version; rows are in the order of their ids, whatever order they were added in."""

    def __init__(self, store: VideoStore, settings: IndexSettings) -> None:
        self.store, self.settings = store, settings
        self.ids = store.ids
        rows = store.read((*WORDS, "duration_seconds", "uncertainty"))
        self.words = {name: _each_once(rows[name]) for name in WORDS}
        self.duration_seconds = torch.from_numpy(rows["duration_seconds"])
        self.uncertainty = torch.from_numpy(rows["uncertainty"])
        found = mapped(store, ("mean", "log_var"), settings.columns)
        self.videos = Gaussian.from_numpy(found["mean"], found["log_var"])
        self._rows = RowCache(store)
        self.samples = KeptSamples(self._make_samples, len(self.ids), settings)

    def __len__(self) -> int:
        return len(self.ids)

    # --- what a query and an answer must know (`IndexedVideos`) ---------------------------------------------

    @cached_property
    def row_of_id(self) -> dict[str, int]:
        """The row of each video."""
        return {name: row for row, name in enumerate(self.ids)}

    @cached_property
    def _row_of_path(self) -> dict[str, int]:
        return {path: row for row, path in enumerate(self.store.read(("path",))["path"])}

    def look_up(self, name: str) -> int | None:
        """The row of the video with this id; None if there is none."""
        return self.row_of_id.get(name)

    def find_id(self, name: str) -> int:
        """The row of a video, or an error that names the nearest."""
        row = self.look_up(name)
        if row is None:
            raise no_such_video(name, len(self), self.ids)
        return row

    def find_path(self, path: Path) -> int | None:
        """The row of the video that this file was when it was indexed."""
        return self._row_of_path.get(as_indexed(path))

    def id_of(self, row: int) -> str:
        """The id of a video."""
        return self.ids[row]

    def read(self, names: Sequence[str], rows: Sequence[int]) -> Rows:
        """These columns of some videos."""
        return self._rows.read(names, rows)

    def chunks(self, names: Sequence[str]) -> Iterator[Rows]:
        """These columns of all videos, some at a time."""
        for first in range(0, len(self), ROWS_AT_ONCE):
            yield self.store.read(names, range(first, min(first + ROWS_AT_ONCE, len(self))))

    def drawn(self, most: int) -> list[int]:
        """Rows of at most so many videos, drawn by MD5 of seed and id."""
        return drawn_by_name(self.ids, most, self.settings.seed)

    def describe_wholes(self, rows: Sequence[int]) -> Described:
        """Some videos as they are compared."""
        index = torch.tensor(rows, dtype=torch.long)
        return Described(
            tuple(self.ids[row] for row in rows),
            tuple(recording_of(self.words["group"][row] or None, self.ids[row]) for row in rows),
            self.videos[index],
            self.samples(index),
        )

    @cached_property
    def segments(self) -> Segments:
        """The parts of long videos that can be found by themselves."""
        rows = (self.duration_seconds > LONG_SECONDS).nonzero().flatten().tolist()
        return Segments.of_rows(rows, self.store.read, self.settings)

    def _make_samples(self, rows: Int[Tensor, "some"]) -> Float[Tensor, "some samples dim"]:
        return gallery_samples([self.ids[row] for row in rows.tolist()], self.videos[rows], self.settings)

    # --- ranking --------------------------------------------------------------------------------------------

    def rank(
        self, asked: Sequence[Asked], *, metric: str, k: int, filter: Filter, exclude_same: Exclusion
    ) -> list[TopK]:
        """The k best videos for each query; of equal scores the one whose id comes first."""
        check_metric(metric)
        if k < 1:
            raise ConfigError(f"k is {k}, but it must be at least 1.")
        allowed = self.allowed(filter)
        if metric == "match":
            return self._match_others(asked, k, allowed, exclude_same)
        groups = self.words["group"]
        return [
            self._scan(one, metric, k, allowed & ~self._barred(one, exclude_same).mask(groups))
            for one in asked
        ]

    def allowed(self, filter: Filter) -> Bool[Tensor, "videos"]:
        """Which videos pass a filter."""
        passes = torch.ones(len(self), dtype=torch.bool)
        for name, wanted in filter.words.items():
            check_words(name, wanted, self.known_words(name))
            passes &= torch.tensor([word in wanted for word in self.words[name]], dtype=torch.bool)
        if filter.max_uncertainty is not None:
            passes &= self.uncertainty <= filter.max_uncertainty
        if filter.min_seconds is not None:
            passes &= self.duration_seconds >= filter.min_seconds
        if filter.max_seconds is not None:
            passes &= self.duration_seconds <= filter.max_seconds
        return passes

    def known_words(self, name: str) -> set[str]:
        """All labels, groups or subsets."""
        return {word for word in self.words[name] if word is not None}

    def _barred(self, one: Asked, exclude_same: Exclusion) -> Barred:
        rows = () if one.row is None else (one.row,)
        group = one.group if one.row is None else self.words["group"][one.row]
        return Barred.of(exclude_same, rows=rows, group=group)

    def _match_others(
        self, asked: Sequence[Asked], k: int, allowed: Bool[Tensor, "videos"], exclude_same: Exclusion
    ) -> list[TopK]:
        ranked = self._match_wholes(asked, k, allowed, exclude_same)
        if not len(self.segments):
            return ranked
        groups = self.words["group"]
        return [
            with_segments(
                found,
                one,
                self,
                (allowed & ~self._barred(one, exclude_same).mask(groups))[self.segments.video],
                k,
            )
            for one, found in zip(asked, ranked, strict=True)
        ]

    def _match_wholes(
        self, asked: Sequence[Asked], k: int, allowed: Bool[Tensor, "videos"], exclude_same: Exclusion
    ) -> list[TopK]:
        barred = [self._barred(one, exclude_same) for one in asked]
        if exclude_same == "group":
            groups = self.words["group"]
            return [
                found
                for one, some in zip(asked, barred, strict=True)
                for found in self._match([one], k, allowed & ~some.mask(groups))
            ]
        # All in one call: each asks for one more video, since it may find itself and leave that out.
        is_itself_allowed = [any(bool(allowed[row]) for row in some.rows) for some in barred]
        ranked = []
        for found, some, is_there in zip(
            self._match(asked, k + any(is_itself_allowed), allowed), barred, is_itself_allowed, strict=True
        ):
            is_other = ~torch.isin(found.rows, torch.tensor(some.rows, dtype=torch.long))
            kept = is_other.nonzero().flatten()[:k]
            num_allowed = found.certificate.num_allowed - is_there
            certificate = dataclasses.replace(found.certificate, num_allowed=num_allowed)
            ranked.append(TopK(found.rows[kept], found.scores[kept], certificate))
        return ranked

    def _match(self, asked: Sequence[Asked], k: int, allowed: Bool[Tensor, "videos"]) -> list[TopK]:
        num_allowed = int(allowed.sum())
        if not asked or not num_allowed:
            return [TopK.nothing() for _ in asked]
        return exact_top_k(
            torch.cat([one.samples(self.settings) for one in asked]),
            self.gallery,
            curve=self.settings.curve,
            k=k,
            allowed=None if num_allowed == len(self) else allowed,
        )

    @cached_property
    def gallery(self) -> Gallery:
        """The videos as exact search wants them."""
        spread = Spread(
            *torch.from_numpy(self.store.read(("sample_spread",))["sample_spread"]).T.contiguous()
        )
        mean = mapped(self.store, ("sample_mean",), self.settings.columns)["sample_mean"]
        return Gallery(torch.from_numpy(mean), spread, self.samples)

    def _scan(self, one: Asked, metric: str, k: int, allowed: Bool[Tensor, "videos"]) -> TopK:
        """Compare a query with every allowed video and segment."""
        query = one.mixture.moment_matched
        whole = _scanned(metric, query, self.videos, allowed.nonzero().flatten())
        if not len(self.segments):
            return whole.best(k)
        allowed_parts = allowed[self.segments.video].nonzero().flatten()
        found = _scanned(metric, query, self.segments.distributions, allowed_parts)
        return merged(whole.best(k), self.segments.by_video(found).best(k), self, k)

    # --- what a calibration asks (`Searched`) ---------------------------------------------------------------

    @property
    def labels(self) -> Sequence[str | None]:
        """The label of each video."""
        return list(self.words["label"])

    @property
    def groups(self) -> Sequence[str | None]:
        """The recording that each video was cut from."""
        return list(self.words["group"])

    def clips(self, rows: Int[Tensor, "some"]) -> Gaussian:
        """The clips of some videos."""
        found = self.read(("clip_mean", "clip_log_var"), rows.tolist())
        return Gaussian.from_numpy(found["clip_mean"], found["clip_log_var"])

    def best_of_other_groups(
        self, rows: Int[Tensor, "some"], *, k: int, allowed: Bool[Tensor, "videos"]
    ) -> list[TopK]:
        """The k best allowed videos of other groups for each of some videos."""
        return self._match_others(self.as_queries(rows), k, allowed, "group")

    def as_queries(self, rows: Int[Tensor, "some"]) -> list[Asked]:
        """Some videos as what is asked for."""
        return self._as_queries(rows, self.clips(rows))

    def log_match_of(self, rows: Int[Tensor, "some"], hits: Int[Tensor, "some"]) -> Float[Tensor, "some"]:
        """Log match probabilities of videos as queries with others, pair by pair, as a search has them."""
        if not len(rows):
            return torch.empty(0, dtype=torch.float64)
        queries = torch.cat([one.samples(self.settings) for one in self.as_queries(rows)])
        return exact_log_probabilities(queries, self.samples(hits), curve=self.settings.curve).double()

    def _as_queries(self, rows: Int[Tensor, "some"], clips: Gaussian) -> list[Asked]:
        no_times = torch.empty(clips.mean.shape[1], 2, dtype=torch.float64)
        return [
            Asked(self.ids[row], None, row, Gaussian(mean, log_var), no_times)
            for row, mean, log_var in zip(rows.tolist(), clips.mean, clips.log_var, strict=True)
        ]


def _each_once(words: Sequence[str | None]) -> NDArray[np.object_]:
    """As an array; words that are equal are one object."""
    known: dict[str | None, str | None] = {}
    return np.array([known.setdefault(word, word) for word in words], object)


def _scanned(metric: str, query: Gaussian, some: Gaussian, rows: Int[Tensor, "some"]) -> TopK:
    """All these rows of some distributions, the most similar to a query first."""
    if not len(rows):
        return TopK.nothing()
    parts = [similarities(metric, query, some[part]).squeeze(0) for part in torch.split(rows, VIDEOS_AT_ONCE)]
    # Not topk, which leaves the order of equal scores open.
    scores, order = torch.cat(parts).sort(descending=True, stable=True)
    return TopK(rows[order], scores, Certificate.of_scan(len(rows)))


def as_indexed(path: Path) -> str:
    """A path as it is written down in an index."""
    return os.path.normpath(path.absolute())


def similarities(metric: str, queries: Gaussian, videos: Gaussian) -> Float[Tensor, "queries videos"]:
    """The cosine of means, or minus a distance that looks at no samples, in float64."""
    ours, theirs = (Gaussian(some.mean.double(), some.log_var.double()) for some in (queries, videos))
    if metric == "cosine":
        return F.normalize(ours.mean, dim=1) @ F.normalize(theirs.mean, dim=1).T
    sampled = (Sampled(some, Moments.of_gaussian(some)) for some in (ours, theirs))
    return -find_distance(metric)(*sampled)
