"""How far a clip is from what was seen in training: the one thing a head cannot learn from features.

A head is a smooth function of its features, so it has a variance for every place in their space, also for
those in which no training video ever was; there its answer is a matter of chance. Distances to landmarks that
lie where the training videos lie grow in all directions that lead away from them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from provico.k_means import k_means

_VIDEOS_OF_A_LANDMARK = 4  # at least, on average: a landmark that is one video knows it by heart
_FLOOR = 1e-6  # of the squared distance of two directions, below which float32 has no digits left


class Landmarks(nn.Module):
    """The logarithm of the squared distance to the nearest landmark, in units of its spread in training.

    Features are compared by direction alone, as means are. As built, all landmarks lie at the origin and no
    clip is farther than another; nothing here is learnt by descent.
    """

    places: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(self, feature_dim: int, num_landmarks: int) -> None:
        super().__init__()
        self.register_buffer("places", torch.zeros(num_landmarks, feature_dim))
        self.register_buffer("shift", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))

    @torch.no_grad()
    def fit(self, features: Float[Tensor, "videos clips feature"]) -> None:
        """Put the landmarks where these videos lie. Fewer are distinct if the videos are few."""
        videos = F.normalize(features.mean(dim=1), dim=-1).double().cpu().numpy()
        distinct = max(1, min(len(self.places), len(videos) // _VIDEOS_OF_A_LANDMARK))
        centres = torch.from_numpy(k_means(videos, distinct).centres)
        self.places.copy_(centres[torch.arange(len(self.places)) % len(centres)])
        scale, shift = torch.std_mean(self._log_distance(features.to(self.places)), correction=0)
        self.shift.copy_(shift)
        self.scale.copy_(scale if scale > 0 else torch.ones_like(scale))

    def forward(self, features: Float[Tensor, "*batch feature"]) -> Float[Tensor, "*batch 1"]:
        """How far each feature vector is from all landmarks: 0 is usual, 1 a standard deviation farther."""
        return (self._log_distance(features) - self.shift) / self.scale

    def _log_distance(self, features: Float[Tensor, "*batch feature"]) -> Float[Tensor, "*batch 1"]:
        direction = F.normalize(features, dim=-1)
        # |x - c|^2 by a matrix product: the differences themselves would be as many as clips times landmarks.
        squared = (
            direction.square().sum(dim=-1, keepdim=True)
            + self.places.square().sum(dim=-1)
            - 2 * direction @ self.places.T
        )
        return squared.amin(dim=-1, keepdim=True).clamp(min=_FLOOR).log()
