"""What is asked for: an indexed video, a file, or a span of either, as the Gaussians of its clips.

A `Query` is what the user gives, `Asked` what the search compares. `Filter` says which videos may be found,
and `Barred` which may not: the query itself, or all that was cut from the same recording.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import md5
from heapq import nsmallest
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from provico.data.library import Library
from provico.embedding.driver import embed_video
from provico.embedding.embeddings import VideoEmbedding
from provico.errors import ConfigError, VideoIndexError, did_you_mean
from provico.files import Signature
from provico.models.encoder import Encoder
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture
from provico.probability.seeded_samples import Draw, seeded_samples
from provico.search.exact.scoring import exact_log_probabilities
from provico.search.store.folder import IndexSettings
from provico.search.store.video_store import Rows

Query = str | Path | tuple[str | Path, float, float]
"""An id, or else a file; with a start and an end in seconds for a part of it. A Path is always a file."""
TIMELINE = ("timeline_seconds", "timeline_mean", "timeline_log_var")
"""Columns with all clips of a long video; empty for a short one."""
CLIP_COLUMNS = ("start_seconds", "end_seconds", "clip_mean", "clip_log_var", *TIMELINE)
EncoderSource = Callable[[], Encoder]
"""Gives the encoder, which most queries do not need."""


@dataclass(frozen=True)
class Span:
    """A part of a video."""

    start_seconds: float
    end_seconds: float

    def __str__(self) -> str:
        return f"{in_minutes(self.start_seconds)}-{in_minutes(self.end_seconds)}"


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which videos may be found; what is None does not matter."""

    labels: Sequence[str] | None = None
    groups: Sequence[str] | None = None
    subsets: Sequence[str] | None = None
    max_uncertainty: float | None = None
    min_seconds: float | None = None
    """Least duration."""
    max_seconds: float | None = None

    @property
    def words(self) -> dict[str, Sequence[str]]:
        """The columns of words that matter, and what is wanted of each."""
        wanted = {"label": self.labels, "group": self.groups, "subset": self.subsets}
        return {name: words for name, words in wanted.items() if words is not None}


@dataclass(frozen=True, eq=False)
class Described:
    """Videos, or parts of them, as they are compared."""

    ids: tuple[str, ...]
    recordings: tuple[str, ...]
    distributions: Gaussian
    """The distribution "videos dim" of each."""
    samples: Float[Tensor, "videos samples dim"]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: Sequence[int]) -> Described:
        index = torch.tensor(rows, dtype=torch.long)
        return Described(
            tuple(self.ids[row] for row in rows),
            tuple(self.recordings[row] for row in rows),
            self.distributions[index],
            self.samples[index],
        )

    @classmethod
    def joined(cls, parts: Sequence[Described]) -> Described:
        """Those of all parts, in turn."""
        return cls(
            tuple(name for part in parts for name in part.ids),
            tuple(name for part in parts for name in part.recordings),
            Gaussian.joined([part.distributions for part in parts]),
            torch.cat([part.samples for part in parts]),
        )

    def is_other(self, of: Described) -> Bool[Tensor, "mine its"]:
        """Which pairs are of two recordings; a video without a group is one by itself."""
        mine, its = (np.array(one.recordings, object) for one in (self, of))
        return torch.from_numpy(np.not_equal.outer(mine, its).astype(bool))


class IndexedVideos(Protocol):
    """The videos of one version of an index, wherever they are; each has a row, by which it is named here."""

    @property
    def settings(self) -> IndexSettings:
        """What all of them have in common."""
        ...

    def look_up(self, name: str) -> int | None:
        """The row of the video with this id; None if there is none."""
        ...

    def find_id(self, name: str) -> int:
        """The row of the video with this id, or an error that says what there is."""
        ...

    def find_path(self, path: Path) -> int | None:
        """The row of the video that this file was when it was indexed."""
        ...

    def id_of(self, row: int) -> str:
        """The id of a video."""
        ...

    def read(self, names: Sequence[str], rows: Sequence[int]) -> Rows:
        """These columns of some videos."""
        ...

    def describe(self, rows: Sequence[int], segments: Sequence[int]) -> Described:
        """Some videos, or the segments of them that are given, as they are compared."""
        ...

    def seconds_of(self, segment: int) -> Span:
        """From when to when a segment is."""
        ...

    def drawn_segments(self, most: int) -> list[tuple[str, int, int]]:
        """Names, rows and numbers of at most so many segments, drawn by MD5 of seed and name."""
        ...

    def drawn(self, most: int) -> list[int]:
        """Rows of at most so many videos, drawn by MD5 of seed and id: the same ones wherever they are."""
        ...


