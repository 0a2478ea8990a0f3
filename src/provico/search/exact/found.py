"""What a search finds: the best videos with their scores, and the certificate that no other is better."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

FLOAT64_UNIT = 2.0**-52
WHOLE = -1
"""Stands for all of a video, where a segment of it could be named."""

Number = TypeVar("Number", float, Tensor)


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """Whether the best videos are proved to be the best, and what that took."""

    is_exact: bool
    ceiling: float
    """No video that was not scored has a log match probability, or a score of another metric, above this."""
    num_allowed: int
    """Videos that could have been found, and segments of long ones."""
    num_scored: int
    """Videos that were compared in full: whose K x K pairs of samples were looked at."""
    num_bounded: int
    """Videos that were near enough to need a bound of their own."""

    @classmethod
    def of_scan(cls, num_allowed: int) -> Certificate:
        """For a search that compares with every video."""
        return cls(
            is_exact=True, ceiling=-math.inf, num_allowed=num_allowed, num_scored=num_allowed, num_bounded=0
        )


@dataclass(frozen=True, eq=False)
class TopK:
    """The best videos for one query, and what is known of all others."""

    rows: Int[Tensor, "found"]
    """Into the gallery, the best first; of equal scores the one earlier in the gallery."""
    scores: Float[Tensor, "found"]
    """log p of each, or its similarity by another metric, in float64."""
    certificate: Certificate
    parts: Int[Tensor, "found"] | None = None
    """Which segment of each matches best (`search/segments.py`), or `WHOLE`; None if all are whole."""

    @property
    def segments(self) -> Int[Tensor, "found"]:
        """`parts`, where none are given too."""
        return torch.full_like(self.rows, WHOLE) if self.parts is None else self.parts

    def best(self, num: int) -> TopK:
        """The first of them."""
        return TopK(self.rows[:num], self.scores[:num], self.certificate, self.segments[:num])

    @classmethod
    def nothing(cls) -> TopK:
        """The best of no videos."""
        empty = torch.empty(0, dtype=torch.float64)
        return cls(empty.long(), empty, Certificate.of_scan(0))


@dataclass(frozen=True, eq=False)
class Owners:
    """What the videos of a gallery are parts of, where only the best part of each counts."""

    of: Int[Tensor, "videos"]
    """The number of the owner of each."""
    known: Float[Tensor, "owners"]
    """The log p that an owner has without its parts; -inf if that is not known."""


def rounding(log_probability: Number, *, dim: int, offset: float) -> Number:
    """How far log p may be off: by the rounding of its logit, times 1 - p where that is small."""
    size = abs(log_probability)
    logit = 1 + 2 * offset + size
    return (dim + 64) * FLOAT64_UNIT * logit * size / (1 + size)


def in_order(
    scores: Float[Tensor, "found"], places: Int[Tensor, "found"], rounding: Callable[[Tensor], Tensor]
) -> tuple[Int[Tensor, "found"], Float[Tensor, "found"]]:
    """From the best to the worst: which, and their scores.

    Scores that rounding cannot tell apart are one tie, in the order of places, with the score of its first.
    """
    sorted_scores, order = scores.sort(descending=True)
    is_below = sorted_scores[:-1] - sorted_scores[1:] > rounding(sorted_scores[1:])
    tie = torch.cat([is_below.new_zeros(1), is_below]).cumsum(0)[: len(scores)]
    in_ties = (tie * (int(places.max()) + 1 if len(places) else 1) + places[order]).argsort()
    return order[in_ties], sorted_scores[torch.searchsorted(tie, tie[in_ties])]
