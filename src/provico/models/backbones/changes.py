"""Features of appearance and of change, from the maps of any network.

An image network describes each frame. How its maps change from frame to frame is a crude measure of motion,
which is worth a lot without training (docs/log.md, `efficientnet.MiddleLayers`). Both are separate blocks of
features, so that neither dominates the other.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from provico.errors import ConfigError
from provico.models.backbones.efficientnet import STILL
from provico.models.backbones.frozen import FrozenSpec
from provico.models.pixels import InputSpec

NOTHING = 0.1
"""Changes that are smaller than this, as a share of the mean ones, are rounding."""
Maps = Float[Tensor, "clips steps places channels"]


class LookAndChange(nn.Module):
    """A network from clips to pooled features and the direction of change of the maps over time."""

    sees_pictures = False
    """Whether it sees each frame by itself, so that it can be shown a single one."""

    @abstractmethod
    def look(
        self, clips: Float[Tensor, "clips time 3 height width"]
    ) -> tuple[Float[Tensor, "clips feature"], Maps | None]:
        """Pooled features of each clip, and its maps at each step in time if the network has any."""

    def parts(self, clips: Float[Tensor, "clips 3 time height width"]) -> list[Tensor]:
        """The blocks of features: one, or two if there are maps of several steps."""
        pooled, maps = self.look(clips.transpose(1, 2))
        if maps is None or maps.shape[1] < 2:
            return [pooled]
        return [pooled, change(maps)]

    def forward(self, clips: Float[Tensor, "clips 3 time height width"]) -> Float[Tensor, "clips feature"]:
        """All blocks, concatenated."""
        return torch.cat(self.parts(clips), dim=1)


def change(maps: Maps) -> Float[Tensor, "clips channels"]:
    """The direction of the mean absolute change over positions and pairs of neighbouring steps."""
    moved = (maps[:, 1:] - maps[:, :-1]).abs().mean(dim=(1, 2))
    return F.normalize(moved, dim=1, eps=STILL)


def with_usual_change(features: Tensor, usual: Float[Tensor, "feature"], blocks: Sequence[int]) -> Tensor:
    """Features "*clips feature" of a single picture, of which it is not known what changes.

    A block of changes is zero where nothing does. The mean of the videos that were learnt from takes its
    place: so a picture is compared by what it looks like, and is not taken for a video that stands still.
    """
    parts = zip(torch.split(features, list(blocks), dim=-1), torch.split(usual, list(blocks)), strict=True)
    return torch.cat(
        [
            torch.where(part.norm(dim=-1, keepdim=True) < NOTHING * mean.norm(), mean, part)
            for part, mean in parts
        ],
        dim=-1,
    )


def over_frames(pooled: Float[Tensor, "frames feature"], clips: Tensor) -> Float[Tensor, "clips feature"]:
    """The mean over the frames of each clip."""
    # Not len(), which would make the number constant in an export.
    return pooled.view(clips.shape[0], -1, pooled.shape[-1]).mean(dim=1)


def as_maps(found: Tensor, clips: Tensor) -> Maps:
    """Maps from the tokens (frames, places, channels) or maps (frames, channels, height, width) of frames."""
    tokens = found.flatten(2).transpose(1, 2) if found.ndim == 4 else found
    return tokens.reshape(clips.shape[0], -1, *tokens.shape[1:])


@torch.no_grad()
def probe_blocks(network: LookAndChange, clips: InputSpec, *, called: str, takes: str) -> FrozenSpec:
    """Find the number of features of a network by a forward pass; refuse clips that it cannot take.

    called, takes: the network and its expected clips, for the error.
    """
    pixels = torch.zeros(2, 3, clips.num_frames, clips.size, clips.size)
    try:
        blocks = tuple(part.shape[1] for part in network.parts(pixels))
    except Exception as error:  # third-party code may raise anything
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"{called} cannot take clips of {clips.num_frames} frames of {clips.size} x {clips.size} pixels "
            f"({type(error).__name__}: {reason}). It expects {takes}. Leave out --num-frames and --size, or "
            "give those."
        ) from error
    return FrozenSpec(feature_dim=sum(blocks), blocks=blocks if len(blocks) > 1 else None)
