"""Features of an encoder's backbone, computed once and cached.

Clips are evenly spaced and not augmented, so a video's features depend only on its file and on the backbone,
and later runs can reuse them for training, evaluation and search.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from provico.data.catalog import Catalog, Video, frames_of
from provico.data.clips import Clips, timed_clips, uniform_clips
from provico.data.library import Library
from provico.data.loader import ClipLoader, ClipSettings, check_share
from provico.defaults import LONG_SECONDS, MAX_BROKEN_SHARE
from provico.embedding.clips import clip_settings
from provico.embedding.stored import (
    check_features_fit,
    stored_clips,
    stored_features,
    untimed_clips,
    usable_clips,
)
from provico.errors import TooManyBrokenError, VideoError
from provico.models.backbones.registry import name_for_features
from provico.models.encoder import Encoder
from provico.models.inference import CLIPS_AT_ONCE, evaluating
from provico.models.pixels import InputSpec
from provico.models.weights import weights_hash
from provico.progress import Progress, silent

VIDEOS_AT_ONCE = 4
"""Videos that a worker reads at once."""
RECALLED_AT_ONCE = 256
"""Cached videos per batch."""
_NUM_NAMED = 3  # broken videos that a message lists
VERSION = 1
"""To be raised if the same settings give other features."""


@dataclass(frozen=True)
class ClipFeatures:
    """Features of the clips of those videos of a catalog that can be read."""

    features: Tensor
    """float32 "videos clips feature"."""
    catalog: Catalog
    """The videos, one for each row."""
    broken: dict[str, VideoError]
    """Ids of the videos that cannot be read, with the reasons."""
    num_computed: int
    """Number of videos that were not cached."""
    clips: tuple[Clips, ...] | None = None
    """Frame numbers and times of each clip of each video; None for stored features."""

    @property
    def failed(self) -> tuple[tuple[str, str], ...]:
        """Ids of the videos that cannot be read, with the reasons."""
        return tuple(reasons(self.broken).items())


def clip_features(
    encoder: Encoder,
    catalog: Catalog,
    *,
    num_clips: int,
    short_side: int | None = None,
    num_workers: int = 0,
    max_broken_share: float = MAX_BROKEN_SHARE,
    library: Library | None = None,
    progress: Progress = silent,
) -> ClipFeatures:
    """Features of evenly spaced clips of every video, in the order of the catalog."""
    row_of = {video.id: row for row, video in enumerate(catalog)}
    found: dict[int, tuple[Tensor, Clips]] = {}
    broken: dict[str, VideoError] = {}
    num_computed = 0
    for batch in feature_batches(
        encoder,
        catalog,
        num_clips=num_clips,
        short_side=short_side,
        num_workers=num_workers,
        max_broken_share=max_broken_share,
        library=library,
    ):
        for video, features, clips in zip(batch.catalog, batch.features, batch.clips or (), strict=True):
            found[row_of[video.id]] = features, clips
        broken |= batch.broken
        num_computed += batch.num_computed
        progress(len(found) + len(broken), len(catalog))
    check_any(len(found), catalog, reasons(broken))
    rows = sorted(found)
    return ClipFeatures(
        torch.stack([found[row][0] for row in rows]),
        catalog.subset(rows),
        broken,
        num_computed,
        tuple(found[row][1] for row in rows),
    )


def feature_batches(
    encoder: Encoder,
    catalog: Catalog,
    *,
    num_clips: int,
    short_side: int | None = None,
    num_workers: int = 0,
    max_broken_share: float = MAX_BROKEN_SHARE,
    remember: bool | None = None,
    library: Library | None = None,
    long: list[Video] | None = None,
) -> Iterator[ClipFeatures]:
    """Features of videos in batches, in bounded memory: cached ones first, then the rest.

    The network gets full batches of clips across videos, while workers read ahead.

    long: a list to fill with the videos of more than `LONG_SECONDS`, which are then left to `LongVideos`; by
        default, they are not told apart.
    remember: whether to use the cache; by default only for a frozen network, since every checkpoint of a
        trained one would add to it.
    """
    check_features_fit(encoder, catalog)
    if stored_clips(catalog) is not None:
        yield from _stored(catalog, usable_clips(catalog, num_clips))
        return
    library = library or Library()
    settings = clip_settings(encoder.config, num_clips=num_clips, short_side=short_side)
    if long is not None:
        settings = dataclasses.replace(settings, longest_seconds=LONG_SECONDS)
    remember = is_cached(encoder) if remember is None else remember
    maker = maker_name(encoder, settings) if remember else None
    broken: dict[str, VideoError] = {}
    unknown = catalog
    if maker is not None:
        done: set[str] = set()
        for first in range(0, len(catalog), RECALLED_AT_ONCE):
            part = catalog.subset(range(first, min(first + RECALLED_AT_ONCE, len(catalog))))
            found = _recall(encoder, part, settings, library, maker)
            broken |= found.broken
            done.update(found.broken, (video.id for video in found.catalog))
            yield found
        unknown = catalog.subset(row for row, video in enumerate(catalog) if video.id not in done)
    check_share([*broken.values()], len(catalog), max_broken_share)
    if not len(unknown):
        return
    loader = ClipLoader(
        unknown,
        settings,
        batch_size=VIDEOS_AT_ONCE,
        shuffle=False,
        drop_last=False,
        num_workers=num_workers,
        max_broken_share=max_broken_share * len(catalog) / len(unknown),
        library=library,
    )
    rows_of_long: list[int] = []
    for found in _compute(encoder, loader, num_clips, rows_of_long):
        if maker is not None:
            for video, features in zip(found.catalog, found.features, strict=True):
                library.remember_features(video.path, features.numpy(), maker=key_of(video, maker))
        broken |= found.broken
        yield found
    if long is not None:
        long += [unknown[row] for row in rows_of_long]
    check_share([*broken.values()], len(catalog), max_broken_share)


def _stored(catalog: Catalog, num_clips: int) -> Iterator[ClipFeatures]:
    """The rows of a file of features."""
    features = stored_features(catalog, num_clips)
    for first in range(0, len(catalog), RECALLED_AT_ONCE):
        part = catalog.subset(range(first, min(first + RECALLED_AT_ONCE, len(catalog))))
        clips = tuple(untimed_clips(video, num_clips) for video in part)
        yield ClipFeatures(features[first : first + RECALLED_AT_ONCE], part, {}, 0, clips)


def network_features(encoder: Encoder, pixels: Iterable[Tensor]) -> Iterator[Tensor]:
    """The backbone's features of clips, in batches of `CLIPS_AT_ONCE`.

    pixels: uint8 "clips time height width 3", some clips at a time.
    Yields float32 "clips feature" on the CPU; the encoder is in evaluation mode until the last was consumed.
    """
    with evaluating(encoder) as device:
        for part in _regrouped(pixels, CLIPS_AT_ONCE):
            with torch.no_grad():
                features = encoder.features(part.to(device)).float().cpu()
            yield features


def _compute(encoder: Encoder, loader: ClipLoader, num_clips: int, long: list[int]) -> Iterator[ClipFeatures]:
    """Compute the features of clips; a video is yielded when its last clip is done.

    long: a list to fill with the rows of videos that are too long for the loader.
    """
    videos: deque[tuple[int, Clips]] = deque()
    broken: dict[str, VideoError] = {}

    def pixels() -> Iterator[Tensor]:
        for batch in loader:
            broken.update((loader.catalog[row].id, error) for row, error in batch.broken)
            long.extend(batch.long)
            if len(batch):
                videos.extend(zip(batch.videos.tolist(), batch.clips, strict=True))
                yield batch.pixels.flatten(0, 1)

    def finished(features: Tensor) -> ClipFeatures:
        done = [videos.popleft() for _ in range(len(features) // num_clips)]
        unread = dict(broken)
        broken.clear()
        return ClipFeatures(
            features.view(len(done), num_clips, features.shape[1]),
            loader.catalog.subset(row for row, _ in done),
            unread,
            len(done),
            tuple(clips for _, clips in done),
        )

    seen = torch.empty(0, encoder.head.feature_dim)
    for features in network_features(encoder, pixels()):
        seen = torch.cat([seen, features])
        end = len(seen) // num_clips * num_clips
        yield finished(seen[:end])
        seen = seen[end:]
    if broken:
        yield finished(seen)


def _regrouped(chunks: Iterable[Tensor], size: int) -> Iterator[Tensor]:
    """The rows of all chunks, regrouped into chunks of `size`; only the last may be smaller."""
    waiting: list[Tensor] = []
    for chunk in chunks:
        rows = torch.cat([*waiting, chunk])
        num_full = len(rows) // size * size
        if num_full:
            yield from torch.split(rows[:num_full], size)
        waiting = [rows[num_full:]]
    if any(map(len, waiting)):
        yield waiting[0]


def _recall(
    encoder: Encoder, catalog: Catalog, settings: ClipSettings, library: Library, maker: str
) -> ClipFeatures:
    """The videos of a catalog whose features are cached, except long ones."""
    known: dict[int, tuple[NDArray[np.float32], Clips]] = {}
    broken: dict[str, VideoError] = {}
    for row, video in enumerate(catalog):
        try:
            found = library.features(video.path, maker=key_of(video, maker))
            if found is not None:
                index = library.index(video.path)
                shown = frames_of(video, index)
                if (
                    settings.longest_seconds is not None
                    and index.seconds_of(shown) > settings.longest_seconds
                ):
                    continue
                frames = uniform_clips(len(shown), num_clips=settings.num_clips, spec=settings.spec)
                known[row] = found, timed_clips(video.id, frames + shown.start, index)
        except VideoError as error:
            broken[video.id] = error
    shape = (len(known), settings.num_clips, encoder.head.feature_dim)
    features = np.array([rows for rows, _ in known.values()], np.float32).reshape(shape)
    clips = tuple(clips for _, clips in known.values())
    return ClipFeatures(torch.from_numpy(features), catalog.subset(known), broken, 0, clips)


def is_cached(encoder: Encoder) -> bool:
    """Whether features are cached by default: only those of frozen networks stay the same."""
    return encoder.config.backbone_spec.is_frozen


def key_of(video: Video, maker: str) -> str:
    """The cache key of a file's features; each part of a file has its own."""
    return maker if video.span is None else f"{maker} {video.span[0]!r}-{video.span[1]!r}"


