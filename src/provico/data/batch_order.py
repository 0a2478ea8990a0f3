"""The order of videos in the batches of an epoch, for one of several processes.

The order depends only on the seed and the epoch. Each process takes its part of every global batch, which is
the batch that a single process would use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provico.errors import ConfigError

_STREAM = 0  # a separate random stream for each purpose

_FLAGS = {"global batch size": "--batch-size", "seed": "--seed"}


class BatchOrder:
    """Iterates over the rest of an epoch; `epoch` and `next_batch` are its position."""

    def __init__(
        self,
        num_videos: int,
        *,
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = True,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if drop_last and num_videos < batch_size * world_size:
            raise ConfigError(
                f"There are {num_videos} videos, but one batch takes {batch_size * world_size}. Lower the "
                f"batch size to {max(1, num_videos // world_size) * world_size} or less, or add videos."
            )
        self.epoch = 0
        self.next_batch = 0
        self._seed, self._shuffle, self._num_videos = seed, shuffle, num_videos
        self._batch_size, self._rank, self._world_size = batch_size, rank, world_size
        whole, rest = divmod(num_videos, batch_size * world_size)
        self.num_batches = whole + (rest > 0 and not drop_last)

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        order: NDArray[np.int64] = np.arange(self._num_videos)
        if self._shuffle:
            order = np.random.default_rng([self._seed, _STREAM, self.epoch]).permutation(order)
        step = self._batch_size * self._world_size
        for batch in range(self.next_batch, self.num_batches):
            part = order[batch * step : (batch + 1) * step]
            yield part[self._rank * self._batch_size :][: self._batch_size]

    def __len__(self) -> int:
        """Number of batches left in the epoch."""
        return self.num_batches - self.next_batch

    def advance(self) -> None:
        """Move on after a batch was used."""
        self.next_batch += 1

    def end_epoch(self) -> None:
        """Move to the first batch of the next epoch."""
        self.epoch += 1
        self.next_batch = 0

    def state_dict(self) -> dict[str, Any]:
        """The position of the next batch, and the settings that determine the order."""
        return {"epoch": self.epoch, "batch": self.next_batch, "order": self._identity}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a position from `state_dict`; refused if the order of the batches differs."""
        changes = ", ".join(
            f"{_FLAGS.get(name, name)} was {was} and is {self._identity[name]}"
            for name, was in state["order"].items()
            if was != self._identity[name]
        )
        if changes:
            raise ConfigError(f"This is not the same run: {changes}. Use the same settings to resume.")
        self.epoch, self.next_batch = state["epoch"], state["batch"]

    @property
    def _identity(self) -> dict[str, int | bool]:
        return {
            "number of videos": self._num_videos,
            "global batch size": self._batch_size * self._world_size,
            "seed": self._seed,
            "shuffle": self._shuffle,
        }
