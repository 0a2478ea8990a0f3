"""Parts of long videos that can be found by themselves: windows of the clips of their timelines.

A segment is a mixture as a video is. A video is found by the best of itself and its segments, and the hit
says which seconds match. First whole videos are ranked, as if there were no segments. The k-th best of them
is what a segment must reach to change the answer, and so is the best that is known of its own video: one
search of all segments finds the best of each video and ends early (`with_segments`). The k best videos are
among those of both searches (`merged`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture
from provico.search.exact.clouds import Spread
from provico.search.exact.found import WHOLE, Certificate, Owners, TopK
from provico.search.exact.gallery import Fetch, Gallery
from provico.search.exact.top_k import exact_top_k
from provico.search.query import Asked, Described, Span, drawn_by_name, gallery_samples
from provico.search.store.folder import IndexSettings
from provico.search.store.video_store import Rows

NUM_CLIPS = 2
"""Clips of a segment; one begins with every clip."""
SEGMENTS_AT_ONCE = 256
"""Segments that are made together, with their samples."""
VIDEOS_AT_ONCE = 16
"""Long videos that are read together."""
SAMPLE_COLUMNS = ("segment_sample_mean", "segment_sample_spread")
"""What exact search must know of the samples of the segments."""
SAMPLES_KEPT = 2**27
"""Up to so many numbers (512 MB) the samples are kept once they are made."""

ReadColumns = Callable[[Sequence[str], Sequence[int]], Rows]
"""Reads these columns of these videos."""


def num_segments(num_clips: int) -> int:
    """The number of segments of a timeline."""
    return num_clips - min(NUM_CLIPS, num_clips) + 1 if num_clips else 0


def segments_of(clips: Gaussian) -> Iterator[tuple[slice, Gaussian]]:
    """The distributions of the segments of a timeline "clips dim", some at a time, and which they are."""
    size = min(NUM_CLIPS, len(clips.mean))
    for first in range(0, num_segments(len(clips.mean)), SEGMENTS_AT_ONCE):
        last = min(first + SEGMENTS_AT_ONCE, num_segments(len(clips.mean)))
        rows = torch.arange(first, last).unsqueeze(1) + torch.arange(size)
        yield slice(first, last), Mixture(clips[rows]).moment_matched


def segment_seconds(clip_seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """From when to when the segments of a timeline "clips 2" are."""
    num = num_segments(len(clip_seconds))
    ends = [clip_seconds[first : first + num, 1] for first in range(min(NUM_CLIPS, len(clip_seconds)))]
    return np.stack([clip_seconds[:num, 0], np.max(ends, axis=0)], axis=1)


def segment_name(video_id: str, start_seconds: float, end_seconds: float) -> str:
    """The name of a segment, from which its samples follow."""
    return f"{video_id}#{start_seconds:.3f}-{end_seconds:.3f}"


class KeptSamples:
    """Samples of some rows, made when they are first asked for, and kept if they are not too many."""

    def __init__(self, make: Fetch, num_rows: int, settings: IndexSettings) -> None:
        dim = settings.embedding.encoder_config.dim
        self._make, self._shape = make, (num_rows, settings.num_samples, dim)
        self._kept: tuple[Tensor, Tensor] | None = None

    def __call__(self, rows: Int[Tensor, "some"]) -> Float[Tensor, "some samples dim"]:
        """The K samples of each."""
        if np.prod(self._shape, dtype=np.int64) > SAMPLES_KEPT:
            return self._make(rows)
        if self._kept is None:
            self._kept = torch.empty(self._shape), torch.zeros(self._shape[0], dtype=torch.bool)
        samples, is_made = self._kept
        missing = torch.from_numpy(np.unique(rows[~is_made[rows]]))
        samples[missing] = self._make(missing)
        is_made[missing] = True
        return samples[rows]


@dataclass(frozen=True, eq=False)
class Segments:
    """The segments of all long videos of one version of an index."""

    ids: Mapping[int, str]
    """The id of each long video, by its row."""
    video: Int[Tensor, "segments"]
    """The row of the video that each is a part of."""
    seconds: Float[Tensor, "segments 2"]
    """From when to when."""
    distributions: Gaussian
    """Of each, "segments dim"."""
    settings: IndexSettings
    read: ReadColumns

    @classmethod
    def of_rows(cls, rows: Sequence[int], read: ReadColumns, settings: IndexSettings) -> Segments:
        """Those of some videos. What is kept of them is allocated once, and filled some videos at a time."""
        known = read(("id", "timeline_seconds"), rows) if rows else {"id": (), "timeline_seconds": ()}
        times = [segment_seconds(seconds) for seconds in known["timeline_seconds"] if len(seconds)]
        counts = [num_segments(len(seconds)) for seconds in known["timeline_seconds"]]
        mean, log_var = (torch.empty(sum(counts), settings.embedding.encoder_config.dim) for _ in range(2))
        done = 0
        for first in range(0, len(rows), VIDEOS_AT_ONCE):
            some = read(("timeline_mean", "timeline_log_var"), rows[first : first + VIDEOS_AT_ONCE])
            for clips in map(Gaussian.from_numpy, some["timeline_mean"], some["timeline_log_var"]):
                for part, found in segments_of(clips):
                    place = slice(done + part.start, done + part.stop)
                    mean[place], log_var[place] = found.mean, found.log_var
                done += num_segments(len(clips.mean))
        return cls(
            dict(zip(rows, known["id"], strict=True)),
            torch.tensor(rows, dtype=torch.long).repeat_interleave(torch.tensor(counts, dtype=torch.long)),
            torch.from_numpy(np.concatenate([np.empty((0, 2)), *times])),
            Gaussian(mean, log_var),
            settings,
            read,
        )

    def __len__(self) -> int:
        return len(self.video)

    def name_of(self, segment: int) -> str:
        """The name of a segment."""
        return segment_name(self.ids[int(self.video[segment])], *self.seconds[segment].tolist())

    @cached_property
    def samples(self) -> KeptSamples:
        """The K samples of some segments."""
        return KeptSamples(self._make_samples, len(self), self.settings)

    def _make_samples(self, segments: Int[Tensor, "some"]) -> Float[Tensor, "some samples dim"]:
        names = [self.name_of(one) for one in segments.tolist()]
        return gallery_samples(names, self.distributions[segments], self.settings)

    @cached_property
    def gallery(self) -> Gallery:
        """The segments as exact search wants them."""
        mean = torch.empty(len(self), self.distributions.dim, dtype=torch.float64)
        spread = torch.empty(len(fields(Spread)), len(self), dtype=torch.float64)
        rows, done = list(self.ids), 0
        for first in range(0, len(rows), VIDEOS_AT_ONCE):
            some = self.read(SAMPLE_COLUMNS, rows[first : first + VIDEOS_AT_ONCE])
            for middles, spreads in zip(*(some[column] for column in SAMPLE_COLUMNS), strict=True):
                part = slice(done, done + len(middles))
                mean[part], spread[:, part] = torch.from_numpy(middles), torch.from_numpy(spreads).T
                done = part.stop
        return Gallery(mean, Spread(*spread), self.samples)

    @cached_property
    def _long(self) -> tuple[Int[Tensor, "videos"], Int[Tensor, "segments"]]:
        """The rows of the long videos, in order, and the place there of each segment's video."""
        rows, place = torch.unique(self.video, return_inverse=True)
        return rows, place

    def owners(self, whole: TopK) -> Owners:
        """The videos that segments are parts of, and what these and others score as wholes."""
        rows, place = self._long
        known = torch.full((len(rows),), -torch.inf, dtype=torch.float64)
        there = torch.searchsorted(rows, whole.rows).clamp(max=len(rows) - 1)
        is_long = rows[there] == whole.rows
        known[there[is_long]] = whole.scores[is_long]
        return Owners(place, torch.cat([known, whole.scores[~is_long]]))

    def by_video(self, found: TopK) -> TopK:
        """The best segment of each video, from segments in order."""
        videos = self.video[found.rows]
        first_of: dict[int, int] = {}
        for place, row in enumerate(videos.tolist()):
            first_of.setdefault(row, place)
        kept = torch.tensor([*first_of.values()], dtype=torch.long)
        return TopK(videos[kept], found.scores[kept], found.certificate, found.rows[kept])


