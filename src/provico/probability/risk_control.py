"""Selective answers with a guaranteed error rate: a threshold from a few judged queries.

Each query has a confidence; queries below a threshold are not answered. For each threshold, the null
hypothesis is that more than `max_error` of the answered queries are wrong. A small binomial tail rejects it:
if the error rate were `max_error`, so few errors among the judged queries would be improbable,

    p = P(Binomial(n, max_error) <= errors) <= delta.

Thresholds are tested in descending order, up to the first that cannot be rejected (fixed sequence testing).
So with probability 1 - delta no accepted threshold errs more often than allowed, however many were tried:
this is Learn then Test (Angelopoulos et al., 2021) with exact binomial tails.

Clips of one recording have correlated errors, so **a recording counts once**: by one of its answered queries,
drawn at random. Outcomes are then independent whatever the size of recordings, and the tail is exact.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from provico.errors import ConfigError

DELTA = 0.05
"""The probability that a guarantee fails, over the draw of the judged queries."""
NUM_LEVELS = 20
"""Number of tested thresholds; each answers a twentieth more of the queries."""
HEADROOM, LEAST_EXPECTED = 2.5, 20
"""The first threshold must have at least this many expected recordings above it: 2.5 times as many as are
needed if all answers are right, so that some errors do not stop the test, and no fewer than 20."""


@dataclass(frozen=True, kw_only=True)
class RiskControl:
    """A threshold above which errors are rare, and the evidence."""

    threshold: float
    """Queries of at least this confidence are answered."""
    share: float
    """The share of the eligible queries that are answered."""
    num_recordings: int
    """Independent outcomes in the test at this threshold ..."""
    num_wrong: int
    """... and how many of them were wrong."""
    max_error: float
    delta: float


@dataclass(frozen=True, eq=False)
class Levels:
    """Thresholds to test, fixed before any outcome is known."""

    thresholds: Float[Tensor, "levels"]
    """Descending."""
    shares: Float[Tensor, "levels"]
    """The expected share of draws at or above each threshold."""

    def __post_init__(self) -> None:
        if self.thresholds.shape != self.shares.shape or not len(self.thresholds):
            raise ValueError("Each threshold needs one share, and at least one threshold is needed.")
        if bool((self.thresholds.diff() > 0).any()) or bool((self.shares.diff() < 0).any()):
            raise ValueError("Thresholds must be descending and shares ascending.")

    @classmethod
    def of(cls, confidence: Float[Tensor, "queries"], *, num_levels: int = NUM_LEVELS) -> Levels:
        """Quantiles of the confidences of all eligible queries, in descending order."""
        ordered = confidence.double().sort(descending=True).values
        steps = torch.arange(1, num_levels + 1, dtype=torch.float64) / num_levels
        thresholds = torch.unique(ordered[(steps * len(ordered)).ceil().long() - 1]).flip(0)
        shares = (ordered[:, None] >= thresholds[None]).double().mean(dim=0)
        return cls(thresholds, shares)


def binomial_tail(num_wrong: int, count: int, rate: float) -> float:
    """P(Binomial(count, rate) <= num_wrong), summed in log space."""
    if not (0 <= num_wrong <= count and 0 < rate < 1):
        raise ValueError(f"{num_wrong} of {count} at the rate {rate} is not a binomial tail.")
    terms = [
        math.lgamma(count + 1)
        - math.lgamma(wrong + 1)
        - math.lgamma(count - wrong + 1)
        + wrong * math.log(rate)
        + (count - wrong) * math.log1p(-rate)
        for wrong in range(num_wrong + 1)
    ]
    largest = max(terms)
    return min(1.0, math.exp(largest) * sum(math.exp(term - largest) for term in terms))


def fewest_judgements(max_error: float, delta: float = DELTA) -> int:
    """The fewest recordings that must be judged, all right, for any guarantee."""
    check_max_error(max_error)
    return math.ceil(round(math.log(delta) / math.log1p(-max_error), 9))


def check_max_error(max_error: float) -> None:
    """Raise ConfigError unless the value is a share between 0 and 1."""
    if not 0 < max_error < 1:
        raise ConfigError(
            f"--max-error is {max_error:g}, but it must be between 0 and 1, such as 0.1: at most one answer "
            "in ten is wrong."
        )


def control_risk(
    confidence: Float[Tensor, "judged"],
    is_wrong: Bool[Tensor, "judged"],
    recordings: Sequence[Hashable],
    *,
    levels: Levels,
    max_error: float,
    delta: float = DELTA,
) -> RiskControl | None:
    """The lowest threshold at which at most `max_error` of the answered queries are wrong, or None.

    The guarantee holds with probability 1 - delta over the draw of the judged queries, for queries of
    recordings drawn in the same way, with each recording counting once.

    recordings: the recording of each judged query; queries of one recording are not independent.
    levels: thresholds that were fixed before any outcome was known.
    """
    check_max_error(max_error)
    if not len(confidence) == len(is_wrong) == len(recordings):
        raise ValueError("Each judged query needs a confidence, an outcome and a recording.")
    # In a reproducible order that is unrelated to confidence and outcome.
    lots = [
        hashlib.blake2b(f"{recording} {number}".encode(errors="surrogateescape")).digest()
        for number, recording in enumerate(recordings)
    ]
    order = sorted(range(len(recordings)), key=lots.__getitem__)
    index_of: dict[Hashable, int] = {}
    member = np.array([index_of.setdefault(recordings[number], len(index_of)) for number in order], np.int64)
    values, wrong = confidence.double().numpy()[order], is_wrong.numpy()[order]
    num_recordings = len(index_of)
    needed = fewest_judgements(max_error, delta)
    # The start depends only on the number of recordings, never on outcomes.
    expected = max(HEADROOM * needed, LEAST_EXPECTED)
    enough = (num_recordings * levels.shares >= expected).nonzero().flatten()
    first = int(enough[0]) if len(enough) else len(levels.thresholds) - 1
    found = None
    for level in range(first, len(levels.thresholds)):
        threshold, share = float(levels.thresholds[level]), float(levels.shares[level])
        answered = values >= threshold
        _, drawn = np.unique(member[answered], return_index=True)  # the first of each recording
        num_wrong = int(wrong[answered][drawn].sum())
        if binomial_tail(num_wrong, len(drawn), max_error) > delta:
            break
        found = RiskControl(
            threshold=threshold,
            share=share,
            num_recordings=len(drawn),
            num_wrong=num_wrong,
            max_error=max_error,
            delta=delta,
        )
    return found
