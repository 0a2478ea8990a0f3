"""The match probability by its definition, one video at a time, in float64: what all tests here trust."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

from provico.probability.matching import MatchCurve

Array = NDArray[np.float64]


def log_probability(query: Tensor, video: Tensor, of: MatchCurve) -> float:
    """log p of two videos from the differences of all their samples."""
    differences = query.double().numpy()[:, None] - video.double().numpy()[None]
    distances = np.sqrt(np.square(differences).sum(axis=2) + 1e-6)
    logits = of.sigmoid_scale * (float(of.b) - float(of.a) * distances)
    log_match = np.logaddexp.reduce(-np.logaddexp(0, -logits).ravel()) - np.log(logits.size)
    log_other = np.logaddexp.reduce(-np.logaddexp(0, logits).ravel()) - np.log(logits.size)
    # A p next to one has its digits in 1 - p.
    return float(np.log1p(-np.exp(log_other)) if log_other < -1 else log_match)


@dataclass(frozen=True)
class Loop:
    """What a loop over all videos finds."""

    def scores(self, query: Tensor, videos: Tensor, of: MatchCurve) -> Array:
        return np.array([log_probability(query, video, of) for video in videos])

    def ranking(self, query: Tensor, videos: Tensor, of: MatchCurve) -> tuple[Array, NDArray[np.int64]]:
        """All scores, the best first, and whose they are; of equal ones the earlier first."""
        scores = self.scores(query, videos, of)
        order = np.argsort(-scores, kind="stable")
        return scores[order], order


@pytest.fixture(scope="session")
def loop() -> Loop:
    return Loop()
