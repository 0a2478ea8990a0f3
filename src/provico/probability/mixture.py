"""The video distribution p(z|V) = 1/N sum_n N(mu_n, diag(sigma_n^2)), an even mixture of its clips.

Its variance has two parts with different meanings, which are kept apart: `within`, the mean clip variance
(each clip is ambiguous), and `between`, the spread of the clip means (the clips show different things). The
paper samples from the Gaussian with the same mean and variance. The alternative is to sample from the mixture
itself, where no sample falls between two clips that disagree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from provico.display import table
from provico.probability.gaussian import Gaussian

_ROWS_SHOWN = 10  # in a notebook


@dataclass(frozen=True)
class MixtureSamples:
    """K samples of each video, and the clip of each sample."""

    samples: Float[Tensor, "*videos samples dim"]
    clip: Int[Tensor, "*videos samples"]


@dataclass(frozen=True)
class Mixture:
    """Videos as even mixtures of their clips; the clips lie on the axis before the last.

    Derived values are not cached: one first computed without gradients, as in mining, would stay so.
    """

    clips: Gaussian

    def __post_init__(self) -> None:
        if self.clips.mean.ndim < 2 or self.num_clips == 0:
            raise ValueError(
                f"The clip means have shape {tuple(self.clips.mean.shape)}, but a mixture needs at least one "
                "clip on the axis before the last. Give clips shaped (videos, clips, dim)."
            )

    def __getitem__(self, rows: Tensor) -> Mixture:
        """A part of the videos."""
        return Mixture(self.clips[rows])

    def _repr_html_(self) -> str:
        """Uncertainty and disagreement of the first videos, for notebooks."""
        unsure, differing = self.uncertainty.reshape(-1), self.disagreement.reshape(-1)
        shown = zip(unsure[:_ROWS_SHOWN].tolist(), differing[:_ROWS_SHOWN].tolist(), strict=True)
        rows = [(str(row), f"{one:.3g}", f"{other:.3g}") for row, (one, other) in enumerate(shown)]
        dim = self.clips.mean.shape[-1]
        caption = f"{len(unsure):,} mixtures of {self.num_clips} Gaussians in {dim} dimensions"
        return table(("video", "uncertainty", "disagreement"), rows, caption=caption)

    @property
    def num_clips(self) -> int:
        """N, the number of clips of each video."""
        return self.clips.mean.shape[-2]

    @property
    def mean(self) -> Float[Tensor, "*videos dim"]:
        """mu_V = 1/N sum_n mu_n (the 1/N, absent from the paper's main text, is in its appendix)."""
        return self.clips.mean.mean(dim=-2)

    @property
    def within(self) -> Float[Tensor, "*videos dim"]:
        """Mean clip variance: how ambiguous each clip is."""
        return self.clips.var.mean(dim=-2)

    @property
    def between(self) -> Float[Tensor, "*videos dim"]:
        """Spread of the clip means: how much the clips disagree."""
        return (self.clips.mean - self.mean.unsqueeze(-2)).square().mean(dim=-2)

    @property
    def moment_matched(self) -> Gaussian:
        """The Gaussian with the mixture's mean and variance (law of total variance, eq. A3).

        sigma_V^2 = within + between. The form in the appendix, mean(sigma_n^2 + mu_n^2) - mu_V^2, is equal
        but subtracts two large numbers. The sum is formed in log space, so that a single clip keeps its exact
        log-variance and tiny variances do not underflow.
        """
        return Gaussian(self.mean, self._log_within + self._log_growth)

    @property
    def uncertainty(self) -> Float[Tensor, "*videos"]:
        """The encoder's uncertainty of each video, to sort by: the geometric mean over its clips.

        In an arithmetic mean, one damaged clip would outweigh nine others.
        """
        return self.clips.log_uncertainty.mean(dim=-1).exp()

    @property
    def total_uncertainty(self) -> Float[Tensor, "*videos"]:
        """The paper's number, `uncertainty` + `disagreement`: the geometric mean of `within + between`."""
        return self.moment_matched.uncertainty

    @property
    def disagreement(self) -> Float[Tensor, "*videos"]:
        """The uncertainty added by the differences between clips; zero if all clips agree."""
        # Not the difference of two values, which are nearly equal if clips nearly agree.
        log_var = self.clips.log_var
        above = (log_var - log_var.mean(dim=-2, keepdim=True)).exp().mean(dim=-2).log()
        # At least zero by Jensen's inequality, which rounding can break.
        return self.uncertainty * torch.expm1((above + self._log_growth).mean(dim=-1).clamp(min=0))

    @property
    def departure(self) -> Float[Tensor, "*videos clips"]:
        """Mean squared deviation of each clip's mean from that of its video, over the coordinates."""
        return (self.clips.mean - self.mean.unsqueeze(-2)).square().mean(dim=-1)

    @property
    def _log_within(self) -> Float[Tensor, "*videos dim"]:
        return torch.logsumexp(self.clips.log_var, dim=-2) - math.log(self.num_clips)

    @property
    def _log_growth(self) -> Float[Tensor, "*videos dim"]:
        """log (within + between) / within."""
        # From deviations in units of the clips' own spread: squaring first would have a gradient of
        # 1 / within, which overflows for clips that are certain and agree.
        unit = torch.exp(-0.5 * self._log_within).unsqueeze(-2)
        deviation = (self.clips.mean - self.mean.unsqueeze(-2)) * unit
        return torch.log1p(deviation.square().mean(dim=-2))

    def sample_clips(self, num_samples: int, *, generator: torch.Generator | None = None) -> MixtureSamples:
        """K samples of the mixture itself: choose a clip, then sample its Gaussian.

        Samples are distributed over the clips as evenly as K allows (the remainder goes to random clips),
        which has the mean of independent choices with less noise. The choice does not depend on the network,
        so the gradient through the chosen Gaussian is the whole gradient.
        """
        videos = self.clips.mean.shape[:-2]
        device = self.clips.mean.device
        # Each round of N samples visits every clip once, in a new order.
        rounds = -(-num_samples // self.num_clips)
        keys = torch.rand((*videos, rounds, self.num_clips), generator=generator, device=device)
        clip = keys.argsort(dim=-1).flatten(-2)[..., :num_samples]
        index = clip.unsqueeze(-1).expand(*clip.shape, self.clips.dim)
        chosen = Gaussian(self.clips.mean.gather(-2, index), self.clips.log_var.gather(-2, index))
        return MixtureSamples(chosen.sample(1, generator=generator).squeeze(-2), clip)