def with_segments(
    whole: TopK,
    asked: Asked,
    videos: WithSegments,
    allowed: Bool[Tensor, "segments"],
    k: int,
) -> TopK:
    """The k best videos by match probability, each by itself or by a segment, from the k best as wholes."""
    known, num_allowed = videos.segments, int(allowed.sum())
    if not num_allowed:
        return whole
    (found,) = exact_top_k(
        asked.samples(videos.settings, "clips"),
        known.gallery,
        curve=known.settings.curve,
        k=k,
        allowed=None if num_allowed == len(known) else allowed,
        owners=known.owners(whole),
    )
    return merged(whole, known.by_video(found), videos, k)


def merged(whole: TopK, parts: TopK, videos: WithSegments, k: int) -> TopK:
    """The k best videos of two searches, each where it scores best; ids decide between equal ones."""
    best: dict[int, tuple[float, str, int]] = {}
    for found in (whole, parts):
        for row, score, part in zip(
            found.rows.tolist(), found.scores.tolist(), found.segments.tolist(), strict=True
        ):
            if row not in best or -score < best[row][0]:
                best[row] = -score, videos.id_of(row), part
    order = sorted(best, key=best.__getitem__)[:k]
    one, other = whole.certificate, parts.certificate
    return TopK(
        torch.tensor(order, dtype=torch.long),
        torch.tensor([-best[row][0] for row in order], dtype=torch.float64),
        Certificate(
            is_exact=one.is_exact and other.is_exact,
            ceiling=max(one.ceiling, other.ceiling),
            num_allowed=one.num_allowed + other.num_allowed,
            num_scored=one.num_scored + other.num_scored,
            num_bounded=one.num_bounded + other.num_bounded,
        ),
        torch.tensor([best[row][2] for row in order], dtype=torch.long),
    )


