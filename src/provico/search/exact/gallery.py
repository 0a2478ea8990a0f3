"""The videos that are searched: middles and spreads in memory, samples wherever they are kept."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from provico.errors import ConfigError
from provico.search.exact.clouds import Spread, describe
from provico.search.exact.moments import Extents
from provico.search.exact.stage_one import BLOCK, FlatScan

Fetch = Callable[[Int[Tensor, "some"]], Float[Tensor, "some samples dim"]]
"""The samples of some videos, by their rows."""

NUM_GROUPS = 16
"""Videos are grouped by the width of their clouds, since wide ones match from further away."""
LONGEST = 1e15
"""Squares of longer samples would not fit into float32."""
LARGEST_DIM = 16_000
"""Up to here the rounding of stage 1 is bounded (lemma 6 of docs/exact-search.md)."""


class Gallery:
    """Videos, ready to be searched.

    mean, spread: what `describe` says of the samples of each video, which `fetch` gives again.
    """

    def __init__(self, mean: Float[Tensor, "videos dim"], spread: Spread, fetch: Fetch) -> None:
        is_usable = mean.isfinite().all(dim=1) & (spread.reach < LONGEST)
        if len(mean) == 0 or not bool(is_usable.all()):
            raise ConfigError(
                f"{int((~is_usable).sum())} of {len(mean)} videos have samples that are not finite or longer "
                f"than {LONGEST:g}. A gallery needs at least one video, and samples that float32 can compare."
            )
        if mean.shape[1] > LARGEST_DIM:
            raise ConfigError(
                f"The samples have {mean.shape[1]} coordinates, but exact search is proved for {LARGEST_DIM}."
            )
        self._fetch = fetch
        self.origin = float(spread.reach.max())
        self.centre = mean.double().mean(dim=0)
        # Within, videos are sorted: those with clouds of like width are next to each other.
        self.rows = spread.axis_std.argsort(stable=True)
        self.spread = spread[self.rows]
        blocks_per_group = -(-len(mean) // (NUM_GROUPS * BLOCK))
        self.extents = Extents.of_groups(self.spread, torch.arange(len(mean)) // (blocks_per_group * BLOCK))
        middles = (mean.double() - self.centre).float()[self.rows]
        self.scan = FlatScan(middles, self.spread.mean_square, blocks_per_group=blocks_per_group)

    @classmethod
    def of_samples(cls, samples: Float[Tensor, "videos samples dim"]) -> Gallery:
        """A gallery whose samples are all in memory."""
        samples = samples.float()
        return cls(*describe(samples), fetch=samples.__getitem__)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def dim(self) -> int:
        """D, the number of embedding coordinates."""
        return len(self.centre)

    def samples(self, indices: Int[Tensor, "some"]) -> Float[Tensor, "some samples dim"]:
        """The samples of some videos, by their indices in sorted order."""
        return self._fetch(self.rows[indices]).float()
