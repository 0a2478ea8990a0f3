"""What an encoder's backbone makes of videos, computed once and remembered.

Clips are evenly spaced and not augmented, so the features of a video depend on its file and on the backbone
alone, and can be used by every later run, for training, evaluation and search.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from provico.data.catalog import Catalog, Video, frames_of
from provico.data.clips import Clip, uniform_clips
from provico.data.library import Library
from provico.data.loader import ClipLoader, ClipSettings
from provico.defaults import MAX_BROKEN_SHARE
from provico.errors import TooManyBrokenError, VideoError
from provico.models.encoder import Encoder, weights_hash
from provico.models.inference import CLIPS_AT_ONCE, evaluating
from provico.progress import Progress, silent

VIDEOS_AT_ONCE = 4
"""How many videos a worker reads together."""
RECALLED_AT_ONCE = 256
"""How many remembered videos are given out together."""
_NUM_NAMED = 3  # broken videos that a message names
VERSION = 1
"""Raised when the same settings come to mean other features."""


@dataclass(frozen=True)
class ClipFeatures:
    """Features of the clips of those videos of a catalog that can be read."""

    features: Tensor
    """float32 "videos clips feature"."""
    catalog: Catalog
    """The videos they are of, one for each row."""
    broken: dict[str, str]
    """Ids of the videos that cannot be read, with the reasons."""
    num_computed: int
    """How many were not remembered."""


@dataclass(frozen=True)
class FeatureRows:
    """Some videos of a catalog, in no particular order."""

    numbers: tuple[int, ...]
    """Into the catalog."""
    features: Tensor
    """float32 "videos clips feature"."""
    clips: tuple[tuple[Clip, ...], ...]
    """For each video and clip: which frames, and when."""
    is_computed: bool
    """Whether they were not remembered."""
    broken: tuple[tuple[int, str], ...] = ()
    """Numbers of the videos that cannot be read, with the reasons."""


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
    """The features of evenly spaced clips of every video, from memory where they are known."""
    rows: dict[int, Tensor] = {}
    broken: dict[str, str] = {}
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
        rows |= zip(batch.numbers, batch.features, strict=True)
        broken |= {catalog[number].id: reason for number, reason in batch.broken}
        num_computed += len(batch.numbers) * batch.is_computed
        progress(len(rows) + len(broken), len(catalog))
    check_any(len(rows), catalog, broken)
    readable = sorted(rows)
    features = torch.stack([rows[number] for number in readable])
    return ClipFeatures(features, catalog.subset(readable), broken, num_computed)


def feature_batches(
    encoder: Encoder,
    catalog: Catalog,
    *,
    num_clips: int,
    short_side: int | None = None,
    batch_size: int = VIDEOS_AT_ONCE,
    num_workers: int = 0,
    max_broken_share: float = MAX_BROKEN_SHARE,
    remember: bool | None = None,
    library: Library | None = None,
) -> Iterator[FeatureRows]:
    """The same some videos at a time, in memory that does not grow: what is known first, then the rest.

    The network sees full batches of clips, whichever videos they are of, while workers read ahead.

    remember: whether to use and keep what is known; only of a frozen network if not given, since every
        checkpoint of one that learns would add more.
    """
    library = library or Library()
    settings = encoder.config.clip_settings(num_clips=num_clips, short_side=short_side)
    remember = encoder.config.backbone_spec.is_frozen if remember is None else remember
    maker = maker_name(encoder, settings) if remember else None
    broken: dict[str, str] = {}
    absent = [] if remember else list(range(len(catalog)))
    if maker is not None:
        for first in range(0, len(catalog), RECALLED_AT_ONCE):
            numbers = range(first, min(first + RECALLED_AT_ONCE, len(catalog)))
            rows = _recall(encoder, catalog, numbers, settings, library, maker)
            broken |= {catalog[number].id: reason for number, reason in rows.broken}
            absent += sorted(set(numbers) - set(rows.numbers) - {number for number, _ in rows.broken})
            yield rows
    _check_share(broken, catalog, max_broken_share)
    if not absent:
        return
    loader = ClipLoader(
        catalog.subset(absent),
        settings,
        batch_size=batch_size,
        shuffle=False,
        drop_last=False,
        num_workers=num_workers,
        max_broken_share=max_broken_share * len(catalog) / len(absent),
        library=library,
    )
    for found in _compute(encoder, loader, num_clips):
        rows = dataclasses.replace(
            found,
            numbers=tuple(absent[number] for number in found.numbers),
            broken=tuple((absent[number], reason) for number, reason in found.broken),
        )
        if maker is not None:
            for number, features in zip(rows.numbers, rows.features, strict=True):
                video = catalog[number]
                library.remember_features(video.path, features.numpy(), maker=_maker_of(video, maker))
        broken |= {catalog[number].id: reason for number, reason in rows.broken}
        yield rows
    _check_share(broken, catalog, max_broken_share)


def _compute(encoder: Encoder, loader: ClipLoader, num_clips: int) -> Iterator[FeatureRows]:
    """What the network makes of the clips; a video is given out when its last clip is done."""
    videos: deque[tuple[int, tuple[Clip, ...]]] = deque()
    broken: list[tuple[int, str]] = []

    def pixels() -> Iterator[Tensor]:
        for batch in loader:
            broken.extend((number, error.reason) for number, error in batch.broken)
            if len(batch):
                videos.extend(zip(batch.videos.tolist(), batch.clips, strict=True))
                yield batch.pixels.flatten(0, 1)

    def rows(features: Tensor) -> FeatureRows:
        done = [videos.popleft() for _ in range(len(features) // num_clips)]
        unread = tuple(broken)
        broken.clear()
        return FeatureRows(
            tuple(number for number, _ in done),
            features.view(len(done), num_clips, features.shape[1]),
            tuple(clips for _, clips in done),
            is_computed=True,
            broken=unread,
        )

    seen = torch.empty(0, encoder.config.backbone_spec.feature_dim)
    with evaluating(encoder) as device:
        for part in _regrouped(pixels(), CLIPS_AT_ONCE):
            with torch.no_grad():
                seen = torch.cat([seen, encoder.features(part.to(device)).float().cpu()])
            end = len(seen) // num_clips * num_clips
            yield rows(seen[:end])
            seen = seen[end:]
    if broken:
        yield rows(seen)


def _regrouped(chunks: Iterable[Tensor], size: int) -> Iterator[Tensor]:
    """The same rows, always `size` of them together but for the last."""
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
    encoder: Encoder, catalog: Catalog, numbers: range, settings: ClipSettings, library: Library, maker: str
) -> FeatureRows:
    """Those of some videos whose features are remembered."""
    known: dict[int, tuple[NDArray[np.float32], tuple[Clip, ...]]] = {}
    broken: list[tuple[int, str]] = []
    for number in numbers:
        video = catalog[number]
        try:
            found = library.features(video.path, maker=_maker_of(video, maker))
            if found is not None:
                known[number] = found, _timed_clips(video, settings, library)
        except VideoError as error:
            broken.append((number, error.reason))
    shape = (len(known), settings.num_clips, encoder.config.backbone_spec.feature_dim)
    features = np.array([rows for rows, _ in known.values()], np.float32).reshape(shape)
    clips = tuple(clips for _, clips in known.values())
    return FeatureRows(
        tuple(known), torch.from_numpy(features), clips, is_computed=False, broken=tuple(broken)
    )


def _timed_clips(video: Video, settings: ClipSettings, library: Library) -> tuple[Clip, ...]:
    """The clips that the features are of."""
    index = library.index(video.path)
    seconds, end = index.frame_seconds, index.duration_seconds
    shown = frames_of(video, index)
    return tuple(
        Clip.timed(video.id, frames + shown.start, frame_seconds=seconds, duration_seconds=end)
        for frames in uniform_clips(len(shown), num_clips=settings.num_clips, spec=settings.spec)
    )


def _maker_of(video: Video, maker: str) -> str:
    """What is known of a file under; of each part of it by itself."""
    return maker if video.span is None else f"{maker} {video.span[0]:g}-{video.span[1]:g}"


def check_any(num_read: int, catalog: Catalog, broken: dict[str, str]) -> None:
    """Refuse to go on with nothing."""
    if not num_read:
        raise TooManyBrokenError(f"Not one of {len(catalog)} videos can be read: {_reasons(broken)}")


def _check_share(broken: dict[str, str], catalog: Catalog, max_broken_share: float) -> None:
    if len(broken) > max_broken_share * len(catalog):
        raise TooManyBrokenError(
            f"{len(broken)} of {len(catalog)} videos cannot be read, more than the share of "
            f"{max_broken_share:g} that was allowed: {_reasons(broken)}. Run `provico scan` and use its "
            "manifest, or raise --max-broken-share."
        )


def _reasons(broken: dict[str, str]) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in list(broken.items())[:_NUM_NAMED])


def maker_name(encoder: Encoder, settings: ClipSettings) -> str:
    """Names all that the features of a file depend on besides the file."""
    config = encoder.config
    values = {
        "version": VERSION,
        "backbone": config.backbone,
        "input": dataclasses.asdict(config.input),
        "frozen": None if config.frozen is None else dataclasses.asdict(config.frozen),
        "num_clips": settings.num_clips,
        "short_side": settings.short_side,
    }
    if not config.backbone_spec.is_frozen:
        values["weights"] = weights_hash(encoder.backbone.state_dict())
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    return f"{config.backbone} {digest[:16]}"
