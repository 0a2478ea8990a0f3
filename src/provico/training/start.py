"""What an encoder is given before its first step: the units of its features, or the statistics of videos."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from provico.data.catalog import Catalog
from provico.data.loader import ClipLoader
from provico.embedding.clips import clip_settings
from provico.models.encoder import Encoder
from provico.models.heads import MeanHead


def start_heads(encoder: Encoder, features: Float[Tensor, "videos clips feature"]) -> None:
    """Fit the heads of a frozen network to its features.

    Their units become those of the features. A mean head of one layer starts as their principal axes.
    """
    means = features.mean(dim=1)
    encoder.head.standardisation.fit(means, blocks=encoder.config.backbone_spec.feature_blocks)
    standardised = encoder.head.standardisation(features.to(encoder.device))
    if encoder.config.hidden_dim is None:
        mean = encoder.head.mean
        assert isinstance(mean, MeanHead)
        mean.start_at_principal_axes(standardised.mean(dim=1))


@torch.no_grad()
def settle_batch_norm(
    encoder: Encoder, catalog: Catalog, *, num_videos: int = 64, num_rounds: int = 4
) -> None:
    """Show an untrained encoder some clips, so that its running statistics are those of videos.

    Without this an untrained network is worse than it need be, and whatever is compared with it looks better.
    """
    if encoder.config.backbone_spec.is_frozen:
        return
    loader = ClipLoader(
        catalog.subset(range(0, len(catalog), max(1, len(catalog) // num_videos))),
        clip_settings(encoder.config, num_clips=2),
        batch_size=min(16, len(catalog)),
        max_broken_share=1.0,
    )
    was_training = encoder.training
    encoder.train()
    for _ in range(num_rounds):
        for batch in loader:
            if len(batch):
                encoder(batch.pixels.to(encoder.device))
    encoder.train(was_training)
