"""How sure a number is that was measured on groups of videos: what would others have given?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor


@dataclass(frozen=True)
class Interval:
    """A number, and between which two it falls in 95 % of redrawn sets."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, redrawn: Sequence[float]) -> Interval:
        """From the values on redrawn sets; those that are nan, where nothing can be said, are left out."""
        known = [one for one in redrawn if one == one]
        if not known:
            return cls(value, float("nan"), float("nan"))
        low, high = np.quantile(known, [0.025, 0.975])
        return cls(value, float(low), float(high))

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def redrawn_sets(
    groups: Sequence[str | None], *, num_resamples: int, seed: int = 0
) -> list[Int[Tensor, "some"]]:
    """Numbers of the videos of as many groups as there are, drawn with repetition; whole groups, since the
    videos of a group succeed or fail together. A video without a group is one by itself.
    """
    members: dict[str | int, list[int]] = {}
    for number, group in enumerate(groups):
        members.setdefault(number if group is None else group, []).append(number)
    parts = [torch.tensor(part) for part in members.values()]
    rng = np.random.default_rng(seed)
    return [
        torch.cat([parts[place] for place in rng.integers(len(parts), size=len(parts))])
        for _ in range(num_resamples)
    ]
