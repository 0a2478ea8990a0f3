"""The units of the embedding: length of the means, initial variance, parameters of the match curve.

The paper states none of these, and the loss has two basins: if the noise of a sample, whose squared norm is
about D sigma^2, dominates the distance between means, nothing is learnt. What matters is not sigma^2 but the
*relative* noise D sigma^2 / |mu|^2, so settings are stored in that unit and converted for a given D here.
`docs/decisions/0003-embedding-scale.md` has the evidence for the default.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Parametrisation:
    """One consistent choice of units, from which the values for each embedding size D follow."""

    mean_length: Literal["unit", "sqrt_dim"]
    """The norm to which means are scaled: 1, or sqrt(D) so that each coordinate is of order one."""

    mean_factor: float = 1.0
    """A factor on that norm. The loss settles at a variance of about 0.1 to 1 whatever the norm, so longer
    means have less relative noise."""

    variance_unit: Literal["absolute", "relative"]
    """`relative`: variances below are multiples of |mu|^2 / D; `absolute`: they are absolute values."""

    initial_variance: float
    """Initial variance of the head, in the unit above."""

    variance_bounds: tuple[float, float]
    """Lowest and highest variance that the head can predict, in the unit above."""

    curve_slope: float
    """a times the norm of the mean: how steeply the match probability falls with distance."""

    curve_offset: float
    """b: the logit of the match probability at distance zero."""

    sigmoid_scale: float = 1.0
    """1 for the logistic sigmoid of the paper; 2 for the doubled one in the code of PCME."""

    def mean_norm(self, dim: int) -> float:
        """The norm |mu| to which the head scales the mean of a clip."""
        return self.mean_factor * (math.sqrt(dim) if self.mean_length == "sqrt_dim" else 1.0)

    def initial_log_var(self, dim: int) -> float:
        """The initial bias of the log-variance head."""
        return self._log_var(self.initial_variance, dim)

    def log_var_bounds(self, dim: int) -> tuple[float, float]:
        """The lowest and highest log-variance that the head can predict."""
        low, high = self.variance_bounds
        return self._log_var(low, dim), self._log_var(high, dim)

    def initial_a(self, dim: int) -> float:
        """The initial slope a of the match curve, per unit of distance."""
        return self.curve_slope / self.mean_norm(dim)

    def initial_b(self, dim: int) -> float:
        """The initial offset b of the match curve. It is a logit, so it does not depend on D."""
        return self.curve_offset

    def _log_var(self, variance: float, dim: int) -> float:
        unit = self.mean_norm(dim) ** 2 / dim if self.variance_unit == "relative" else 1.0
        return math.log(variance * unit)


# Every coordinate is of order one, like the unit-Gaussian prior, so that the printed constants (tau = 0.15,
# lambda = 1/(4D), the weight 1/(4 sigma_i^2 sigma_j^2)) have their intended meaning.
_SQRT_DIM = Parametrisation(
    mean_length="sqrt_dim",
    variance_unit="relative",
    initial_variance=math.exp(-2.0),
    variance_bounds=(1e-3, math.exp(2.0)),
    curve_slope=12.0,
    curve_offset=8.0,
)

PARAMETRISATIONS: dict[str, Parametrisation] = {
    "sqrt_dim": _SQRT_DIM,  # the default
    # Means three times as long, a ninth of the relative noise.
    "long": replace(_SQRT_DIM, mean_factor=3.0, initial_variance=0.015),
    # A match curve that reaches further: p = 1/2 at a cosine of 0.41, not 0.78.
    "wide": replace(_SQRT_DIM, curve_offset=13.0),
}
"""Every parametrisation by name."""
