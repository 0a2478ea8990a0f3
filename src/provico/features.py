"""What a frozen network makes of videos, computed once and remembered.

Clips are evenly spaced and not augmented, so the features of a video depend on its file alone and can be used
by every later run, for training, evaluation and search.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from provico.data.catalog import Catalog
from provico.data.clips import ClipSpec
from provico.data.library import Library
from provico.data.loader import ClipLoader, ClipSettings
from provico.defaults import CROP_SIZE, SHORT_SIDE
from provico.errors import TooManyBrokenError, VideoError
from provico.models.encoder import Encoder
from provico.models.encoder_config import EncoderConfig
from provico.progress import Progress, silent

VIDEOS_AT_ONCE = 4
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


def clip_settings(config: EncoderConfig, *, num_clips: int, short_side: int | None = None) -> ClipSettings:
    """The clips that an encoder wants: evenly spaced, not augmented, frames of a size that fits its crop."""
    return ClipSettings(
        num_clips=num_clips,
        spec=ClipSpec(config.input.num_frames, config.input.frame_step),
        sampling="uniform",
        short_side=fitting_short_side(config) if short_side is None else short_side,
        crop_size=config.input.size,
    )


def fitting_short_side(config: EncoderConfig) -> int:
    """The frame size that goes with an encoder's crop: 128 for 112 pixels, and the same ratio for others.

    Frozen image networks see the whole height of a frame, as they did when they were trained.
    """
    size = config.input.size
    return size if config.backbone_spec.is_frozen else size * SHORT_SIDE // CROP_SIZE


def clip_features(
    encoder: Encoder,
    catalog: Catalog,
    *,
    num_clips: int,
    short_side: int | None = None,
    num_workers: int = 0,
    max_broken_share: float = 0.05,
    library: Library | None = None,
    progress: Progress = silent,
) -> ClipFeatures:
    """The features of evenly spaced clips of every video, from memory where they are known."""
    library = library or Library()
    settings = clip_settings(encoder.config, num_clips=num_clips, short_side=short_side)
    maker = maker_name(encoder, settings)
    known: dict[int, NDArray[np.float32]] = {}
    broken: dict[str, str] = {}
    for number, video in enumerate(catalog):
        try:
            found = library.features(video.path, maker=maker)
        except VideoError as error:
            broken[video.id] = error.reason
            continue
        if found is not None:
            known[number] = found
    _check_share(broken, catalog, max_broken_share)
    absent = [
        number for number, video in enumerate(catalog) if number not in known and video.id not in broken
    ]
    if absent:
        loader = ClipLoader(
            catalog.subset(absent),
            settings,
            batch_size=VIDEOS_AT_ONCE,
            shuffle=False,
            drop_last=False,
            num_workers=num_workers,
            max_broken_share=max_broken_share * len(catalog) / len(absent),
            library=library,
        )
        _compute(encoder, loader, absent, known, library, maker, progress)
        broken |= {loader.catalog[number].id: error.reason for number, error in loader.broken.items()}
    _check_share(broken, catalog, max_broken_share)
    readable = sorted(known)
    features = torch.from_numpy(np.stack([known[number] for number in readable]))
    num_computed = sum(number in known for number in absent)
    return ClipFeatures(features, catalog.subset(readable), broken, num_computed)


def _check_share(broken: dict[str, str], catalog: Catalog, max_broken_share: float) -> None:
    if len(broken) > max_broken_share * len(catalog) or len(broken) == len(catalog):
        named = "; ".join(f"{name}: {reason}" for name, reason in list(broken.items())[:_NUM_NAMED])
        raise TooManyBrokenError(
            f"{len(broken)} of {len(catalog)} videos cannot be read, more than the share of "
            f"{max_broken_share:g} that was allowed: {named}. Run `provico scan` and use its manifest, or "
            "raise --max-broken-share."
        )


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
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    return f"{config.backbone} {digest[:16]}"


@torch.inference_mode()
def _compute(
    encoder: Encoder,
    loader: ClipLoader,
    numbers: list[int],
    known: dict[int, NDArray[np.float32]],
    library: Library,
    maker: str,
    progress: Progress,
) -> None:
    device = encoder.device
    done = 0
    for batch in loader:
        if len(batch):
            clips = batch.pixels.shape[1]
            features = encoder.features(batch.pixels.flatten(0, 1).to(device)).float().cpu()
            for number, rows in zip(
                batch.videos.tolist(), features.view(-1, clips, features.shape[1]), strict=True
            ):
                known[numbers[number]] = rows.numpy()
                library.remember_features(loader.catalog[number].path, rows.numpy(), maker=maker)
        done += len(batch) + len(batch.broken)
        progress(done, len(numbers))
