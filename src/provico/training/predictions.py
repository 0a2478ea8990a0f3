"""What a classifier says of videos, however it was trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from provico.data.catalog import Catalog, Video
from provico.errors import TooManyBrokenError, WeightsError

_NUM_NAMED = 3  # failed videos that a message names


@dataclass(frozen=True, eq=False)
class Predictions:
    """The probability of each class for each video that could be read, in the order of their catalog."""

    classes: tuple[str, ...]
    videos: tuple[Video, ...]
    log_probabilities: Float[Tensor, "videos classes"]
    failed: tuple[tuple[Video, str], ...] = ()
    """The videos that could not be read, with the reasons. They are in none of the above."""

    def __len__(self) -> int:
        return len(self.videos)

    @property
    def predicted(self) -> tuple[str, ...]:
        """The most probable class of each video."""
        return tuple(self.classes[number] for number in self.log_probabilities.argmax(dim=1).tolist())

    @property
    def probability(self) -> Float[Tensor, "videos"]:
        """That of the predicted class."""
        return self.log_probabilities.amax(dim=1).exp()

    @classmethod
    def joined(cls, parts: Sequence[Predictions], catalog: Catalog) -> Predictions:
        """What several processes said of their parts of a catalog."""
        videos = [video for part in parts for video in part.videos]
        if not videos:
            named = [f"{video.id}: {reason}" for part in parts for video, reason in part.failed][:_NUM_NAMED]
            raise TooManyBrokenError(
                f"Not one of {len(catalog)} videos can be read, so nothing can be said. {'; '.join(named)}"
            )
        place = {video.id: number for number, video in enumerate(catalog)}
        order = sorted(range(len(videos)), key=lambda number: place[videos[number].id])
        log_probabilities = torch.cat([part.log_probabilities for part in parts])[order]
        if not bool(log_probabilities.isfinite().all()):
            raise WeightsError(
                "The network gives probabilities that are not finite: its training has diverged. Train again "
                "with a lower --learning-rate."
            )
        return cls(
            parts[0].classes,
            tuple(videos[number] for number in order),
            log_probabilities,
            tuple(
                sorted((pair for part in parts for pair in part.failed), key=lambda pair: place[pair[0].id])
            ),
        )
