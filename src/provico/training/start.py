"""Initialisation of an encoder from data: the scale of its features, or its batch statistics.

For a frozen network that suffices to be used without training: `untrained_encoder`.
"""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from provico.data.catalog import Catalog
from provico.data.library import Library
from provico.data.loader import ClipLoader
from provico.defaults import DIM, MAX_BROKEN_SHARE, TEST_CLIPS
from provico.embedding.clips import clip_settings
from provico.embedding.features import clip_features
from provico.errors import ConfigError
from provico.models.backbones.registry import find_backbone
from provico.models.encoder import Encoder
from provico.models.encoder_config import EncoderConfig
from provico.models.heads import MeanHead
from provico.progress import Progress, silent
from provico.training import variance

SETTLING_VIDEOS, SETTLING_ROUNDS = 64, 4
"""Number of videos and of passes for the batch statistics of an untrained encoder."""


def start_heads(encoder: Encoder, features: Float[Tensor, "videos clips feature"]) -> None:
    """Fit the heads of a frozen network to its features.

    Features are standardised. A mean head of one layer starts with their principal axes.
    """
    means = features.mean(dim=1)
    encoder.head.standardisation.fit(means, blocks=encoder.config.backbone_spec.feature_blocks)
    standardised = encoder.head.standardisation(features.to(encoder.device))
    if encoder.config.hidden_dim is None:
        mean = encoder.head.mean
        assert isinstance(mean, MeanHead)
        mean.start_at_principal_axes(standardised.mean(dim=1))


def untrained_encoder(
    backbone: str,
    catalog: Catalog,
    *,
    dim: int = DIM,
    num_clips: int = TEST_CLIPS,
    short_side: int | None = None,
    num_workers: int = 0,
    device: torch.device | str | None = None,
    max_broken_share: float = MAX_BROKEN_SHARE,
    num_looks: int | None = None,
    seed: int = 0,
    library: Library | None = None,
    progress: Progress = silent,
) -> Encoder:
    """An encoder for these videos on a frozen network, without pretraining.

    Its means are the softly whitened principal axes of the collection. Its variance and its match curve come
    from the same videos, without labels, as at the end of a run (`learn_variance`).

    num_clips, short_side: as for an index, which then finds the features of these videos in the cache.
    num_looks: clips that are corrupted to fit the damage; 0 for a quick first encoder.
    """
    if not find_backbone(backbone).is_frozen:
        raise ConfigError(
            f"{backbone} is a network that must be trained first. Run `provico pretrain VIDEOS "
            f"--backbone {backbone}`, or name a frozen network such as efficientnet_motion."
        )
    torch.manual_seed(seed)
    encoder = Encoder(EncoderConfig.for_backbone(backbone, dim=dim)).eval()
    found = clip_features(
        encoder if device is None else encoder.to(device),
        catalog,
        num_clips=num_clips,
        short_side=short_side,
        num_workers=num_workers,
        max_broken_share=max_broken_share,
        library=library,
        progress=progress,
    )
    if len(found.catalog) < 2:
        raise ConfigError(
            f"{catalog.root} has {len(found.catalog)} videos that can be read, but principal axes need at "
            "least 2. Give more videos."
        )
    start_heads(encoder, found.features)
    encoder.head.log_var.start_alike()
    encoder.config = dataclasses.replace(encoder.config, untrained_on=len(found.catalog))
    # Fewer clips are corrupted for a small collection, so that this takes less time than embedding it.
    if num_looks is None:
        num_looks = min(variance.NUM_LOOKS, 2 * len(found.catalog))
    return variance.learn_variance(
        encoder,
        found.catalog,
        features=found.features,
        num_looks=num_looks,
        seed=seed,
        num_workers=num_workers,
        library=library,
    )


@torch.no_grad()
def settle_batch_norm(encoder: Encoder, catalog: Catalog) -> None:
    """Set the running batch statistics of an untrained encoder from some clips.

    Without this an untrained network is needlessly bad, which flatters whatever is compared with it.
    """
    if encoder.config.backbone_spec.is_frozen:
        return
    loader = ClipLoader(
        catalog.subset(range(0, len(catalog), max(1, len(catalog) // SETTLING_VIDEOS))),
        clip_settings(encoder.config, num_clips=2),
        batch_size=min(16, len(catalog)),
        max_broken_share=1.0,
    )
    was_training = encoder.training
    encoder.train()
    for _ in range(SETTLING_ROUNDS):
        for batch in loader:
            if len(batch):
                encoder(batch.pixels.to(encoder.device))
    encoder.train(was_training)
