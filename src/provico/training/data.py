"""The batches of a run: clips of the videos, or stored features if the backbone is frozen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provico.config import PretrainConfig, ViewSettings
from provico.data.batch_order import BatchOrder
from provico.data.catalog import Catalog
from provico.data.frames.prepared import prepare
from provico.data.frames.stores import find_store
from provico.data.layouts.own import FEATURES_LAYOUT
from provico.data.library import Library
from provico.data.loader import ClipLoader
from provico.data.transforms import find_augmentation
from provico.defaults import TEST_CLIPS
from provico.embedding.clips import clip_settings
from provico.embedding.features import clip_features, reasons
from provico.embedding.stored import stored_clips
from provico.errors import ConfigError, VideoError
from provico.models.backbones.registry import FEATURES, find_backbone
from provico.models.encoder import Encoder
from provico.processes import Processes
from provico.progress import Progress

_STREAM = 2  # a separate random stream for each purpose


@dataclass(frozen=True)
class FeatureBatch:
    """Videos with features of the same number of clips each."""

    features: Tensor
    """float32 "videos clips feature"."""
    videos: Tensor
    """int64 "videos": indices into the catalog."""

    def __len__(self) -> int:
        return len(self.videos)


class FeatureLoader:
    """Batches of stored features. Iterate over it once per epoch; it continues after `load_state_dict`."""

    def __init__(
        self,
        features: Tensor,
        *,
        num_clips: int,
        batch_size: int,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.broken: dict[int, VideoError] = {}
        """Always empty: videos without features are excluded earlier."""
        self.wait_seconds = 0.0
        self._features, self._num_clips, self._seed = features, num_clips, seed
        self._order = BatchOrder(
            len(features), batch_size=batch_size, seed=seed, rank=rank, world_size=world_size
        )

    def __len__(self) -> int:
        """Number of batches per epoch."""
        return self._order.num_batches

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        return self._order.epoch

    def __iter__(self) -> Iterator[FeatureBatch]:
        num_stored = self._features.shape[1]
        # One draw for all videos: the clips of an epoch do not depend on batches or processes.
        rng = np.random.default_rng([self._seed, _STREAM, self._order.epoch])
        keys = rng.random((len(self._features), num_stored))
        chosen = torch.from_numpy(keys.argsort(axis=1)[:, : self._num_clips])
        for indices in self._order:
            videos = torch.from_numpy(indices)
            features = self._features[videos.unsqueeze(1), chosen[videos]]
            self._order.advance()
            yield FeatureBatch(features, videos)
        self._order.end_epoch()

    def state_dict(self) -> dict[str, Any]:
        """The position of the next batch, as plain values."""
        return self._order.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at a position from `state_dict`; refused if the order of the batches differs."""
        self._order.load_state_dict(state)


@dataclass(frozen=True)
class TrainingData:
    """Batches, their videos, and the unreadable videos."""

    loader: ClipLoader | FeatureLoader
    catalog: Catalog
    unreadable: dict[str, str]
    """Ids and reasons of the videos that were excluded from the start."""
    features: Tensor | None = None
    """Stored features "videos clips feature" of the catalog, if the backbone is frozen."""

    @property
    def broken(self) -> dict[str, str]:
        """Ids and reasons of all videos that could not be read so far."""
        met = {self.catalog[number].id: error.reason for number, error in self.loader.broken.items()}
        return self.unreadable | met


def check_views(views: ViewSettings) -> None:
    """Refuse names that are not registered, before any video is read."""
    find_augmentation(views.augmentation)
    if views.store != "none":
        find_store(views.store)


def settings_for(config: PretrainConfig, catalog: Catalog) -> PretrainConfig:
    """The settings, adapted to heads without a network if the data are stored features."""
    name = config.model.backbone
    if catalog.layout != FEATURES_LAYOUT or name == FEATURES:
        return config
    if not find_backbone(name).is_frozen:
        raise ConfigError(
            f"{catalog.root} holds features, from which only heads can be trained, but --backbone is {name}, "
            "which is trained from pixels. Use --recipe frozen, or give videos."
        )
    return dataclasses.replace(config, model=dataclasses.replace(config.model, backbone=FEATURES))


