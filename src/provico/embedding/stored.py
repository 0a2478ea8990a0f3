"""Stored features in place of videos: a catalog of the layout `features` represents the rows of a file.

Encoders of stored features have heads and no network. They take only such catalogs, and other encoders do not
take these.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from provico.data.catalog import Catalog, Video
from provico.data.clips import Clips
from provico.data.feature_file import FeatureFile
from provico.data.layouts.own import FEATURES_LAYOUT
from provico.errors import ConfigError
from provico.files import Signature
from provico.models.backbones.frozen import FrozenSpec
from provico.models.backbones.registry import FEATURES
from provico.models.encoder import Encoder


def stored_spec(catalog: Catalog) -> FrozenSpec | None:
    """The specification of stored features; None for a catalog of videos."""
    if catalog.layout != FEATURES_LAYOUT:
        return None
    file = _load(catalog)
    return FrozenSpec(feature_dim=file.features.shape[2], blocks=file.blocks)


def stored_clips(catalog: Catalog) -> int | None:
    """Number of stored clips per video; None for a catalog of videos."""
    return None if catalog.layout != FEATURES_LAYOUT else _load(catalog).features.shape[1]


def usable_clips(catalog: Catalog, num_clips: int) -> int:
    """The number of clips per video, limited to the stored ones."""
    return min(num_clips, stored_clips(catalog) or num_clips)


def check_features_fit(encoder: Encoder, catalog: Catalog) -> None:
    """Refuse videos for an encoder of features, and features for an encoder of videos."""
    is_stored, takes_stored = catalog.layout == FEATURES_LAYOUT, encoder.config.backbone == FEATURES
    if takes_stored and not is_stored:
        raise ConfigError(
            f"The encoder was trained on stored features and has no network for the videos in "
            f"{catalog.root}. Give it a file of features (.npz or .safetensors)."
        )
    if is_stored and not takes_stored:
        raise ConfigError(
            f"{catalog.root} holds features, but the encoder takes videos, with {encoder.config.backbone}. "
            "Give it videos, or train one on features: provico pretrain FEATURES.npz"
        )
    if is_stored and (dim := _load(catalog).features.shape[2]) != encoder.head.feature_dim:
        raise ConfigError(
            f"{catalog.root} has {dim} features per clip, but the encoder was trained on "
            f"{encoder.head.feature_dim}. Give it features of the same network."
        )


def stored_features(catalog: Catalog, num_clips: int) -> Float[Tensor, "videos clips feature"]:
    """The features of evenly spaced clips of each video, in the order of the catalog."""
    features = _load(catalog).of([video.id for video in catalog])
    chosen = np.linspace(0, features.shape[1] - 1, num_clips).round().astype(np.int64)
    return features[:, torch.from_numpy(chosen)]


def untimed_clips(video: Video, num_clips: int) -> Clips:
    """Clips without known times."""
    return Clips(video.id, np.empty((num_clips, 0), np.int64), np.full((num_clips, 2), np.nan))


def _load(catalog: Catalog) -> FeatureFile:
    return _load_once(catalog.root, Signature.of(catalog.root))


@lru_cache(maxsize=2)
def _load_once(path: Path, signature: Signature) -> FeatureFile:
    """Read once per process, unless the file changes."""
    return FeatureFile.load(path)
