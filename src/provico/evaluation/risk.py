"""Does doubt predict errors? If the most doubtful answers are withheld, fewer of the rest should be wrong.

The risk at coverage i / n is the share of errors among the i answers of least doubt. AURC, the area under
that curve, is its mean over all i. It is least where all errors have more doubt than all right answers; the
excess over that least is zero for perfect doubt, whatever the number of errors. Of answers with equal doubt
none is before another: the risk is that of a random order of them, on average.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def risk_coverage(
    doubt: Float[Tensor, "queries"], correct: Bool[Tensor, "queries"]
) -> Float[Tensor, "queries"]:
    """The risk at coverages 1/n, 2/n, ..., 1."""
    if doubt.shape != correct.shape or not len(doubt) or bool(doubt.isnan().any()):
        raise ValueError(
            "There must be one number of doubt, not nan, for each query, and at least one query."
        )
    _, place, count = torch.unique(doubt, return_inverse=True, return_counts=True)
    errors = torch.zeros(len(count), dtype=torch.float64).index_add(0, place, (~correct).double())
    # Among equal doubts, each of the first few is wrong with the share of errors of all of them.
    expected = (errors / count).repeat_interleave(count).cumsum(0)
    counts = torch.arange(1, len(doubt) + 1, dtype=torch.float64)
    return torch.div(expected, counts)


def aurc(doubt: Float[Tensor, "queries"], correct: Bool[Tensor, "queries"]) -> float:
    """Area under the risk-coverage curve."""
    return float(risk_coverage(doubt, correct).mean())


def excess_aurc(doubt: Float[Tensor, "queries"], correct: Bool[Tensor, "queries"]) -> float:
    """How far the area is from the least that any doubt could reach."""
    return aurc(doubt, correct) - aurc((~correct).double(), correct)
