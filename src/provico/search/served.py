"""Search where the rows are: PostgreSQL finds the candidates, and no collection has to fit into memory here.

    1. The server gives the k + 6 videos nearest by mean squared distance: L2 with one more coordinate. They
       are scored here; the k-th best sets a threshold.
    2. From the threshold follows how near a video must be to reach it (theorem 2 of docs/exact-search.md).
       What has to be known of whole groups of videos for it, the server says once a version.
    3. The server gives the keys of all that are near enough. They go through `exact_top_k`, some at a time.

The answer is that of `LoadedVideos`, with the same proof. pgvector is asked without an approximate index,
whose answers would prove nothing, so each search scans all vectors in the server.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from provico.defaults import LONG_SECONDS
from provico.errors import ConfigError, VideoIndexError
from provico.probability.gaussian import Gaussian
from provico.search.exact.bounds import MomentBound
from provico.search.exact.clouds import Spread, describe
from provico.search.exact.found import Certificate, TopK
from provico.search.exact.gallery import LONGEST, NUM_GROUPS, Gallery
from provico.search.exact.known import LARGEST_ROUND
from provico.search.exact.moments import Extents, hopeless_from
from provico.search.exact.top_k import SHORTLIST, exact_top_k
from provico.search.loaded import as_indexed
from provico.search.query import (
    Asked,
    Barred,
    Described,
    Exclusion,
    Filter,
    check_words,
    gallery_samples,
    no_such_video,
    recording_of,
)
from provico.search.segments import Segments, WithSegments, with_segments
from provico.search.store.folder import IndexSettings
from provico.search.store.postgres import PostgresStore
from provico.search.store.video_store import Rows

Keys = NDArray[np.int64]


@dataclass(frozen=True)
class _Groups:
    """Videos with clouds of like width, and how far the clouds of each group reach."""

    edges: list[float]
    """Of `axis_std`, between the groups."""
    filled: list[int]
    """The groups that have videos, counted from the first edge."""
    extents: Extents
    reach: float
    """The length of the longest sample of all."""


@dataclass(frozen=True)
class _Where:
    """A condition on rows of `places` p and `videos` v, and its values."""

    text: str = "true"
    values: tuple[Any, ...] = ()

    @property
    def tables(self) -> str:
        """What it is a condition on; `videos` are large, and not looked at without need."""
        return "{}.places p" + (" join {}.videos v using (key)" if "v." in self.text else "")

    def __and__(self, other: _Where) -> _Where:
        parts = [one.text for one in (self, other) if one != _Where()]
        return _Where(" and ".join(parts) or "true", self.values + other.values)


class ServedVideos(WithSegments):
    """The videos of one version in the server; the row of a video is its key there."""

    def __init__(self, store: PostgresStore, settings: IndexSettings) -> None:
        self.store, self.settings = store, settings

    def __len__(self) -> int:
        return self._num_videos

    def look_up(self, name: str) -> int | None:
        """The key of the video with this id; None if there is none."""
        return self._key("v.id", name)

    def find_path(self, path: Path) -> int | None:
        """The key of the video that this file was when it was indexed."""
        return self._key("v.path", as_indexed(path))

    def find_id(self, name: str) -> int:
        """The key of a video, or an error."""
        key = self.look_up(name)
        if key is None:
            raise no_such_video(name, len(self))
        return key

    def id_of(self, row: int) -> str:
        """The id of a video."""
        return str(self.read(("id",), [row])["id"][0])

    def read(self, names: Sequence[str], rows: Sequence[int]) -> Rows:
        """These columns of some videos."""
        return self.store.read_keys(names, np.array(rows, np.int64))

    def samples(self, rows: Int[Tensor, "some"]) -> Float[Tensor, "some samples dim"]:
        """The K samples of some videos."""
        known = self.read(("id", "mean", "log_var"), rows.tolist())
        videos = Gaussian.from_numpy(known["mean"], known["log_var"])
        return gallery_samples(known["id"], videos, self.settings)

    def describe_wholes(self, rows: Sequence[int]) -> Described:
        """Some videos as they are compared."""
        known = self.read(("id", "group", "mean", "log_var"), rows)
        videos = Gaussian.from_numpy(known["mean"], known["log_var"])
        recordings = map(recording_of, (group or None for group in known["group"]), known["id"])
        samples = gallery_samples(known["id"], videos, self.settings)
        return Described(tuple(known["id"]), tuple(recordings), videos, samples)

    @cached_property
    def segments(self) -> Segments:
        """The segments of long videos: these are in memory here, too."""
        where = self._there & _Where("v.duration_seconds > %s::float8", (LONG_SECONDS,))
        found = self._all(f"select p.key from {where.tables} where {where.text} order by p.key", where.values)
        keys = [int(key) for (key,) in found]
        return Segments.of_rows(keys, self.read, self.settings)

    def drawn(self, most: int) -> list[int]:
        """Keys of at most so many videos, drawn by MD5 of seed and id."""
        there = self.store.is_there("v.")
        query = f"""
            select v.key from {{}}.videos v where {there} order by md5(%s || v.id) collate "C" limit {most}
        """
        return [int(key) for (key,) in self._all(query, [f"{self.settings.seed} "])]

    def rank(
        self, asked: Sequence[Asked], *, metric: str, k: int, filter: Filter, exclude_same: Exclusion
    ) -> list[TopK]:
        """The k best videos for each query, one after the other, by match probability."""
        if metric != "match":
            raise ConfigError(
                f"The metric is {metric!r}, but a server ranks by match only. Leave out --in-engine."
            )
        if k < 1:
            raise ConfigError(f"k is {k}, but it must be at least 1.")
        allowed = self._allowed(filter)
        return [self._rank(one, k, allowed & self._not_barred(one, exclude_same)) for one in asked]

    def _rank(self, one: Asked, k: int, where: _Where) -> TopK:
        found = self._rank_wholes(one, k, where)
        if not len(self.segments):
            return found
        long = sorted(set(self.segments.video.tolist()))
        query = f"select p.key from {where.tables} where {where.text} and p.key = any(%s)"
        allowed = [key for (key,) in self._all(query, (*where.values, long))]
        is_allowed = torch.isin(self.segments.video, torch.tensor(allowed, dtype=torch.long))
        return with_segments(found, one, self, is_allowed, k)

    def _rank_wholes(self, one: Asked, k: int, where: _Where) -> TopK:
        num_allowed = len(self) if where == self._there else self._count(where)
        if not num_allowed:
            return TopK.nothing()
        keys, found, parts = _Search(self, one.samples(self.settings), k, where).run()
        certificate = Certificate(
            is_exact=all(part.is_exact for part in parts),
            ceiling=max(part.ceiling for part in parts),
            num_allowed=num_allowed,
            num_scored=sum(part.num_scored for part in parts),
            num_bounded=sum(part.num_bounded for part in parts),
        )
        return TopK(torch.from_numpy(keys)[found.rows], found.scores, certificate)

    # --- what is asked from the server --------------------------------------------------------------------

    def nearest(self, vector: NDArray[np.float32], num: int, where: _Where) -> Keys:
        """The keys of the videos nearest to a query."""
        query = f"""
            select p.key from {where.tables} where {where.text}
            order by vector_l2_squared_distance(p.place, %s) limit {num}
        """
        return np.array(self._all(query, (*where.values, vector)), np.int64).reshape(-1)

    def within(self, vector: NDArray[np.float32], radii: Float[Tensor, "groups"], where: _Where) -> Keys:
        """The keys of the videos that are nearer to a query than the squared radius of their group."""
        limits = np.zeros(len(self.groups.edges) + 1)
        limits[self.groups.filled] = radii
        query = f"""
            select p.key from {where.tables}
            where {where.text} and vector_l2_squared_distance(p.place, %s)
                < (%s::float8[])[1 + width_bucket(p.axis_std, %s::float8[])]
        """
        values = (*where.values, vector, limits.tolist(), self.groups.edges)
        found = self.store.stream(self.store.statement(query), values)
        return np.fromiter((key for (key,) in found), np.int64)

    @cached_property
    def groups(self) -> _Groups:
        """Of all videos, whatever may be found of them."""
        there, shares = self.store.is_there(), [part / NUM_GROUPS for part in range(1, NUM_GROUPS)]
        ((edges,),) = self._all(
            "select percentile_disc(%s::float8[]) within group (order by axis_std) from {}.places "
            f"where {there}",
            [shares],
        )
        edges = sorted(set(edges))
        rows = self._all(
            f"""
            select width_bucket(axis_std, %s::float8[]) as part, min(mean_square), max(mean_square),
                max(square_std), max(axis_std), max(radius), max(reach)
            from {{}}.places where {there} group by part order by part
            """,
            [edges],
        )
        filled, *columns = zip(*rows, strict=True)
        *extents, reach = (torch.tensor(column, dtype=torch.float64) for column in columns)
        if not float(reach.max()) < LONGEST:
            raise VideoIndexError(
                f"The index has samples that are longer than {LONGEST:g}. Rebuild it with `provico index`."
            )
        return _Groups(edges, list(filled), Extents(*extents), float(reach.max()))

    @cached_property
    def _num_videos(self) -> int:
        return self._count(self._there)

    @property
    def _there(self) -> _Where:
        return _Where(f"{self.store.is_there('p.')}")

    def _allowed(self, filter: Filter) -> _Where:
        where = self._there
        for name, words in filter.words.items():
            check_words(name, words, self.known_words(name))
            where &= _Where(f'v."{name}" = any(%s)', (list(words),))
        for name, sign, limit in (
            ("uncertainty", "<=", filter.max_uncertainty),
            ("duration_seconds", ">=", filter.min_seconds),
            ("duration_seconds", "<=", filter.max_seconds),
        ):
            if limit is not None:
                # As `LoadedVideos` compares: a column of float32 with a number of float32.
                value = float(np.float32(limit)) if name == "uncertainty" else limit
                where &= _Where(f"v.{name} {sign} %s::float8", (value,))
        return where

    def known_words(self, name: str) -> set[str]:
        """All labels, groups or subsets."""
        there = self.store.is_there()
        found = self._all(f'select distinct "{name}" from {{}}.videos where {there}', [])
        return {word for (word,) in found if word}

    def _not_barred(self, one: Asked, exclude_same: Exclusion) -> _Where:
        rows = () if one.row is None else (one.row,)
        group = one.group if one.row is None else self.read(("group",), rows)["group"][0]
        barred = Barred.of(exclude_same, rows=rows, group=group)
        where = _Where()
        for key in barred.rows:
            where &= _Where("p.key <> %s", (key,))
        if barred.group is not None:
            where &= _Where('v."group" is distinct from %s', (barred.group,))
        return where

    def _key(self, column: str, word: str) -> int | None:
        there = self.store.is_there("v.")
        found = self._all(f"select v.key from {{}}.videos v where {column} = %s and {there} limit 1", [word])
        return int(found[0][0]) if found else None

    def _count(self, where: _Where) -> int:
        query = f"select count(*) from {where.tables} where {where.text}"
        ((number,),) = self._all(query, where.values)
        return int(number)

    def _all(self, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self.store.fetch(self.store.statement(query), values)


class _Search:
    """One query."""

    def __init__(
        self, videos: ServedVideos, samples: Float[Tensor, "1 samples dim"], k: int, where: _Where
    ) -> None:
        self._videos, self._samples, self._k, self._where = videos, samples, k, where

    def run(self) -> tuple[Keys, TopK, list[Certificate]]:
        """Some keys, the best of them, which are the best of all, and what was done to find them."""
        mean, spread = describe(self._samples)
        # About the origin, not the middle of the collection, which changes with it: any centre will do.
        middle = mean.float()
        vector = torch.cat([middle[0], torch.zeros(1)]).numpy()
        num = self._k + SHORTLIST
        keys = self._videos.nearest(vector, num, self._where)
        keys, first = self._best(keys)
        if len(keys) < num:
            return keys, first, [first.certificate]
        settings, groups = self._videos.settings, self._videos.groups
        radii = hopeless_from(
            [first.certificate.ceiling],
            MomentBound.of(settings.curve),
            middle,
            spread,
            groups.extents,
            origin=max(groups.reach, float(spread.reach.max())),
        )
        near = np.setdiff1d(self._videos.within(vector, radii[0], self._where), keys)
        likely, parts = [keys[first.rows.numpy()]], [first.certificate]
        for start in range(0, len(near), LARGEST_ROUND):
            some, found = self._best(near[start : start + LARGEST_ROUND], at_least=first.certificate.ceiling)
            likely.append(some[found.rows.numpy()])
            parts.append(found.certificate)
        if len(parts) > 1:
            # Few are left, all of which were scored already.
            keys, first = self._best(np.concatenate(likely))
        return keys, first, parts

    def _best(self, keys: Keys, *, at_least: float = -math.inf) -> tuple[Keys, TopK]:
        """Keys in the order of their ids, and the best of them."""
        rows = self._videos.read(("id", "sample_mean", "sample_spread"), keys.tolist())
        order = sorted(range(len(keys)), key=rows["id"].__getitem__)
        keys = keys[order]
        spread = Spread(*torch.from_numpy(rows["sample_spread"][order]).T.contiguous())
        gallery = Gallery(
            torch.from_numpy(rows["sample_mean"][order]),
            spread,
            lambda rows: self._videos.samples(torch.from_numpy(keys)[rows]),
        )
        (found,) = exact_top_k(
            self._samples,
            gallery,
            curve=self._videos.settings.curve,
            k=self._k,
            min_log_probability=at_least,
        )
        return keys, found
