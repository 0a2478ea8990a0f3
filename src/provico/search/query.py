"""What is asked for: an indexed video, a file, or a span of either, as the Gaussians of its clips."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from provico.data.library import Library
from provico.embedding.driver import embed_video
from provico.embedding.embeddings import VideoEmbedding
from provico.errors import ConfigError
from provico.files import Signature
from provico.models.encoder import Encoder
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture
from provico.probability.seeded_samples import seeded_samples
from provico.search.hits import Span
from provico.search.snapshot import KnownVideos
from provico.search.store.folder import IndexSettings

Query = str | Path | tuple[str | Path, float, float]
"""An id, or else a file; with a start and an end in seconds for a part of it. A Path is always a file."""


EncoderSource = Callable[[], Encoder]
"""Gives the encoder, which most queries do not need."""


@dataclass(frozen=True, eq=False)
class Asked:
    """A query that has been looked up or embedded."""

    name: str
    """The id, or the path of the file."""
    span: Span | None
    number: int | None
    """The video of the index that it is, or is a part of."""
    clips: Gaussian
    """float32 "clips dim"."""
    clip_seconds: Float[Tensor, "clips 2"]

    @property
    def mixture(self) -> Mixture:
        """p(z|V), with an axis for one video."""
        return Mixture(Gaussian(self.clips.mean.unsqueeze(0), self.clips.log_var.unsqueeze(0)))

    def samples(self, settings: IndexSettings) -> Float[Tensor, "1 samples dim"]:
        """K samples; not those that it has as a video of the index, or it would find itself by its noise."""
        return seeded_samples(
            [Path(self.name).name if self.number is None else self.name],
            self.mixture,
            num_samples=settings.num_samples,
            seed=settings.seed,
            stream="query",
        )


def ask(query: Query, snapshot: KnownVideos, encoder: EncoderSource, library: Library) -> Asked:
    """Look a query up, or decode and embed it."""
    subject, span = _parts(query)
    number = snapshot.look_up(subject) if isinstance(subject, str) else None
    path = None
    if number is None:
        path = Path(subject).expanduser()
        if not path.is_file():
            snapshot.find_id(str(subject))  # which explains what there is
        number = snapshot.find_path(path)
    if number is None:
        name = str(subject)
    else:
        name = snapshot.id_of(number)
        if span is None and (path is None or _is_as_indexed(path, number, snapshot)):
            return _stored(number, snapshot)
        path = path or Path(snapshot.read(("path",), [number])["path"][0])
    assert path is not None  # an indexed video has one, a file is one
    embedding = snapshot.settings.embedding
    num_clips, short_side = embedding.num_clips, embedding.short_side
    if span is None:
        found = encoder().embed(path, num_clips=num_clips, short_side=short_side, library=library)
    else:
        found = embed_span(encoder(), path, span, num_clips=num_clips, short_side=short_side, library=library)
    return Asked(name, span, number, found.gaussians, found.clip_seconds)


def embed_span(
    encoder: Encoder, path: Path, span: Span, *, num_clips: int, short_side: int, library: Library
) -> VideoEmbedding:
    """The distribution of a part of a video: the frames shown in it, as if they were all there is."""
    index = library.index(path)
    if not index.frames_within(span.start_seconds, span.end_seconds):
        raise ConfigError(
            f"The span {span} of {path.name} has no frame in it: the video is "
            f"{Span(0.0, index.duration_seconds)}. Give a start and an end within it."
        )
    seconds = (span.start_seconds, span.end_seconds)
    return embed_video(
        encoder, path, span=seconds, num_clips=num_clips, short_side=short_side, library=library
    )


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


def _is_as_indexed(path: Path, number: int, snapshot: KnownVideos) -> bool:
    row = snapshot.read(("num_bytes", "modified_ns"), [number])
    return Signature.of(path) == (row["num_bytes"][0], row["modified_ns"][0])


def _stored(number: int, snapshot: KnownVideos) -> Asked:
    names = ("clip_mean", "clip_log_var", "start_seconds", "end_seconds")
    row = {name: torch.from_numpy(values[0]) for name, values in snapshot.read(names, [number]).items()}
    return Asked(
        snapshot.id_of(number),
        None,
        number,
        Gaussian(row["clip_mean"], row["clip_log_var"]),
        torch.stack([row["start_seconds"], row["end_seconds"]], dim=1),
    )
