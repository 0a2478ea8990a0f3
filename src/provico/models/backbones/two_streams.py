"""Two networks side by side: one is shown how a clip moves, the other what is in it.

A network that is shown frames can tell videos apart by their scenery and need not look at what moves. Kept
apart, each learns what it can, and they make different mistakes: two videos that look alike to both mostly
are.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class TwoStreams(nn.Module):
    """Features of the differences of neighbouring frames, then those of a few frames themselves."""

    def __init__(self, motion: nn.Module, scenery: nn.Module, *, scenery_step: int) -> None:
        super().__init__()
        self.motion = motion
        self.scenery = scenery
        self.scenery_step = scenery_step

    def forward(
        self, clips: Float[Tensor, "batch channels time height width"]
    ) -> Float[Tensor, "batch feature"]:
        """Both side by side. Scenery hardly changes within a clip, so one frame in several is enough."""
        moving = clips[:, :, 1:] - clips[:, :, :-1]
        still = clips[:, :, :: self.scenery_step].contiguous(memory_format=torch.channels_last_3d)
        return torch.cat([self.motion(moving), self.scenery(still)], dim=1)