def check_any(num_read: int, catalog: Catalog, failed: Mapping[str, str]) -> None:
    """Raise TooManyBrokenError if no video can be read; `failed` has ids and reasons."""
    if not num_read:
        raise TooManyBrokenError(f"None of {len(catalog)} videos can be read: {_some(failed)}")


def reasons(broken: Mapping[str, VideoError]) -> dict[str, str]:
    """Why each video cannot be read, in words."""
    return {name: error.reason for name, error in broken.items()}


def _some(failed: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in list(failed.items())[:_NUM_NAMED])


def _said(clips: InputSpec) -> dict[str, object]:
    """The clip settings; those added later appear only if they differ from the earlier behaviour."""
    later = ("scaling", "short_side", "squash")
    return {
        field.name: getattr(clips, field.name)
        for field in dataclasses.fields(clips)
        if field.name not in later or getattr(clips, field.name) != field.default
    }


def maker_name(encoder: Encoder, settings: ClipSettings) -> str:
    """The cache key: everything that a file's features depend on besides the file."""
    config = encoder.config
    values = {
        "version": VERSION,
        "backbone": name_for_features(config.backbone),
        "weights": config.network_hash or weights_hash(encoder.backbone.state_dict()),
        "input": _said(config.input),
        "frozen": None if config.frozen is None else dataclasses.asdict(config.frozen),
        "num_clips": settings.num_clips,
        "short_side": settings.short_side,
    }
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    return f"{name_for_features(config.backbone)} {digest[:16]}"
