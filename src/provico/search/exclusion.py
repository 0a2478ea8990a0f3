"""What a query may not find: itself, or all that was cut from the same recording. Every search asks here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool
from numpy.typing import NDArray
from torch import Tensor

Exclusion = Literal["nothing", "video", "group"]
"""What a query may not find: `video` is itself; `group` is also what was cut from the same recording."""


@dataclass(frozen=True)
class Barred:
    """What one query may not find."""

    rows: tuple[int, ...]
    """The videos of the gallery that the query is, or is a part of."""
    group: str | None
    """A recording; None bars none, for videos without a group do not make one."""

    @classmethod
    def of(cls, exclude_same: Exclusion, *, rows: Sequence[int], group: str | None) -> Barred:
        """For a query that is in these rows of the gallery, if any, and was cut from this recording."""
        return cls(
            rows=() if exclude_same == "nothing" else tuple(rows),
            group=group if exclude_same == "group" else None,
        )

    def mask(self, groups: NDArray[np.object_]) -> Bool[Tensor, "videos"]:
        """Which videos of a gallery these are, from the recording of each."""
        mask = torch.zeros(len(groups), dtype=torch.bool)
        if self.group is not None:
            mask |= torch.from_numpy(np.asarray(groups == self.group, bool))
        mask[list(self.rows)] = True
        return mask