@dataclass(frozen=True, eq=False)
class Asked:
    """A query that has been looked up or embedded."""

    name: str
    """The id, or the path of the file."""
    span: Span | None
    row: int | None
    """The video of the index that it is, or is a part of."""
    clips: Gaussian
    """float32 "clips dim"."""
    clip_seconds: Float[Tensor, "clips 2"]
    is_elsewhere: bool = False
    """Whether it is a video of another index that is searched together with this one ..."""
    group: str | None = None
    """... and from which recording."""

    @property
    def mixture(self) -> Mixture:
        """p(z|V), with an axis for one video."""
        return Mixture(self.clips[None])

    def samples(self, settings: IndexSettings, draw: Draw = "moments") -> Float[Tensor, "1 samples dim"]:
        """K samples; not those that it has as a video of the index, or it would find itself by its noise.

        draw: `clips` where it is compared with segments, which show one scene each. Between the scenes of a
            query, where samples of its moments lie, there is nothing.
        """
        return seeded_samples(
            [Path(self.name).name if self.row is None and not self.is_elsewhere else self.name],
            self.mixture,
            num_samples=settings.num_samples,
            seed=settings.seed,
            draw=draw,
            stream="query",
        )

    def scenes(self, settings: IndexSettings) -> tuple[Asked, ...]:
        """Both halves of a query, if they more likely do not match each other than do; else the query.

        A part of a long video may span a cut, and no segment then matches both of its scenes.
        """
        middle = len(self.clips.mean) // 2
        if not middle:
            return (self,)
        one, other = (
            replace(
                self,
                name=f"{self.name}#{number}",
                clips=self.clips[part],
                clip_seconds=self.clip_seconds[part],
            )
            for number, part in enumerate((slice(None, middle), slice(middle, None)))
        )
        log_probability = exact_log_probabilities(
            one.samples(settings, "clips"), other.samples(settings, "clips"), curve=settings.curve
        )
        return (one, other) if float(log_probability) < -math.log(2) else (self,)


def ask(query: Query, videos: IndexedVideos, encoder: EncoderSource, library: Library) -> Asked:
    """Look a query up, or decode and embed it."""
    subject, span = _parts(query)
    row = videos.look_up(subject) if isinstance(subject, str) else None
    path = None
    if row is None:
        path = Path(subject).expanduser()
        if not path.is_file():
            videos.find_id(str(subject))  # which explains what there is
        row = videos.find_path(path)
    if row is None:
        name = str(subject)
    else:
        name = videos.id_of(row)
        if span is None and (path is None or _is_as_indexed(path, row, videos)):
            return _stored(row, videos)
        path = path or Path(videos.read(("path",), [row])["path"][0])
    assert path is not None  # an indexed video has one, a file is one
    embedding = videos.settings.embedding
    num_clips, short_side = embedding.num_clips, embedding.short_side
    found = embed_query(encoder(), path, span, num_clips=num_clips, short_side=short_side, library=library)
    return Asked(name, span, row, found.gaussians, found.clip_seconds)


def embed_query(
    encoder: Encoder, path: Path, span: Span | None, *, num_clips: int, short_side: int, library: Library
) -> VideoEmbedding:
    """The distribution of a file, or of a span of it, as if its frames were all there is."""
    if span is None:
        return embed_video(
            encoder, path, num_clips=num_clips, short_side=short_side, library=library, timelines=True
        )
    index = library.index(path)
    if not index.frames_within(span.start_seconds, span.end_seconds):
        raise ConfigError(
            f"The span {span} of {path.name} has no frame in it: the video is "
            f"{Span(0.0, index.duration_seconds)}. Give a start and an end within it."
        )
    seconds = (span.start_seconds, span.end_seconds)
    return embed_video(
        encoder,
        path,
        span=seconds,
        num_clips=num_clips,
        short_side=short_side,
        library=library,
        timelines=True,
    )


def check_words(name: str, wanted: Sequence[str], known: Collection[str]) -> None:
    """Refuse a label, group or subset that no video has; a typing error would find nothing."""
    for word in wanted:
        if word not in known:
            hint = did_you_mean(word, known, otherwise=f"There are {len(known)} {name}s.")
            raise ConfigError(f"No video of the index has the {name} {word!r}. {hint}")


