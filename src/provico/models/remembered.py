"""The memory of videos for comparisons: their views, their kinds and the usual values."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from provico.k_means import k_means
from provico.models.heads import soft_whitening

NUM_AXES = 32
"""Principal axes of a view that are compared; 24 to 48 perform equally well (docs/log.md)."""
NUM_NEAREST = 10
"""Nearest remembered videos whose kinds are compared."""
DIVISIONS = (4, 6, 8, 12, 16, 24) * 3
"""Numbers of kinds into which the memory is divided; each is repeated. Divisions with fewer than three videos
per kind are left out."""
FEW, ENOUGH = 100, 200
"""Kinds are ignored below the first number of videos and have full weight from the second (docs/log.md)."""


class View(nn.Module):
    """One view of videos, and the remembered videos in that view."""

    centre: Tensor
    axes: Tensor
    memory: Tensor
    length: Tensor
    null_mean: Tensor
    null_std: Tensor

    def __init__(self, feature_dim: int, num_videos: int) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(feature_dim))
        self.register_buffer("axes", torch.zeros(NUM_AXES, feature_dim))
        self.register_buffer("memory", torch.zeros(num_videos, NUM_AXES))
        self.register_buffer("length", torch.ones(num_videos))
        self.register_buffer("null_mean", torch.zeros(num_videos))
        self.register_buffer("null_std", torch.ones(num_videos))

    @torch.no_grad()
    def remember(self, videos: Float[Tensor, "videos feature"]) -> None:
        """Fit the memory, and the view's axes: the softly whitened principal axes of these videos."""
        centre = videos.double().mean(dim=0)
        axes = soft_whitening(videos.double() - centre)[:NUM_AXES]
        self.centre.copy_(centre)
        self.axes.zero_()
        self.axes[: len(axes)] = axes
        self.memory.copy_(self(videos))
        self.length.copy_(self.coordinates(videos).norm(dim=1))

    @torch.no_grad()
    def fit_nulls(self, are_strangers: Bool[Tensor, "videos videos"]) -> None:
        """Fit the distribution of each remembered video's similarities to other recordings."""
        similarity = (self.memory @ self.memory.T).double()
        count = are_strangers.sum(dim=1).clamp(min=1)
        mean = (similarity * are_strangers).sum(dim=1) / count
        var = ((similarity - mean.unsqueeze(1)).square() * are_strangers).sum(dim=1) / count
        self.null_mean.copy_(mean)
        self.null_std.copy_(_positive(var.sqrt()))

    def forward(self, videos: Float[Tensor, "*batch feature"]) -> Float[Tensor, "*batch axes"]:
        """The direction of a video on the axes of the view."""
        return F.normalize(self.coordinates(videos), dim=-1)

    def coordinates(self, videos: Float[Tensor, "*batch feature"]) -> Float[Tensor, "*batch axes"]:
        """The coordinates of a video on the axes of the view."""
        return (videos - self.centre) @ self.axes.T

    def distances(self, videos: Float[Tensor, "*batch feature"]) -> Float[Tensor, "*batch videos"]:
        """The distance to each remembered video."""
        here, there = self.coordinates(videos), self.length.unsqueeze(1) * self.memory
        squared = here.square().sum(dim=-1, keepdim=True) + self.length.square() - 2 * here @ there.T
        return squared.clamp(min=0).sqrt()

    def surprise(self, similarity: Float[Tensor, "*batch videos"]) -> Float[Tensor, "*batch videos"]:
        """How surprising each similarity is, for the query and for the remembered video."""
        if not similarity.numel():  # no video, no spread
            return similarity
        std, mean = torch.std_mean(similarity, dim=-1, correction=0, keepdim=True)
        return 0.5 * ((similarity - mean) / _positive(std) + (similarity - self.null_mean) / self.null_std)


class Kinds(nn.Module):
    """The kinds of the remembered videos, by each of several divisions into clusters.

    weight: how much kinds count, by the number of videos.
    """

    kind: Tensor

    def __init__(self, num_videos: int) -> None:
        super().__init__()
        self.register_buffer("kind", torch.zeros(len(DIVISIONS), num_videos, dtype=torch.int64))
        self.weight = min(max((num_videos - FEW) / (ENOUGH - FEW), 0.0), 1.0)

    @torch.no_grad()
    def remember(self, directions: Float[Tensor, "videos dim"]) -> None:
        """Cluster these videos several times."""
        points = directions.double().cpu().numpy()
        for row, num_kinds in enumerate(DIVISIONS):
            if 3 * num_kinds <= len(points):
                self.kind[row] = torch.from_numpy(k_means(points, num_kinds, seed=row).members)

    def forward(self, similarity: Float[Tensor, "*videos memory"]) -> Float[Tensor, "*videos"]:
        """The entropy of the kinds of the nearest videos: 0 for one kind, at most 1; nan without any.

        similarity: to each remembered video; -inf for those that are ignored.
        """
        found = similarity.topk(min(NUM_NEAREST, similarity.shape[-1]), dim=-1)
        is_known = (found.values > -math.inf).unsqueeze(-1)
        kinds = F.one_hot(self.kind[:, found.indices], max(DIVISIONS)) * is_known
        share = kinds.sum(dim=-2) / is_known.sum(dim=-2).clamp(min=1)
        entropy = torch.special.entr(share).sum(dim=-1)
        scale = torch.tensor(DIVISIONS, device=entropy.device).log()
        disunity: Tensor = (entropy / scale.view(-1, *[1] * (entropy.ndim - 1))).mean(dim=0)
        return disunity.masked_fill(~is_known[..., 0, 0], math.nan)


class Usual(nn.Module):
    """The usual value of a quantity, and how many standard deviations others are above it."""

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("std", torch.ones(()))

    @torch.no_grad()
    def fit(self, values: Float[Tensor, "videos"]) -> None:
        """Fit to the values that are not nan."""
        known = values[values.isfinite()]
        if len(known) > 1:
            std, mean = torch.std_mean(known, correction=0)
            self.mean.copy_(mean)
            self.std.copy_(_positive(std))

    def forward(self, values: Float[Tensor, "*videos"]) -> Float[Tensor, "*videos"]:
        """Standard deviations above the usual value; 0 for nan."""
        return (torch.where(values.isfinite(), values, self.mean) - self.mean) / self.std


def _positive(std: Tensor) -> Tensor:
    """A standard deviation to divide by; 1 if nothing varies."""
    return torch.where(std > 1e-6, std, torch.ones_like(std))
