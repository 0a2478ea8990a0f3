"""The model card of an encoder: what it is, how it was made and how to use it."""

from __future__ import annotations

from provico.models.backbones.registry import FEATURES, IMPORT_PATH, is_local, source_of
from provico.models.encoder_config import EncoderConfig

CARD_NAME = "README.md"

_HEAD = """\
---
library_name: provico
pipeline_tag: feature-extraction
tags:
- video
- uncertainty
- retrieval
---
"""


def model_card(config: EncoderConfig, *, encoder_hash: str, place: str | None = None) -> str:
    """The text of README.md; `place` is its public name, such as hf:OWNER/NAME."""
    clips = config.input
    size = f"{clips.size} x {clips.size} pixels"
    rows = {
        "backbone": f"`{config.backbone}`{_frozen(config)}",
        "clips": f"{clips.num_frames} frames, every {clips.frame_step}, of {size}",
        "embedding": f"a Gaussian of {config.dim} coordinates for each clip",
        "training": config.training or "heads trained on videos without labels",
        "variance": _variance(config),
        "hash of the encoder": f"`{encoder_hash}`",
    }
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    return (
        f"{_HEAD}\n# A probabilistic video encoder\n\n"
        "It embeds a clip as a distribution, so that a search reports its uncertainty. It was made with "
        "ProViCo, after [Probabilistic Representations for Video Contrastive Learning]"
        "(https://arxiv.org/abs/2204.03946).\n\n"
        f"| | |\n|---|---|\n{table}\n\n{_use(config, place)}\n{_limits(config)}"
    )


def _frozen(config: EncoderConfig) -> str:
    if not config.backbone_spec.is_frozen:
        return ""
    return f", frozen, of hash `{config.network_hash}`"


def _variance(config: EncoderConfig) -> str:
    if config.num_remembered is None:
        return "that of the head" if config.untrained_on is None else "the same for all clips"
    return f"from support by {config.num_remembered:,} remembered videos, and from damage"


def _use(config: EncoderConfig, place: str | None) -> str:
    if config.backbone == FEATURES:
        return "It takes features from another network: `provico embed FEATURES.npz --checkpoint FOLDER`.\n"
    name = place or "FOLDER"
    return (
        "```python\nfrom provico import open_encoder\n\n"
        f'encoder = open_encoder("{name}")\nencoder.embed("video.mp4").mixture.mean\n```\n\n'
        f"```bash\nprovico index VIDEOS --checkpoint {name} --out index\n```\n"
    )


def _limits(config: EncoderConfig) -> str:
    limits = ["Match probabilities and variances are fitted to its training videos; check them on yours."]
    if config.backbone_spec.is_frozen and config.backbone != FEATURES:
        limits.append(
            "The weights of the backbone are not in this folder. They come from the source that its name "
            "states, under their own licence; different weights are refused."
        )
    if is_local(config.backbone) or source_of(config.backbone) == IMPORT_PATH:
        limits.append("That name is a local path: other machines need the same network at the same path.")
    return "## Limits\n" + "\n".join(f"- {limit}" for limit in limits) + "\n"
