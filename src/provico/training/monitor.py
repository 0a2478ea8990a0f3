"""Monitoring of a run by labels, if there are any; they are never trained on.

The embeddings that training computes anyway are kept for the newest videos, to find each video's nearest
neighbour among them. This costs nothing and shows a trend. It does not replace an evaluation: the clips are
augmented and the encoder changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from provico.data.catalog import Catalog
from provico.probability import MinedPairs, score_mining

NUM_KEPT = 4096
"""Videos whose newest embedding is kept."""
_UNKNOWN = -1  # the label of unlabelled videos: they are neither queries nor neighbours


class LabelMonitor:
    """Nearest neighbours among the newest embeddings, and the precision of mined pairs."""

    def __init__(self, labels: Sequence[int], groups: Sequence[int], *, dim: int) -> None:
        self._labels, self._groups = torch.tensor(labels), torch.tensor(groups)
        self._videos = torch.zeros(0, dtype=torch.int64)
        self._means = torch.zeros(0, dim)

    @classmethod
    def of(cls, catalog: Catalog, *, dim: int) -> LabelMonitor | None:
        """A monitor for the labelled videos, or None if they have fewer than two labels."""
        if len({video.label for video in catalog} - {None}) < 2:
            return None
        index_of = {name: number for number, name in enumerate(catalog.classes)}
        labels = [_UNKNOWN if video.label is None else index_of[video.label] for video in catalog]
        # Videos of one group show one scene, so they do not count as neighbours. A video without a group is
        # a group of its own.
        names = [video.group or video.id for video in catalog]
        number_of = {name: number for number, name in enumerate(dict.fromkeys(names))}
        return cls(labels, [number_of[name] for name in names], dim=dim)

    def see(self, videos: Tensor, means: Tensor) -> None:
        """Store the embeddings of one step, replacing older ones of the same videos."""
        known = self._labels[videos.cpu()] != _UNKNOWN
        videos, means = videos.cpu()[known], means.detach().cpu()[known]
        stays = ~torch.isin(self._videos, videos)
        self._videos = torch.cat([self._videos[stays], videos])[-NUM_KEPT:]
        self._means = torch.cat([self._means[stays], means])[-NUM_KEPT:]

    def recall_at_1(self) -> float:
        """Share of videos whose nearest neighbour of another group has their label."""
        if not len(self._videos):
            return float("nan")
        labels, groups = self._labels[self._videos], self._groups[self._videos]
        directions = F.normalize(self._means, dim=1)
        right = total = 0
        for rows in torch.split(torch.arange(len(directions)), 1024):
            cosines = directions[rows] @ directions.T
            cosines.masked_fill_(groups[rows].unsqueeze(1) == groups, -torch.inf)
            best = cosines.max(dim=1)
            comparable = best.values > -torch.inf
            right += int((labels[best.indices] == labels[rows])[comparable].sum())
            total += int(comparable.sum())
        return right / total if total else float("nan")

    def score(self, pairs: MinedPairs, videos: Tensor) -> dict[str, float]:
        """Precision and recall of mined pairs of labelled videos, named as in the run's log."""
        labels = self._labels[videos.cpu()]
        known = labels != _UNKNOWN
        score = score_mining(pairs.positive.cpu()[known][:, known], labels[known])
        return {"mining/precision": score.precision, "mining/recall": score.recall}

    def state_dict(self) -> dict[str, Any]:
        """The stored embeddings."""
        return {"videos": self._videos, "means": self._means}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the embeddings."""
        self._videos, self._means = state["videos"], state["means"]
