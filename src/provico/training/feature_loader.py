"""Batches of stored features: what `ClipLoader` is for pixels.

Each video has some stored clips; a step sees a random choice of them, which follows from the seed, the epoch
and the video.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provico.data.batch_order import BatchOrder
from provico.errors import VideoError

_STREAM = 2  # what a random stream is for, so that no two share their numbers


@dataclass(frozen=True)
class FeatureBatch:
    """Some videos with the features of the same number of clips each."""

    features: Tensor
    """float32 "videos clips feature"."""
    videos: Tensor
    """int64 "videos": numbers into the catalog."""

    def __len__(self) -> int:
        return len(self.videos)


class FeatureLoader:
    """Iterate over it once per epoch; each iteration goes on from `state_dict`'s place."""

    def __init__(
        self,
        features: Tensor,
        *,
        num_clips: int,
        batch_size: int,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.broken: dict[int, VideoError] = {}
        """Always empty: a video without features never gets here."""
        self.wait_seconds = 0.0
        self._features, self._num_clips, self._seed = features, num_clips, seed
        self._order = BatchOrder(
            len(features), batch_size=batch_size, seed=seed, rank=rank, world_size=world_size
        )

    def __len__(self) -> int:
        """Batches in a whole epoch."""
        return self._order.num_batches

    @property
    def epoch(self) -> int:
        """The epoch that the next batch belongs to."""
        return self._order.epoch

    def __iter__(self) -> Iterator[FeatureBatch]:
        num_stored = self._features.shape[1]
        # One draw for all videos: an epoch's choice does not depend on the batches or the processes.
        rng = np.random.default_rng([self._seed, _STREAM, self._order.epoch])
        keys = rng.random((len(self._features), num_stored))
        chosen = torch.from_numpy(keys.argsort(axis=1)[:, : self._num_clips])
        for numbers in self._order:
            videos = torch.from_numpy(numbers)
            features = self._features[videos.unsqueeze(1), chosen[videos]]
            self._order.advance()
            yield FeatureBatch(features, videos)
        self._order.end_epoch()

    def state_dict(self) -> dict[str, Any]:
        """The place of the next batch, as plain numbers and words."""
        return self._order.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a place that `state_dict` gave; refused if the order of the batches is another one."""
        self._order.load_state_dict(state)
