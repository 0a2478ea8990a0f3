"""Parts of long videos that can be found by themselves: windows of the clips of their timelines.

A segment is a mixture as a video is. A video is found by the best of itself and its segments, and the hit
says which seconds match. First whole videos are ranked, as if there were no segments. The k-th best of them
is what a segment must reach to change the answer, and so is the best that is known of its own video: one
search of all segments finds the best of each video and ends early (`with_segments`). The k best videos are
among those of both searches (`merged`).
"""

from __future__ import annotations

import math
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
from provico.probability.match_scores import slope_and_offset
from provico.probability.mixture import Mixture
from provico.search.exact.clouds import Spread
from provico.search.exact.found import WHOLE, Certificate, Owners, TopK, rounding
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
        if not bool(is_made[rows].all()):
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
    """The k best videos by match probability, each by itself or by segments, from the k best as wholes."""
    if not bool(allowed.any()):
        return whole
    scenes = asked.scenes(videos.settings)
    if len(scenes) > 1:
        return _with_scenes(whole, scenes, videos, allowed, k)
    known = videos.segments
    found = _best_segments(asked, known, allowed, k=k, owners=known.owners(whole))
    return merged(whole, known.by_video(found), videos, k)


def _best_segments(
    asked: Asked,
    known: Segments,
    allowed: Bool[Tensor, "segments"],
    *,
    k: int,
    owners: Owners,
    min_log_probability: float = -math.inf,
) -> TopK:
    """The best segments of the k best videos."""
    (found,) = exact_top_k(
        asked.samples(known.settings, "clips"),
        known.gallery,
        curve=known.settings.curve,
        k=k,
        min_log_probability=min_log_probability,
        allowed=None if bool(allowed.all()) else allowed,
        owners=owners,
    )
    return found


def _with_scenes(
    whole: TopK,
    scenes: Sequence[Asked],
    videos: WithSegments,
    allowed: Bool[Tensor, "segments"],
    k: int,
) -> TopK:
    """The k best videos by the mean over scenes, each of which has its own best segment.

    The best videos are found for each scene, and what the other scenes make of these. Any other video scores
    at most the mean of the last that were found, so more are found until the k-th best mean is above that. A
    mean that reaches what whole videos have is one of which at least one scene does.
    """
    known = videos.segments
    owners = known.owners(TopK.nothing())
    of_owner = owners.of
    least = -math.inf
    if len(whole.rows) >= k:
        least = float(whole.scores[k - 1])
        offset = abs(slope_and_offset(known.settings.curve)[1])
        least = min(0.0, least - 8 * rounding(least, dim=known.gallery.dim, offset=offset))
    num_owners, size = len(torch.unique(of_owner[allowed])), k
    while True:
        firsts = [
            _best_segments(one, known, allowed, k=size, owners=owners, min_log_probability=least).best(size)
            for one in scenes
        ]
        reached = torch.stack([_by_owner(one, owners) for one in firsts])
        scored, segment = reached[..., 0], reached[..., 1].long()
        is_found = scored > -torch.inf
        certificates = [one.certificate for one in firsts]
        for number, one in enumerate(scenes):
            missing = is_found.any(dim=0) & ~is_found[number]
            if bool(missing.any()):
                rest = _best_segments(
                    one, known, allowed & missing[of_owner], k=int(missing.sum()), owners=owners
                )
                found = _by_owner(rest, owners)
                scored[number, missing], segment[number, missing] = (
                    found[missing, 0],
                    found[missing, 1].long(),
                )
                certificates.append(rest.certificate)
        candidates = is_found.any(dim=0).nonzero().flatten()
        means = scored[:, candidates].logsumexp(dim=0) - math.log(len(scenes))
        best = scored[:, candidates].argmax(dim=0)
        lasts = [float(one.scores[-1]) if len(one.rows) == size else least for one in firsts]
        ceiling = float(torch.tensor(lasts, dtype=torch.float64).logsumexp(dim=0)) - math.log(len(scenes))
        parts = TopK(
            known.video[segment[best, candidates]],
            means,
            Certificate(
                is_exact=all(one.is_exact for one in certificates),
                ceiling=ceiling,
                num_allowed=int(allowed.sum()),
                num_scored=sum(one.num_scored for one in certificates),
                num_bounded=sum(one.num_bounded for one in certificates),
            ),
            segment[best, candidates],
        )
        answer = merged(whole, parts, videos, k)
        is_enough = len(answer.rows) == k and float(answer.scores[-1]) > ceiling
        if is_enough or size >= num_owners:
            return answer
        size *= 4


def _by_owner(found: TopK, owners: Owners) -> Float[Tensor, "owners 2"]:
    """The score of the best segment that was found of each owner, and which that is."""
    best = torch.full((len(owners.known), 2), -torch.inf, dtype=torch.float64)
    # The best come first, and of one owner only one is among them.
    best[owners.of[found.rows]] = torch.stack([found.scores, found.rows.double()], dim=1)
    return best


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