def open_training_data(
    catalog: Catalog,
    encoder: Encoder,
    config: PretrainConfig,
    processes: Processes,
    library: Library,
    announce: Callable[[str], None],
    progress: Progress,
) -> TrainingData:
    """Open the batches of a run, after computing what the run needs once."""
    views = config.views
    if encoder.config.backbone_spec.is_frozen:
        if views.augmentation != "none" or views.store != "none":
            raise ConfigError(
                f"The backbone {encoder.config.backbone} is frozen and its features are stored, so frames "
                "are neither augmented nor prepared. Use --augmentation none --store none."
            )
        # The first process computes what is not cached; the others then find it.
        for turn in (True, False):
            if processes.is_first == turn:
                found = clip_features(
                    encoder.to(processes.device),
                    catalog,
                    num_clips=stored_clips(catalog) or views.num_stored or max(views.num_clips, TEST_CLIPS),
                    short_side=encoder.config.short_side,
                    num_workers=processes.num_readers(config.run.num_workers),
                    max_broken_share=config.run.max_broken_share,
                    library=library,
                    progress=progress,
                )
            processes.wait()
        if stored_clips(catalog) is None:
            counts = f"{found.num_computed} computed, the rest from the cache"
            announce(f"Features of {len(found.catalog)} videos: {counts}.")
        elif found.features.shape[1] < views.num_clips:
            raise ConfigError(
                f"{catalog.root} has {found.features.shape[1]} clips of each video, but a step compares "
                f"{views.num_clips} of them. Store more clips, or lower --num-clips."
            )
        loader = FeatureLoader(
            found.features,
            num_clips=views.num_clips,
            batch_size=_batch_share(len(found.catalog), config.optimiser.batch_size, processes, announce),
            seed=config.run.seed,
            rank=processes.rank,
            world_size=processes.world_size,
        )
        return TrainingData(loader, found.catalog, reasons(found.broken), found.features)
    clips = open_clips(
        catalog,
        encoder,
        views,
        processes,
        batch_size=config.optimiser.batch_size,
        seed=config.run.seed,
        num_workers=config.run.num_workers,
        max_broken_share=config.run.max_broken_share,
        library=library,
        announce=announce,
        progress=progress,
    )
    return TrainingData(clips, catalog, {})


def open_clips(
    catalog: Catalog,
    encoder: Encoder,
    views: ViewSettings,
    processes: Processes,
    *,
    batch_size: int,
    seed: int,
    num_workers: int | None,
    max_broken_share: float,
    library: Library,
    announce: Callable[[str], None],
    progress: Progress,
    short_side: int | None = None,
) -> ClipLoader:
    """Random, augmented clips for training a whole network; frames are prepared first if requested."""
    settings = dataclasses.replace(
        clip_settings(encoder.config, num_clips=views.num_clips, short_side=short_side),
        sampling="random",
        augmentation=find_augmentation(views.augmentation),
    )
    if views.store != "none" and processes.is_first:
        prepare(
            catalog,
            library=library,
            store=views.store,
            short_side=settings.short_side,
            num_workers=num_workers,
            announce=announce,
            progress=progress,
        )
    processes.wait()
    return ClipLoader(
        catalog,
        settings,
        batch_size=_batch_share(len(catalog), batch_size, processes, announce),
        seed=seed,
        num_workers=processes.num_readers(num_workers),
        max_broken_share=max_broken_share,
        rank=processes.rank,
        world_size=processes.world_size,
        pin_memory=processes.device.type == "cuda",
        library=library,
    )


def _batch_share(num_videos: int, wanted: int, processes: Processes, announce: Callable[[str], None]) -> int:
    """This process's part of a batch, which is limited to the number of videos."""
    possible = num_videos // processes.world_size * processes.world_size
    if 2 <= possible < wanted:
        announce(f"A batch is {possible} videos instead of {wanted}, since there are only {num_videos}.")
        wanted = possible
    return processes.share_of(wanted)
