"""The samples of a gallery as codes of eight bits, made of those videos that are asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from provico.search.exact.clouds import SAMPLE_MARGIN, Spread
from provico.search.exact.rounded import Rounded, taken

CODES_KEPT = 2**29
"""Up to so many codes (512 MB) are kept once they are made."""
VIDEOS_AT_ONCE = 2048
"""Videos whose samples are held in float64 at once."""


@dataclass(frozen=True, eq=False)
class Deviations:
    """The deviations v_k of samples from their mean, of some videos."""

    rounded: Rounded
    offsets: Float[Tensor, "videos samples"]
    """|v_k|^2 + 2 mean . v_k, less their mean over k, in units of the scale of the codes."""
    most: Float[Tensor, "videos"]
    """The largest of these, as it is."""

    def __getitem__(self, some: slice | Int[Tensor, "some"]) -> Deviations:
        return Deviations(self.rounded[some], taken(self.offsets, some, 0), taken(self.most, some, 0))

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """All of it."""
        return *self.rounded.parts, self.offsets, self.most

    @classmethod
    def of(cls, samples: Float[Tensor, "videos samples dim"]) -> Deviations:
        """From samples in float64, about the centre of a gallery."""
        mean = samples.mean(dim=1, keepdim=True)
        deviations = samples - mean
        offsets = (deviations * (deviations + 2 * mean)).sum(dim=2)
        offsets = offsets - offsets.mean(dim=1, keepdim=True)
        rounded = Rounded.of(deviations.float())
        most = offsets.abs().amax(dim=1)
        return cls(rounded, (offsets / rounded.scale.double().unsqueeze(1)).float(), most.float())


def cross_std(deviations: Float[Tensor, "videos samples dim"], *, moved: float) -> Float[Tensor, "videos"]:
    """At least the fourth root of the mean of (v_k . v_l)^2 over all k and l, in float32.

    deviations: in float64; moved: how far each may be from where it will be found.
    """
    num_samples, dim = deviations.shape[1:]
    few = num_samples <= dim
    products = deviations @ deviations.mT if few else deviations.mT @ deviations
    root = products.square().sum(dim=(1, 2)).sqrt().sqrt() / math.sqrt(num_samples)
    return (root * (1 + 2.0**-20) + moved).float()


class SampleCodes:
    """Deviations of all videos of a gallery.

    samples: gives the samples of some; centre: of the gallery; origin: the length of the longest sample.
    """

    def __init__(
        self,
        spread: Spread,
        centre: Float[Tensor, "dim"],
        samples: Callable[[Int[Tensor, "some"]], Float[Tensor, "some samples dim"]],
        *,
        origin: float,
    ) -> None:
        self._centre, self._samples, self._moved = centre, samples, 4 * SAMPLE_MARGIN * origin
        self._is_made = torch.zeros(len(spread), dtype=torch.bool)
        most = (spread.axis_std * spread.mean_square.sqrt()).sqrt() * (1 + 2.0**-20)
        self._cross_std = (most + self._moved).float()
        self._kept: Deviations | None = None

    def cross_std(self, videos: slice | Int[Tensor, "some"]) -> Float[Tensor, "some"]:
        """What the function of this name says of some videos; more until they are coded."""
        return taken(self._cross_std, videos, 0)

    def of(self, videos: slice | Int[Tensor, "some"]) -> Deviations:
        """The deviations of some videos."""
        if not bool(self._is_made[videos].all()):
            if isinstance(videos, slice):
                videos = torch.arange(videos.start, videos.stop)
            for part in torch.split(videos[~self._is_made[videos]], VIDEOS_AT_ONCE):
                made = self._make(part)
                if len(self._is_made) * made.rounded.codes[0].numel() > CODES_KEPT:
                    return self._make(videos)
                self._keep(part, made)
        assert self._kept is not None
        return self._kept[videos]

    def _make(self, videos: Int[Tensor, "some"]) -> Deviations:
        samples = self._samples(videos).double() - self._centre
        deviations = samples - samples.mean(dim=1, keepdim=True)
        self._cross_std[videos] = cross_std(deviations, moved=self._moved)
        return Deviations.of(samples)

    def _keep(self, videos: Int[Tensor, "some"], made: Deviations) -> None:
        if self._kept is None:
            empty = [one.new_empty(len(self._is_made), *one.shape[1:]) for one in made.parts]
            self._kept = Deviations(Rounded(*empty[:-2]), *empty[-2:])
        for kept, new in zip(self._kept.parts, made.parts, strict=True):
            kept[videos] = new
        self._is_made[videos] = True
