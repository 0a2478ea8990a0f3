"""Which videos are of one recording: by the names in the data, or by similarity.

Evidence must come from another recording. Videos of the same recording would support every video, right or
wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

SAME_RECORDING = 0.25
"""Videos of a collection within this cosine distance in all views count as one recording."""
SAME_VIDEO = 0.15
"""A video within this distance of another is the same video, seen in other clips, or a copy of it."""
NO_NAME = 0
"""The number of unnamed recordings."""


def recording_names(names: Sequence[str | None]) -> Int[Tensor, "videos"]:
    """A stable number for each recording; 0 if it has no name."""
    return torch.tensor([NO_NAME if name is None else _number(name) for name in names], dtype=torch.int64)


def found_recordings(near: Int[Tensor, "pairs 2"], names: Sequence[str | None]) -> Int[Tensor, "videos"]:
    """The recording of each video: by name or, without one, by similarity.

    near: pairs of similar videos. Recordings are numbered by their first videos.
    """
    first: dict[str, int] = {}
    recording = torch.arange(len(names))
    for row, name in enumerate(names):
        if name is not None:
            recording[row] = first.setdefault(name, row)
    is_unnamed = torch.tensor([name is None for name in names], dtype=torch.bool)
    near = near.cpu()
    a, b = near[is_unnamed[near].all(dim=1)].T
    while True:
        # Propagate the least reachable number until nothing changes.
        least = recording.scatter_reduce(0, a, recording[b], "amin").scatter_reduce(
            0, b, recording[a], "amin"
        )
        least = torch.minimum(least, least[least])
        if torch.equal(least, recording):
            return recording
        recording = least


def are_near(
    similarity: Float[Tensor, "views *batch videos"], distance: float = SAME_RECORDING
) -> Bool[Tensor, "*batch videos"]:
    """Whether two videos are within this distance of each other in all views."""
    return similarity.mean(dim=0) >= 1 - distance


def _number(name: str) -> int:
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True) or 1


def whole_recordings(
    are_near: Bool[Tensor, "*batch videos"], recording: Int[Tensor, "videos"]
) -> Bool[Tensor, "*batch videos"]:
    """Extend a selection of videos to their whole recordings."""
    place = recording.expand(are_near.shape)
    touched = torch.zeros_like(are_near, dtype=torch.float32)
    touched = touched.scatter_reduce(-1, place, are_near.float(), reduce="amax")
    return touched.gather(-1, place) > 0
