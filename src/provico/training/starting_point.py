"""The encoder that a run starts with: built from its settings, and perhaps with weights of an earlier run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from provico.config import ModelSettings
from provico.data.catalog import Catalog
from provico.data.loader import ClipLoader
from provico.errors import WeightsError
from provico.features import clip_settings
from provico.models.backbones import find_backbone
from provico.models.encoder import CONFIG_NAME, WEIGHTS_NAME, Encoder
from provico.models.encoder_config import EncoderConfig
from provico.models.frozen import FrozenSpec
from provico.models.weights import read_weights
from provico.training.checkpoint import checkpoints, load_checkpoint


def build_encoder(model: ModelSettings) -> Encoder:
    """A new encoder, its weights drawn from torch's random numbers."""
    frozen = None if model.feature_dim is None else FrozenSpec(feature_dim=model.feature_dim)
    given = {
        name: value
        for name in ("size", "num_frames", "frame_step", "motion")
        if (value := getattr(model, name)) is not None
    }
    config = EncoderConfig.for_backbone(
        model.backbone,
        dim=model.dim,
        parametrisation=model.parametrisation,
        hidden_dim=model.hidden_dim,
        log_var_hidden_dim=model.log_var_hidden_dim,
        input=dataclasses.replace(find_backbone(model.backbone, frozen=frozen).input, **given),
        frozen=frozen,
    )
    return Encoder(config)


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


def load_starting_point(encoder: Encoder, path: Path) -> None:
    """Take the weights of an encoder folder, a run folder (finished or not) or a checkpoint file."""
    if path.is_file():
        encoder.load_own_state_dict(load_checkpoint(path)["trainer"]["encoder"], source=path)
    elif (path / "encoder" / CONFIG_NAME).is_file():
        load_starting_point(encoder, path / "encoder")
    elif (path / WEIGHTS_NAME).is_file():
        weights = read_weights(path / WEIGHTS_NAME)
        encoder.load_own_state_dict(weights, source=path / WEIGHTS_NAME)
    elif found := checkpoints(path / "checkpoints"):
        load_starting_point(encoder, found[-1])
    else:
        raise WeightsError(
            f"{path} is neither an encoder, nor a run with a checkpoint, nor a checkpoint. Name the folder "
            "that `provico pretrain` wrote."
        )