def no_such_video(name: str, num_videos: int, ids: Sequence[str] = ()) -> VideoIndexError:
    """The error for a query that is no video; names the nearest of these ids."""
    hint = did_you_mean(name, ids, otherwise="Give the id of an indexed video, or a file.")
    return VideoIndexError(
        f"{name} is neither one of the {num_videos:,} videos of the index, nor a file. {hint}"
    )


def in_minutes(seconds: float) -> str:
    """0:07.5 or 1:02:03.0."""
    minutes, rest = divmod(round(seconds, 1), 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02}:{rest:04.1f}" if hours else f"{minutes}:{rest:04.1f}"


def _parts(query: Query) -> tuple[str | Path, Span | None]:
    if not isinstance(query, tuple):
        return query, None
    subject, start, end = query
    if not (0 <= start < end and math.isfinite(start)):
        raise ConfigError(
            f"The span goes from {start:g} to {end:g} seconds, but it must start at 0 or later, and end "
            "after that."
        )
    return subject, Span(start, end)


def _is_as_indexed(path: Path, row: int, videos: IndexedVideos) -> bool:
    known = videos.read(("num_bytes", "modified_ns"), [row])
    return Signature.of(path) == (known["num_bytes"][0], known["modified_ns"][0])


def _stored(row: int, videos: IndexedVideos) -> Asked:
    seconds, mean, log_var = all_clips(videos.read(CLIP_COLUMNS, [row]), 0)
    clips = Gaussian.from_numpy(mean, log_var)
    return Asked(videos.id_of(row), None, row, clips, torch.from_numpy(seconds))


def all_clips(rows: Rows, row: int) -> tuple[NDArray[np.float64], NDArray[np.float32], NDArray[np.float32]]:
    """Times, means and log-variances of all clips of a video, from its `CLIP_COLUMNS`."""
    if len(rows["timeline_seconds"][row]):
        seconds, mean, log_var = (rows[name][row] for name in TIMELINE)
        return seconds, mean, log_var
    seconds = np.stack([rows["start_seconds"][row], rows["end_seconds"][row]], axis=1)
    return seconds, rows["clip_mean"][row], rows["clip_log_var"][row]


def recording_of(group: str | None, video_id: str) -> str:
    """The recording of a video; one without a group is one by itself."""
    return f"video {video_id}" if group is None else f"group {group}"


Exclusion = Literal["nothing", "video", "group"]
"""What a query may not find: `video` is itself; `group` is also what was cut from the same recording."""


@dataclass(frozen=True)
class Barred:
    """What one query may not find."""

    rows: tuple[int, ...]
    """The videos of the gallery that the query is, or is a part of."""
    group: str | None
    """A recording; None bars none, for videos without a group do not make one."""

    @classmethod
    def of(cls, exclude_same: Exclusion, *, rows: Sequence[int], group: str | None) -> Barred:
        """For a query that is in these rows of the gallery, if any, and was cut from this recording."""
        return cls(
            rows=() if exclude_same == "nothing" else tuple(rows),
            group=group if exclude_same == "group" else None,
        )

    def mask(self, groups: NDArray[np.object_]) -> Bool[Tensor, "videos"]:
        """Which videos of a gallery these are, from the recording of each."""
        mask = torch.zeros(len(groups), dtype=torch.bool)
        if self.group is not None:
            mask |= torch.from_numpy(np.asarray(groups == self.group, bool))
        mask[list(self.rows)] = True
        return mask


def gallery_samples(
    ids: Sequence[str], videos: Gaussian, settings: IndexSettings
) -> Float[Tensor, "videos samples dim"]:
    """The K samples of some videos, from their distributions "videos dim"."""
    if not ids:
        return torch.empty(0, settings.num_samples, videos.dim)
    # A mixture of one clip is that clip, to the last bit.
    one_clip = videos[:, None]
    return seeded_samples(
        ids, Mixture(one_clip), num_samples=settings.num_samples, seed=settings.seed, stream="gallery"
    )


def drawn_by_name(names: Iterable[str], most: int, seed: int) -> list[int]:
    """Indices of at most so many names, drawn by MD5 of seed and name."""
    digests = (md5(f"{seed} {name}".encode(), usedforsecurity=False).hexdigest() for name in names)
    return [index for _, index in nsmallest(most, ((one, index) for index, one in enumerate(digests)))]
