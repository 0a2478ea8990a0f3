"""Made-up videos for benchmarks/search.py: as many as wanted, shaped like real ones, some at a time.

    like real   mixtures of two real videos of a class, with noise, each in one of many turned copies of space
    loose       the same with so much noise that few videos are close
    outliers    the gallery of "like real", asked by queries that have no relatives in it
    sphere      means on the unit sphere in classes: cloud radius, its log-deviation, a, b, number of classes

A chunk of videos depends on its number alone, so that no more than one has to be in memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from provico.probability import Gaussian, MatchCurve

VIDEOS_A_CHUNK = 2048
VIDEOS_A_WORLD = 1000
"""On average; each world is a turned copy of space, so that classes do not fill up as a gallery grows."""
QUERY_CHUNK = 10**6
"""The chunks from here on are queries."""
OUTLIER_WORLD = 10**6


@dataclass(frozen=True)
class Real:
    """What made-up videos are made of."""

    clips: Gaussian
    """ "videos clips dim"."""
    labels: Tensor
    curve: MatchCurve


@dataclass(frozen=True)
class Kind:
    """How much of another video of its class is in each video, how much noise, and whether queries fit in."""

    mix: float = 0.3
    noise: float = 0.3
    has_relatives: bool = True


KINDS = {"like real": Kind(), "loose": Kind(mix=1.0, noise=1.0), "outliers": Kind(has_relatives=False)}

SPHERES = [
    (0.1, 0.3, 5, 5, 100), (0.3, 0.3, 5, 5, 100), (0.6, 0.3, 5, 5, 100), (1.0, 0.3, 5, 5, 100),
    (0.3, 0.3, 10, 5, 100), (0.3, 0.3, 20, 8, 100), (0.3, 0.3, 5, 5, 1), (0.3, 0.5, 5, 5, 1000),
    (0.3, 0.8, 10, 5, 100),
]  # fmt: skip


def chunk(real: Real, kind: Kind, number: int, size: int, *, num_videos: int) -> Gaussian:
    """The clips of the videos of one chunk of a gallery of so many videos, or of queries to it."""
    generator = torch.Generator().manual_seed(number)
    labels, dim = real.labels, real.clips.dim
    first = torch.randint(len(labels), (size,), generator=generator)
    # Another video of the same class: its class begins at `starts` in an order by class.
    by_class, counts = labels.argsort(stable=True), labels.bincount()
    starts, place = counts.cumsum(0) - counts, torch.rand(size, generator=generator)
    second = by_class[starts[labels[first]] + (place * counts[labels[first]]).long()]
    share = kind.mix * torch.rand(size, 1, 1, generator=generator)
    means = (1 - share) * real.clips.mean[first] + share * real.clips.mean[second]
    means = means + kind.noise * torch.randn(size, 1, dim, generator=generator)
    means = math.sqrt(dim) * F.normalize(means, dim=2)
    world = torch.randint(max(1, num_videos // VIDEOS_A_WORLD), (size,), generator=generator)
    if number >= QUERY_CHUNK and not kind.has_relatives:
        world = torch.full_like(world, OUTLIER_WORLD)
    for one in world.unique().tolist():
        means[world == one] = means[world == one] @ rotation(one, dim)
    wider = 0.3 * torch.randn(size, 1, 1, generator=generator)
    return Gaussian(means, real.clips.log_var[first] + wider)


def sphere(
    radius: float, hetero: float, a: float, b: float, classes: int, num: int, *, dim: int, num_samples: int
) -> tuple[Tensor, MatchCurve]:
    """Samples of so many videos, and the curve."""
    generator = torch.Generator().manual_seed(0)
    centres = F.normalize(torch.randn(classes, dim, generator=generator), dim=1)
    noise = 0.5 * torch.randn(num, dim, generator=generator) / math.sqrt(dim)
    means = F.normalize(centres[torch.randint(classes, (num,), generator=generator)] + noise, dim=1)
    widths = radius / math.sqrt(dim) * torch.exp(hetero * torch.randn(num, 1, 1, generator=generator))
    samples = means.unsqueeze(1) + widths * torch.randn(num, num_samples, dim, generator=generator)
    return samples, MatchCurve(torch.tensor(float(a)), torch.tensor(float(b)))


def rotation(seed: int, dim: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(dim, dim, generator=generator)).Q