class WithSegments(ABC):
    """Videos in one place, with the segments of the long ones."""

    settings: IndexSettings

    @property
    @abstractmethod
    def segments(self) -> Segments:
        """The parts of long videos that can be found by themselves."""

    @abstractmethod
    def describe_wholes(self, rows: Sequence[int]) -> Described:
        """Some videos as they are compared."""

    @abstractmethod
    def id_of(self, row: int) -> str:
        """The id of a video."""

    def describe(self, rows: Sequence[int], segments: Sequence[int]) -> Described:
        """Some videos, or the segments of them that are given, as they are compared."""
        found = self.describe_wholes(rows)
        places = [place for place, segment in enumerate(segments) if segment != WHOLE]
        if not places:
            return found
        parts, known = torch.tensor([segments[place] for place in places]), self.segments
        ids, samples = list(found.ids), found.samples.clone()
        mean, log_var = found.distributions.mean.clone(), found.distributions.log_var.clone()
        for place, part in zip(places, parts.tolist(), strict=True):
            ids[place] = known.name_of(part)
        mean[places], log_var[places] = known.distributions.mean[parts], known.distributions.log_var[parts]
        samples[places] = known.samples(parts)
        return Described(tuple(ids), found.recordings, Gaussian(mean, log_var), samples)

    def seconds_of(self, segment: int) -> Span:
        """From when to when a segment is."""
        return Span(*self.segments.seconds[segment].tolist())

    def drawn_segments(self, most: int) -> list[tuple[str, int, int]]:
        """Names, rows and numbers of at most so many segments, drawn by MD5 of seed and name."""
        known = self.segments
        names = map(known.name_of, range(len(known)))
        drawn = drawn_by_name(names, most, self.settings.seed)
        return [(known.name_of(one), int(known.video[one]), one) for one in drawn]
