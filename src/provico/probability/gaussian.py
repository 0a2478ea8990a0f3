"""The clip distribution p(z|c) = N(mu, diag(sigma^2)).

A clip is embedded not as a point but as a Gaussian: mu is its location, sigma^2 the encoder's uncertainty
along each axis. The encoder predicts log sigma^2, so `log_var` is stored; `var` and `std` are derived and
never stored, and nothing else is called sigma.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from provico.probability.precision import at_least_float32


@dataclass(frozen=True)
class Gaussian:
    """A batch of diagonal Gaussians; every leading axis is a batch axis.

    Half-precision inputs are converted to float32, so that everything is computed in full precision.
    """

    mean: Float[Tensor, "*batch dim"]
    log_var: Float[Tensor, "*batch dim"]

    def __post_init__(self) -> None:
        if self.mean.shape != self.log_var.shape or self.mean.ndim == 0:
            raise ValueError(
                f"The mean has shape {tuple(self.mean.shape)}, the log-variance {tuple(self.log_var.shape)}, "
                "but a Gaussian needs one log-variance for each coordinate of its mean. "
                "Give both the same shape, with the embedding axis last."
            )
        object.__setattr__(self, "mean", at_least_float32(self.mean))
        object.__setattr__(self, "log_var", at_least_float32(self.log_var))

    @classmethod
    def from_numpy(cls, mean: NDArray[np.floating[Any]], log_var: NDArray[np.floating[Any]]) -> Gaussian:
        """Gaussians from columns of a file or an index, without a copy."""
        return cls(torch.from_numpy(mean), torch.from_numpy(log_var))

    @classmethod
    def joined(cls, parts: Sequence[Gaussian]) -> Gaussian:
        """Concatenate batches along their first axis."""
        return cls(torch.cat([part.mean for part in parts]), torch.cat([part.log_var for part in parts]))

    def __getitem__(self, rows: Any) -> Gaussian:
        """A part of the batch, indexed like a tensor."""
        return Gaussian(self.mean[rows], self.log_var[rows])

    @property
    def dim(self) -> int:
        """D, the number of embedding coordinates."""
        return self.mean.shape[-1]

    @property
    def var(self) -> Float[Tensor, "*batch dim"]:
        """sigma^2, the variance of each coordinate."""
        return self.log_var.exp()

    @property
    def std(self) -> Float[Tensor, "*batch dim"]:
        """sigma, the standard deviation of each coordinate."""
        return (0.5 * self.log_var).exp()

    @property
    def log_uncertainty(self) -> Float[Tensor, "*batch"]:
        """Logarithm of the geometric mean of the variances: the scalar sigma^2 of eqs. (5) and (10)."""
        return self.log_var.mean(dim=-1)

    @property
    def uncertainty(self) -> Float[Tensor, "*batch"]:
        """Geometric mean of the variances: the encoder's uncertainty as one number."""
        return self.log_uncertainty.exp()

    def marginals(self, num_parts: int) -> tuple[Gaussian, ...]:
        """The marginals over consecutive, equally large blocks of coordinates."""
        means, log_vars = (values.chunk(num_parts, dim=-1) for values in (self.mean, self.log_var))
        return tuple(Gaussian(mean, log_var) for mean, log_var in zip(means, log_vars, strict=True))

    def kl_to_unit(self, *, mean_term: bool = True) -> Float[Tensor, "*batch"]:
        """KL(N(mu, sigma^2) || N(0, I)) = 1/2 sum_d (sigma^2 - log sigma^2 - 1 + mu^2).

        Without the mean term only the variance is regularised. A mean of fixed norm cannot follow the prior
        anyway, and in a mixture the term pushes the clip means apart, since that shortens their average.
        """
        # expm1(x) - x instead of exp(x) - x - 1: no cancellation for variances near one.
        terms = torch.expm1(self.log_var) - self.log_var
        if mean_term:
            terms = terms + self.mean.square()
        return 0.5 * terms.sum(dim=-1)

    def sample(
        self, num_samples: int, *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch samples dim"]:
        """K embeddings z = mu + sigma * epsilon (eq. 4), reparametrised, so differentiable."""
        shape = (*self.mean.shape[:-1], num_samples, self.dim)
        noise = torch.randn(shape, generator=generator, dtype=self.mean.dtype, device=self.mean.device)
        return self.mean.unsqueeze(-2) + self.std.unsqueeze(-2) * noise
