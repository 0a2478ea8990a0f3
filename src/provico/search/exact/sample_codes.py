"""The samples of a gallery as codes of eight bits, made of those videos that are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

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
    """|v_k|^2 + 2 mean . v_k, less their mean over k."""

    def __getitem__(self, some: slice | Int[Tensor, "some"]) -> Deviations:
        return Deviations(self.rounded[some], taken(self.offsets, some, 0))

    @classmethod
    def of(cls, samples: Float[Tensor, "videos samples dim"]) -> Deviations:
        """From samples in float64, about the centre of a gallery."""
        mean = samples.mean(dim=1, keepdim=True)
        deviations = samples - mean
        offsets = (deviations * (deviations + 2 * mean)).sum(dim=2)
        offsets = offsets - offsets.mean(dim=1, keepdim=True)
        return cls(Rounded.of(deviations.float()), offsets.float())


class SampleCodes:
    """Deviations of all videos of a gallery; `samples` gives the samples of some, `centre` its middle."""

    def __init__(
        self,
        num: int,
        centre: Float[Tensor, "dim"],
        samples: Callable[[Int[Tensor, "some"]], Float[Tensor, "some samples dim"]],
    ) -> None:
        self._centre, self._samples = centre, samples
        self._is_made = torch.zeros(num, dtype=torch.bool)
        self._kept: Deviations | None = None

    def are_made(self, videos: slice | Int[Tensor, "some"]) -> bool:
        """Whether the samples of some videos need not be looked at for their codes."""
        return bool(self._is_made[videos].all())

    def of(self, videos: slice | Int[Tensor, "some"]) -> Deviations:
        """The deviations of some videos."""
        if not self.are_made(videos):
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
        return Deviations.of(self._samples(videos).double() - self._centre)

    def _keep(self, videos: Int[Tensor, "some"], made: Deviations) -> None:
        if self._kept is None:
            num = len(self._is_made)
            empty = [one.new_empty(num, *one.shape[1:]) for one in made.rounded.parts]
            self._kept = Deviations(Rounded(*empty), made.offsets.new_empty(num, made.offsets.shape[1]))
        for kept, new in zip(
            (*self._kept.rounded.parts, self._kept.offsets), (*made.rounded.parts, made.offsets), strict=True
        ):
            kept[videos] = new
        self._is_made[videos] = True
