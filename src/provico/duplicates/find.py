"""Find the copies among many videos: candidates by embedding and by picture, then proof by comparison.

report = find_duplicates(Index.open("index"))
report = find_duplicates(Index.open("train"), other=open_catalog("test_videos"))    leaks between the two
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from provico.data.catalog import Catalog
from provico.data.library import Library
from provico.duplicates.fingerprint import (
    GRID,
    NUM_KEYS,
    Fingerprint,
    FingerprintCache,
    read_fingerprint,
)
from provico.duplicates.judgement import Kind, kind_of, probability, repetition_among
from provico.duplicates.neighbours import near_each_other, nearest_videos, unordered
from provico.duplicates.report import DuplicateReport, Member, Pair, Proof, group_duplicates
from provico.duplicates.scenes import overlays
from provico.duplicates.verify import Agreement, agreement, repetition
from provico.embedding.driver import embed
from provico.errors import ConfigError, VideoError
from provico.files import Signature
from provico.progress import Progress, silent
from provico.search.index import Index
from provico.search.query import Span

NUM_CANDIDATES = 20
"""Videos that each one is compared with, of each kind of candidates."""
OTHERS_AT_ONCE = 10
"""Of these, so many are held against a video together."""
MIN_PROBABILITY = 0.5
Candidates = Literal["clips", "pictures", "both"]


@dataclass(frozen=True, eq=False)
class _Side:
    """Videos that are compared with each other, or with those of another side."""

    source: str
    ids: tuple[str, ...]
    paths: tuple[str, ...]
    labels: tuple[str | None, ...]
    subsets: tuple[str | None, ...]
    duration_seconds: Float[Tensor, "videos"]
    uncertainty: Float[Tensor, "videos"]
    clip_mean: Float[Tensor, "videos clips dim"]
    clip_variance: Float[Tensor, "videos clips"]
    """Summed over the coordinates."""

    def __len__(self) -> int:
        return len(self.ids)


def find_duplicates(
    index: Index,
    *,
    other: Index | Catalog | None = None,
    min_probability: float = MIN_PROBABILITY,
    num_candidates: int = NUM_CANDIDATES,
    candidates: Candidates = "both",
    library: Library | None = None,
    progress: Progress = silent,
) -> DuplicateReport:
    """The videos of an index that show the same recording, or that do so with videos of another side.

    other: a second index of the same encoder, or videos, which are then embedded. Only pairs between the two
        sides are looked for.
    min_probability: pairs that are less probable are not reported.
    num_candidates: candidates that each video is compared with, by embedding and by picture each.
    candidates: where they come from; `clips` alone reads only files that have candidates.
    """
    if not 0 <= min_probability <= 1:
        raise ConfigError(f"The minimum probability is {min_probability:g}, but it must be between 0 and 1.")
    if num_candidates < 1:
        raise ConfigError(f"The number of candidates is {num_candidates}, but it must be at least 1.")
    library = library or Library()
    first = _of_index(index)
    sides = [first] if other is None else [first, _other_side(other, index, library)]
    finder = _Finder(sides, library, progress)
    pairs = finder.candidates(num_candidates, candidates)
    found = finder.compare_all(pairs, min_probability)
    found.sort(key=lambda pair: (-pair.probability, pair.first.key, pair.second.key))
    return DuplicateReport(
        num_videos=sum(map(len, sides)),
        num_compared=finder.num_compared,
        min_probability=min_probability,
        pairs=tuple(found),
        groups=group_duplicates(found),
        blank=tuple(finder.name(number) for number in sorted(finder.blank)),
        failed=tuple((finder.name(number), reason) for number, reason in sorted(finder.failed.items())),
    )


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """Two videos that agree to some degree."""

    first: int
    second: int
    evidence: Agreement
    is_identical: bool
    kind: Kind
    first_span: Span
    second_span: Span

    def probability(self, *, repetition: float) -> float:
        """That they show the same recording; the less, the more the two repeat what they show."""
        return 1.0 if self.is_identical else probability(self.evidence, repetition=repetition)


class _Finder:
    """The videos of one or two sides in one row of numbers, and what was found out about each."""

    def __init__(self, sides: Sequence[_Side], library: Library, progress: Progress) -> None:
        self._sides, self._library, self._progress = sides, library, progress
        self._places = [(side, place) for side in sides for place in range(len(side))]
        self._fingerprint = FingerprintCache(self._read)
        self._seconds = [float(side.duration_seconds[place]) for side, place in self._places]
        self._done = 0.0
        self._repetitions: dict[int, float] = {}
        self._among: dict[int, float] = {}
        self._looks: dict[int, tuple[int, float]] = {}
        self.blank: set[int] = set()
        self.failed: dict[int, str] = {}
        self.num_compared = 0

    def name(self, number: int) -> str:
        """The id of a video; that of the second side's with where it is from."""
        side, place = self._places[number]
        return side.ids[place] if side is self._sides[0] else f"{side.source}: {side.ids[place]}"

    def candidates(self, num: int, kinds: Candidates) -> list[tuple[int, int]]:
        """Numbers of the pairs to compare, ordered so that a video is needed for a while and then no more."""
        found = []
        if kinds != "pictures":
            found.append(self._nearest(lambda side: side.clip_mean, num, lambda side: side.clip_variance))
        if kinds != "clips":
            keys = dict(zip(map(id, self._sides), self._keys(), strict=True))
            found.append(self._nearest(lambda side: keys[id(side)], num))
        pairs = torch.cat(found)
        return near_each_other([(a, b) for a, b in unordered(pairs).tolist()])

    def _nearest(
        self,
        vectors: Callable[[_Side], Tensor],
        num: int,
        spread: Callable[[_Side], Tensor] | None = None,
    ) -> Tensor:
        mine, theirs = self._sides[0], self._sides[-1]
        spreads = {id(side): spread(side) if spread else None for side in self._sides}

        def nearest(a: _Side, b: _Side) -> Tensor:
            return nearest_videos(
                vectors(a),
                vectors(b),
                num=num,
                our_spread=spreads[id(a)],
                their_spread=spreads[id(b)],
                is_same=a is b,
            )

        if mine is theirs:
            return nearest(mine, mine)
        shift = torch.tensor([0, len(mine)])
        return torch.cat([nearest(mine, theirs) + shift, nearest(theirs, mine).flip(1) + shift])

    def _keys(self) -> Iterator[Tensor]:
        """ "videos keys GRID*GRID" of each side: every file is decoded once for it."""
        number = 0
        for side in self._sides:
            rows = np.zeros((len(side), NUM_KEYS, GRID * GRID), np.float32)
            for place in range(len(side)):
                found = self._known(number)
                if found is not None:
                    rows[place] = found.in_scenes.keys[:NUM_KEYS]  # those of the first crop, the whole
                self._advance(self._seconds[number], "seconds of video read")
                number += 1
            yield torch.from_numpy(rows)

    def _advance(self, seconds: float, what: str) -> None:
        """A video counts by its length, once when it is read and once when it has been compared."""
        self._done += seconds
        self._progress(round(self._done), round(2 * sum(self._seconds)), what)

    def compare_all(self, pairs: Sequence[tuple[int, int]], min_probability: float) -> list[Pair]:
        """The pairs that are probable enough. How probable they are, is known when all are compared."""
        found: list[_Compared] = []
        partners: dict[int, list[int]] = defaultdict(list)
        for a, b in pairs:
            partners[a].append(b)
        num_pairs = Counter(number for pair in pairs for number in pair)
        share = [seconds / max(num_pairs[number], 1) for number, seconds in enumerate(self._seconds)]
        self._done = sum(seconds for number, seconds in enumerate(self._seconds) if not num_pairs[number])
        self._done += sum(self._seconds)
        for a, others in partners.items():
            for some in (others[at : at + OTHERS_AT_ONCE] for at in range(0, len(others), OTHERS_AT_ONCE)):
                found += self._compare(a, some)
                self._advance(sum(share[a] + share[b] for b in some), "seconds of video compared")
        agreeing: dict[int, list[Agreement]] = defaultdict(list)
        for one in found:
            agreeing[one.first].append(one.evidence)
            agreeing[one.second].append(one.evidence.swapped)
        self._among = {number: repetition_among(some) for number, some in agreeing.items()}
        # What is too improbable even if nothing repeats needs no look at what repeats.
        probable = [one for one in found if one.probability(repetition=0.0) >= min_probability]
        return [pair for one in probable if (pair := self._pair(one)).probability >= min_probability]

    def _compare(self, number: int, numbers: Sequence[int]) -> Iterator[_Compared]:
        ours = self._known(number)
        known = {other: video for other in numbers if (video := self._known(other)) is not None}
        if ours is None:
            return
        self.num_compared += len(known)
        laid = overlays(ours, list(known.values()))
        for (other, theirs), overlay in zip(known.items(), laid, strict=True):
            evidence = None if overlay is None else agreement(overlay)
            if evidence is None:
                continue
            line, is_identical = evidence.line, ours.frames_hash == theirs.frames_hash
            yield _Compared(
                first=number,
                second=other,
                evidence=evidence,
                is_identical=is_identical,
                kind="duplicate" if is_identical else kind_of(ours, theirs, line),
                first_span=_span(line.start, line.end, ours),
                second_span=_span(line.other_start, line.other_end, theirs),
            )

    def _repetition(self, number: int) -> float:
        """How well a video agrees with itself at another time, or with others at many speeds."""
        if number not in self._repetitions:
            self._repetitions[number] = repetition(self._fingerprint(number))
        return max(self._among[number], self._repetitions[number])

    def _pair(self, found: _Compared) -> Pair:
        evidence = found.evidence
        repeated = max(self._repetition(number) for number in (found.first, found.second))
        seen: Proof = "pictures" if evidence.is_static else "motion"
        return Pair(
            first=self._member(found.first),
            second=self._member(found.second),
            probability=found.probability(repetition=repeated),
            kind=found.kind,
            first_span=found.first_span,
            second_span=found.second_span,
            speed=evidence.line.speed,
            is_mirrored=evidence.is_mirrored,
            proof="identical" if found.is_identical else seen,
            motion=evidence.motion,
            appearance=evidence.appearance,
            repetition=repeated,
        )

    def _known(self, number: int) -> Fingerprint | None:
        """The pictures of a video, unless it has none to compare."""
        if number in self.failed or number in self.blank:
            return None
        try:
            found = self._fingerprint(number)
        except VideoError as error:
            self.failed[number] = error.reason
            return None
        if found.is_all_blank:
            self.blank.add(number)
            return None
        return found

    def _read(self, number: int) -> Fingerprint:
        side, place = self._places[number]
        found = read_fingerprint(Path(side.paths[place]), self._library)
        self._looks[number] = found.num_pixels, found.bars
        return found

    def _member(self, number: int) -> Member:
        side, place = self._places[number]
        num_pixels, bars = self._looks[number]
        return Member(
            id=side.ids[place],
            path=side.paths[place],
            label=side.labels[place],
            subset=side.subsets[place],
            source=side.source,
            duration_seconds=float(side.duration_seconds[place]),
            num_pixels=num_pixels,
            bars=bars,
            modified_ns=Signature.of(Path(side.paths[place])).modified_ns,
            uncertainty=float(side.uncertainty[place]),
        )


