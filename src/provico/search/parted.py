"""The videos of several indexes as if they were of one, each ranked where it is: loaded or on a server.

The k best of a collection are the best k of the k best of its parts, so nothing is searched a second time.
Certificates add up: an answer is proved if that of each part is. A row is a row of a part, and the part's
number above it. What goes wrong with a part is an `UnreachablePartError` that says which.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import md5
from heapq import nsmallest
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from provico.errors import ConfigError, UnreachablePartError, VideoIndexError
from provico.probability.match_scores import slope_and_offset
from provico.search.answer import Unreached
from provico.search.exact.found import WHOLE, Certificate, TopK, in_order, rounding
from provico.search.loaded import LoadedVideos
from provico.search.query import (
    Asked,
    Described,
    Exclusion,
    Filter,
    Span,
    check_words,
    drawn_by_name,
    no_such_video,
)
from provico.search.served import ServedVideos
from provico.search.store.folder import IndexSettings
from provico.search.store.video_store import Rows

Result = TypeVar("Result")

ROW_BITS = 48
"""Of a row, so many bits are of the row in its part, and those above of the part."""
_ROW_MASK = (1 << ROW_BITS) - 1


@dataclass(frozen=True)
class Part:
    """The videos of one index."""

    name: str
    """Folder or address, as it was given."""
    videos: LoadedVideos | ServedVideos
    previews: Path
    """What the names of its previews are relative to."""


class PartedVideos:
    """The videos of all parts that can be reached."""

    def __init__(self, parts: Mapping[int, Part], unreached: Mapping[int, Unreached]) -> None:
        self.parts, self.unreached = parts, unreached

    def without(self, lost: UnreachablePartError) -> PartedVideos:
        """What is left when a part is lost."""
        parts = {number: part for number, part in self.parts.items() if number != lost.number}
        gone = Unreached(self.parts[lost.number].name, str(lost))
        return PartedVideos(parts, {**self.unreached, lost.number: gone})

    @property
    def settings(self) -> IndexSettings:
        """What all parts have in common."""
        return next(iter(self.parts.values())).videos.settings

    def __len__(self) -> int:
        return sum(self._each(lambda part: len(part.videos)).values())

    # --- what a query and an answer must know (`IndexedVideos`) ---------------------------------------------

    def look_up(self, name: str) -> int | None:
        """The row of the video with this id; None if there is none, an error if there are several."""
        found = self._each(lambda part: part.videos.look_up(name))
        rows = [row_of(number, row) for number, row in found.items() if row is not None]
        files = dict.fromkeys(self.read(("path",), rows)["path"]) if len(rows) > 1 else {}
        if len(files) > 1:
            raise VideoIndexError(
                f"{name} is the id of {len(files)} videos: {', '.join(files)}. Give the file instead."
            )
        return rows[0] if rows else None

    def find_id(self, name: str) -> int:
        """The row of the video with this id, or an error that says what there is, and what was not asked."""
        row = self.look_up(name)
        if row is not None:
            return row
        ids = [
            one
            for part in self.parts.values()
            if isinstance(part.videos, LoadedVideos)
            for one in part.videos.ids
        ]
        error = no_such_video(name, len(self), ids)
        if self.unreached:
            error = VideoIndexError(f"{error} Not searched: {'; '.join(map(str, self.unreached.values()))}.")
        raise error

    def find_path(self, path: Path) -> int | None:
        """The row of the video that this file was when it was indexed."""
        found = self._each(lambda part: part.videos.find_path(path))
        return next((row_of(number, row) for number, row in found.items() if row is not None), None)

    def id_of(self, row: int) -> str:
        """The id of a video."""
        return str(self.read(("id",), [row])["id"][0])

    def read(self, names: Sequence[str], rows: Sequence[int]) -> Rows:
        """These columns of some videos; previews with their folders."""
        if not rows:
            return next(iter(self._each(lambda part: part.videos.read(names, [])).values()))
        columns: dict[str, list[Any]] = {name: [None] * len(rows) for name in names}
        listed = set()
        for number, (places, mine) in self._split(rows).items():
            with self._reaching(number):
                found = self.parts[number].videos.read(names, mine)
            if "preview" in found:
                found["preview"] = [str(self.parts[number].previews / name) for name in found["preview"]]
            listed |= {name for name, values in found.items() if isinstance(values, list)}
            for name, values in found.items():
                for place, value in zip(places, values, strict=True):
                    columns[name][place] = value
        return {name: values if name in listed else np.stack(values) for name, values in columns.items()}

    def describe(self, rows: Sequence[int], segments: Sequence[int]) -> Described:
        """Some videos, or the segments of them that are given, as they are compared."""
        found, order = [], []
        for number, (places, mine) in self._split(rows).items():
            theirs = [segment if segment == WHOLE else segment & _ROW_MASK for segment in segments]
            with self._reaching(number):
                found.append(self.parts[number].videos.describe(mine, [theirs[place] for place in places]))
            order += places
        if not found:
            with self._reaching(number := next(iter(self.parts))):
                return self.parts[number].videos.describe([], [])
        return Described.joined(found)[np.argsort(order).tolist()]

    def seconds_of(self, segment: int) -> Span:
        """From when to when a segment is."""
        with self._reaching(segment >> ROW_BITS):
            return self.parts[segment >> ROW_BITS].videos.seconds_of(segment & _ROW_MASK)

    def drawn_segments(self, most: int) -> list[tuple[str, int, int]]:
        """Names, rows and numbers of at most so many segments, as they are drawn from one index."""
        found = [
            (name, row_of(number, row), row_of(number, segment))
            for number, some in self._each(lambda part: part.videos.drawn_segments(most)).items()
            for name, row, segment in some
        ]
        drawn = drawn_by_name([name for name, _, _ in found], most, self.settings.seed)
        return [found[one] for one in drawn]

    def drawn(self, most: int) -> list[int]:
        """Rows of at most so many videos, drawn by MD5 of seed and id, as they are from one index."""
        found = self._each(lambda part: part.videos.drawn(most))
        rows = [row_of(number, row) for number, mine in found.items() for row in mine]
        seed = self.settings.seed
        digests = {
            md5(f"{seed} {name}".encode(), usedforsecurity=False).hexdigest(): row
            for name, row in zip(self.read(("id",), rows)["id"], rows, strict=True)
        }
        return [digests[digest] for digest in nsmallest(most, digests)]

    # --- ranking --------------------------------------------------------------------------------------------

    def rank(
        self, asked: Sequence[Asked], *, metric: str, k: int, filter: Filter, exclude_same: Exclusion
    ) -> list[TopK]:
        """The k best videos of all parts for each query; of equal scores the one whose id comes first."""
        if k < 1:
            raise ConfigError(f"k is {k}, but it must be at least 1.")
        groups = self._groups(asked)
        filters = self._filters(filter)

        def best(number: int, part: Part) -> list[TopK]:
            if filters[number] is None:
                return [TopK.nothing() for _ in asked]
            queries = [self._as_seen_by(number, one, group) for one, group in zip(asked, groups, strict=True)]
            return part.videos.rank(
                queries, metric=metric, k=k, filter=filters[number] or Filter(), exclude_same=exclude_same
            )

        found = self._each_at_once(best)
        return [
            self._best_of({number: ranked[place] for number, ranked in found.items()}, metric, k)
            for place in range(len(asked))
        ]

    def _best_of(self, found: Mapping[int, TopK], metric: str, k: int) -> TopK:
        """The best of what the parts found, each video once."""
        rows = [row_of(number, row) for number, some in found.items() for row in some.rows.tolist()]
        parts = [
            part if part == WHOLE else row_of(number, part)
            for number, some in found.items()
            for part in some.segments.tolist()
        ]
        scores = torch.cat([some.scores for some in found.values()])
        known = self.read(("id", "path"), rows)
        files = list(zip(known["id"], known["path"], strict=True))
        first = {file: place for place, file in reversed(list(enumerate(files)))}
        kept = sorted(first.values(), key=lambda place: files[place])
        offset = abs(slope_and_offset(self.settings.curve)[1])
        dim = self.settings.embedding.encoder_config.dim

        def uncertain(scores: Tensor) -> Tensor:
            return rounding(scores, dim=dim, offset=offset) if metric == "match" else torch.zeros_like(scores)

        order, best = in_order(scores[kept], torch.arange(len(kept)), uncertain)
        places = [kept[place] for place in order.tolist()]
        chosen, segments = (
            torch.tensor([some[place] for place in places], dtype=torch.long) for some in (rows, parts)
        )
        certificates = [some.certificate for some in found.values()]
        certificate = Certificate(
            is_exact=all(one.is_exact for one in certificates) and not self.unreached,
            # Of what was not asked, nothing is known.
            ceiling=max([one.ceiling for one in certificates] + self._unknown(metric)),
            num_allowed=sum(one.num_allowed for one in certificates),
            num_scored=sum(one.num_scored for one in certificates),
            num_bounded=sum(one.num_bounded for one in certificates),
        )
        return TopK(chosen[:k], best[:k], certificate, segments[:k])

    def _unknown(self, metric: str) -> list[float]:
        if not self.unreached:
            return []
        return [0.0 if metric == "match" else math.inf]

    def _groups(self, asked: Sequence[Asked]) -> list[str | None]:
        rows = [one.row for one in asked if one.row is not None]
        groups = iter(self.read(("group",), rows)["group"]) if rows else iter(())
        return [None if one.row is None else next(groups) for one in asked]

    def _as_seen_by(self, number: int, one: Asked, group: str | None) -> Asked:
        """A query that is in one part is a stranger in the others, where a copy of its row may be."""
        if one.row is None:
            return one
        home, row = one.row >> ROW_BITS, one.row & _ROW_MASK
        if home != number:
            return dataclasses.replace(one, row=self._copy(number, one), is_elsewhere=True, group=group)
        return dataclasses.replace(one, row=row)

    def _copy(self, number: int, one: Asked) -> int | None:
        """The row in a part of a video that is in another one, too."""
        assert one.row is not None
        row = self.parts[number].videos.look_up(one.name)
        if row is None:
            return None
        paths = self.read(("path",), [one.row, row_of(number, row)])["path"]
        return row if paths[0] == paths[1] else None

    def _filters(self, filter: Filter) -> dict[int, Filter | None]:
        """What each part is to be asked; None if no video of it can pass."""
        filters: dict[int, Filter | None] = dict.fromkeys(self.parts, filter)
        for name, wanted in filter.words.items():
            known = self._each(partial(_words, name))
            check_words(name, wanted, set().union(*known.values()))
            for number, words in known.items():
                mine: Any = {f"{name}s": [word for word in wanted if word in words]}
                before = filters[number] if mine[f"{name}s"] else None
                filters[number] = None if before is None else dataclasses.replace(before, **mine)
        return filters

    # --- the parts ------------------------------------------------------------------------------------------

    def _split(self, rows: Iterable[int]) -> dict[int, tuple[list[int], list[int]]]:
        """For each part: the places of its rows, and these rows as it knows them."""
        parts: dict[int, tuple[list[int], list[int]]] = {}
        for place, row in enumerate(rows):
            places, mine = parts.setdefault(row >> ROW_BITS, ([], []))
            places.append(place)
            mine.append(row & _ROW_MASK)
        return parts

    def _each(self, ask: Callable[[Part], Result]) -> dict[int, Result]:
        found = {}
        for number, part in self.parts.items():
            with self._reaching(number):
                found[number] = ask(part)
        return found

    def _each_at_once(self, ask: Callable[[int, Part], Result]) -> dict[int, Result]:
        """What each part answers; servers all at once, those in memory, which use all cores, in turn."""

        def reached(number: int) -> Result:
            with self._reaching(number):
                return ask(number, self.parts[number])

        served = [number for number, part in self.parts.items() if isinstance(part.videos, ServedVideos)]
        with ThreadPoolExecutor(max(1, len(served))) as pool:
            waiting = {number: pool.submit(reached, number) for number in served}
            found = {number: reached(number) for number in self.parts if number not in waiting}
            found |= {number: one.result() for number, one in waiting.items()}
        return {number: found[number] for number in self.parts}

    @contextmanager
    def _reaching(self, number: int) -> Iterator[None]:
        try:
            yield
        except UnreachablePartError:
            raise  # of another part
        except (VideoIndexError, OSError) as error:
            raise UnreachablePartError(number, str(error)) from error


def row_of(number: int, row: int) -> int:
    """A row of a part, as a row of all."""
    return number << ROW_BITS | row


def _words(name: str, part: Part) -> set[str]:
    return part.videos.known_words(name)
