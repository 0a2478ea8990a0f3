"""A video's K samples as a cloud: its middle, and a few numbers that say how far the samples reach from it.

Almost every video is dismissed by these alone, before one of its samples is looked at. They are taken in
float64 and rounded away from danger: a reach that is a hair too long costs nothing, one that is too short
would make a certificate false.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCK_ELEMENTS = 2**22
"""How many coordinates are held in float64 at once (32 MB)."""
RELATIVE_MARGIN = 2.0**-30
"""How far a reach is rounded up, as a share of itself: sums in float64 lose far less."""
SAMPLE_MARGIN = 2.0**-21
"""How far a sample may move, as a share of its length, if it is drawn again where rounding differs."""


@dataclass(frozen=True, eq=False)
class Spread:
    """How the samples z_k = mean + v_k of each video lie about their mean, in float64."""

    mean_square: Float[Tensor, "*videos"]
    """V, the mean of |v_k|^2."""
    square_std: Float[Tensor, "*videos"]
    """At least the standard deviation of |v_k|^2 over the samples."""
    axis_std: Float[Tensor, "*videos"]
    """At least the standard deviation of v_k along any one direction."""
    radius: Float[Tensor, "*videos"]
    """At least the largest |v_k|."""
    reach: Float[Tensor, "*videos"]
    """At least the largest |z_k| itself, which is the scale of its rounding."""

    def __len__(self) -> int:
        return len(self.radius)

    def __getitem__(self, rows: slice | tuple[slice | None, ...] | Int[Tensor, "some"]) -> Spread:
        return Spread(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    @classmethod
    def joined(cls, parts: Sequence[Spread]) -> Spread:
        """The spreads of several batches of videos as one."""
        return cls(
            **{field.name: torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls)}
        )


def describe(
    samples: Float[Tensor, "videos samples dim"],
) -> tuple[Float[Tensor, "videos dim"], Spread]:
    """The mean of each video's samples (not of the Gaussian they are from) in float64, and their spread."""
    size = max(1, BLOCK_ELEMENTS // max(1, samples.shape[1] * samples.shape[2]))
    parts = [_describe(part.double()) for part in torch.split(samples, size)]
    return torch.cat([mean for mean, _ in parts]), Spread.joined([spread for _, spread in parts])


def _describe(samples: Tensor) -> tuple[Tensor, Spread]:
    mean = samples.mean(dim=1)
    deviations = samples - mean.unsqueeze(1)
    squares = deviations.square().sum(dim=2)
    mean_square = squares.mean(dim=1)
    radius, reach = squares.amax(dim=1).sqrt(), samples.square().sum(dim=2).amax(dim=1).sqrt()
    # The covariance shares its largest eigenvalue with the matrix of products, which is K x K.
    few = samples.shape[1] <= samples.shape[2]
    products = deviations @ deviations.mT if few else deviations.mT @ deviations
    largest = torch.linalg.eigvalsh(products)[:, -1].clamp(min=0) / samples.shape[1]
    up, moved = 1 + RELATIVE_MARGIN, 2 * SAMPLE_MARGIN * reach  # a sample and the mean may move apart
    square_std = (squares - mean_square.unsqueeze(1)).square().mean(dim=1).sqrt()
    return mean, Spread(
        mean_square=mean_square,
        square_std=up * square_std + moved * (2 * radius + moved),
        axis_std=up * largest.sqrt() + moved,
        radius=up * radius + moved,
        reach=up * reach,
    )