def _span(start: float, end: float, video: Fingerprint) -> Span:
    return Span(max(0.0, float(start)), min(video.duration_seconds, float(end)))


def _of_index(index: Index) -> _Side:
    names = ("path", "label", "subset", "duration_seconds", "uncertainty", "clip_mean", "clip_log_var")
    rows = index.loaded.store.read(names)
    return _Side(
        source=str(index.path),
        ids=index.ids,
        paths=tuple(rows["path"]),
        labels=tuple(rows["label"]),
        subsets=tuple(rows["subset"]),
        duration_seconds=torch.from_numpy(rows["duration_seconds"]),
        uncertainty=torch.from_numpy(rows["uncertainty"]),
        clip_mean=torch.from_numpy(rows["clip_mean"]),
        clip_variance=torch.from_numpy(np.exp(rows["clip_log_var"]).sum(axis=2)),
    )


def _other_side(other: Index | Catalog, index: Index, library: Library) -> _Side:
    if isinstance(other, Index):
        if other.path.resolve() == index.path.resolve():
            raise ConfigError(
                f"{other.path} is the index itself. Leave it out to compare its videos with each other."
            )
        mine, theirs = index.settings.embedding, other.settings.embedding
        if mine.encoder_hash != theirs.encoder_hash:
            raise ConfigError(
                f"{other.path} was made by the encoder {theirs.encoder_hash}, but {index.path} by "
                f"{mine.encoder_hash}, and only what one encoder says can be compared. Give the folder of "
                "the videos instead of their index."
            )
        return _of_index(other)
    if any(video.span is not None for video in other):
        raise ConfigError(
            f"{other.root} lists parts of files, but whole files are needed. Give a list without "
            "start_seconds and end_seconds."
        )
    settings = index.settings.embedding
    found = embed(
        index.encoder,
        other,
        num_clips=settings.num_clips,
        short_side=settings.short_side,
        max_broken_share=1.0,
        library=library,
    )
    videos = {video.id: video for video in other}
    kept = [videos[name] for name in found.ids]
    return _Side(
        source=str(other.root),
        ids=found.ids,
        paths=tuple(str(video.path) for video in kept),
        labels=found.labels,
        subsets=tuple(video.subset for video in kept),
        duration_seconds=torch.tensor([library.index(video.path).duration_seconds for video in kept]),
        uncertainty=found.videos.uncertainty,
        clip_mean=found.videos.clips.mean,
        clip_variance=found.videos.clips.log_var.exp().sum(dim=2),
    )
