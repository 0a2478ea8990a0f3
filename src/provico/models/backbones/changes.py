"""What a clip looks like, and what changes in it: two kinds of features from maps of any network.

A network of images says what is on each frame. How its maps change from frame to frame is a crude measure of
motion, and worth a lot where nothing is trained (docs/log.md, `efficientnet.MiddleLayers`). Both stand side
by side as blocks, so that neither outweighs the other.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from provico.errors import ConfigError
from provico.models.backbones.efficientnet import STILL
from provico.models.backbones.frozen import FrozenSpec
from provico.models.pixels import InputSpec

Maps = Float[Tensor, "clips steps places channels"]


class LookAndChange(nn.Module):
    """Clips to features: the pooled ones, and the direction in which maps change from step to step."""

    @abstractmethod
    def look(
        self, clips: Float[Tensor, "clips time 3 height width"]
    ) -> tuple[Float[Tensor, "clips feature"], Maps | None]:
        """Pooled features of each clip, and its maps at each step in time, where there are some."""

    def parts(self, clips: Float[Tensor, "clips 3 time height width"]) -> list[Tensor]:
        """The blocks of features: one, or two where there are maps of several steps."""
        pooled, maps = self.look(clips.transpose(1, 2))
        if maps is None or maps.shape[1] < 2:
            return [pooled]
        return [pooled, change(maps)]

    def forward(self, clips: Float[Tensor, "clips 3 time height width"]) -> Float[Tensor, "clips feature"]:
        """All blocks side by side."""
        return torch.cat(self.parts(clips), dim=1)


def change(maps: Maps) -> Float[Tensor, "clips channels"]:
    """The direction of the mean size of changes, over places and pairs of neighbouring steps."""
    moved = (maps[:, 1:] - maps[:, :-1]).abs().mean(dim=(1, 2))
    return F.normalize(moved, dim=1, eps=STILL)


def over_frames(pooled: Float[Tensor, "frames feature"], clips: Tensor) -> Float[Tensor, "clips feature"]:
    """The mean over the frames of each of the clips."""
    # Not len(), which would fix their number when the network is exported.
    return pooled.view(clips.shape[0], -1, pooled.shape[-1]).mean(dim=1)


def as_maps(found: Tensor, clips: Tensor) -> Maps:
    """Tokens (frames, places, channels), or maps (frames, channels, height, width), of each frame."""
    tokens = found.flatten(2).transpose(1, 2) if found.ndim == 4 else found
    return tokens.reshape(clips.shape[0], -1, *tokens.shape[1:])


@torch.no_grad()
def probe_blocks(network: LookAndChange, clips: InputSpec, *, called: str, takes: str) -> FrozenSpec:
    """Find out by a forward pass how many features a network gives; refuse clips that it cannot take.

    called, takes: the network and the clips that it was made for, as an error names them.
    """
    pixels = torch.zeros(2, 3, clips.num_frames, clips.size, clips.size)
    try:
        blocks = tuple(part.shape[1] for part in network.parts(pixels))
    except Exception as error:  # whatever code of others may raise
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"{called} cannot take clips of {clips.num_frames} frames of {clips.size} x {clips.size} pixels "
            f"({type(error).__name__}: {reason}). It was made for {takes}. Leave out --num-frames and "
            "--size, or give those."
        ) from error
    return FrozenSpec(feature_dim=sum(blocks), blocks=blocks if len(blocks) > 1 else None)
