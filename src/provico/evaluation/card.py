"""The protocol card of an evaluation, from what was evaluated on what."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from provico.embedding.clips import clip_settings
from provico.evaluation.result import ProtocolCard
from provico.evaluation.sets import Sets
from provico.models.encoder import Encoder, encoder_hash


def make_card(
    protocol: str,
    encoder: Encoder,
    sets: Sets,
    *,
    num_failed: int,
    num_clips: int,
    seed: int,
    settings: dict[str, Any],
    short_side: int | None = None,
) -> ProtocolCard:
    """All that the numbers depend on; `settings` is what else the protocol was told."""
    config = encoder.config
    clips = clip_settings(config, num_clips=num_clips, short_side=short_side)
    together = len(sets.train) if sets.is_one else len(sets.train) + len(sets.test)
    num_read = together - num_failed
    return ProtocolCard(
        protocol=protocol,
        data=sets.test.root.name,
        layout=sets.test.layout,
        split=sets.name,
        num_classes=len({video.label for video in sets.test}),
        num_train=len(sets.train),
        num_test=len(sets.test),
        num_failed=num_failed,
        num_read=num_read,
        backbone=config.backbone,
        encoder=encoder_hash(encoder),
        dim=config.dim,
        num_clips=num_clips,
        num_frames=clips.spec.num_frames,
        frame_step=clips.spec.frame_step,
        short_side=clips.short_side,
        crop=f"centre {clips.crop_size} of {clips.short_side} pixels",
        seed=seed,
        settings=settings,
        version=version("provico"),
    )
