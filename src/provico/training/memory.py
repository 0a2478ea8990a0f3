"""The latest embeddings of all training videos, for mining if a batch is too small to rank in.

A video is seen once per epoch, with different clips each time. The memory holds the moment-matched Gaussian
of all of them, with more weight on newer ones, since the encoder has changed since the older ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from provico.probability import Gaussian, Mixture

OLD_SHARE = 0.5
"""The weight of the clips of earlier epochs relative to the newest."""


@dataclass(frozen=True)
class Remembered:
    """All videos seen so far, and the positions of a batch's videos among them."""

    everyone: Gaussian
    """[all, dim]"""
    place: Int[Tensor, "videos"]
    """The rows of the batch's videos."""

    @property
    def batch(self) -> Gaussian:
        """The videos of the batch."""
        return self.everyone[self.place]


class VideoMemory:
    """A Gaussian per video, one row each, without gradients."""

    def __init__(self, num_videos: int, dim: int, *, device: torch.device | None = None) -> None:
        self._mean = torch.zeros(num_videos, dim, device=device)
        self._log_var = torch.zeros(num_videos, dim, device=device)
        self.is_seen = torch.zeros(num_videos, dtype=torch.bool, device=device)
        """Whether there is a row for the video."""

    @torch.no_grad()
    def see(self, indices: Int[Tensor, "videos"], videos: Mixture) -> Remembered:
        """Store the videos of a step, and return all videos seen so far."""
        new = videos.moment_matched
        old = Gaussian(self._mean[indices], self._log_var[indices])
        old_share = OLD_SHARE * self.is_seen[indices].unsqueeze(1)
        gap = new.mean - old.mean
        # The variance of a mixture of two, as a sum without cancellation.
        within = old_share * old.var + (1 - old_share) * new.var
        between = old_share * (1 - old_share) * gap.square()
        self._mean[indices] = old.mean + (1 - old_share) * gap
        self._log_var[indices] = (within + between).log()
        self.is_seen[indices] = True
        place = self.is_seen.cumsum(dim=0)[indices] - 1
        return Remembered(self.everyone, place)

    @property
    def everyone(self) -> Gaussian:
        """All videos seen so far."""
        return Gaussian(self._mean[self.is_seen], self._log_var[self.is_seen])

    def state_dict(self) -> dict[str, Tensor]:
        """The state of the memory."""
        return {"mean": self._mean, "log_var": self._log_var, "is_seen": self.is_seen}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore such a state."""
        for name, own in self.state_dict().items():
            own.copy_(state[name])
