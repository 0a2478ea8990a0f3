"""How often a classifier is right, and what it says of each test video."""

from __future__ import annotations

import torch

from provico.evaluation.result import Prediction
from provico.evaluation.statistics import Share
from provico.training.classification import top_k_correct
from provico.training.predictions import Predictions


def accuracies(said: Predictions) -> dict[str, Share]:
    """top-1, and top-5 where there are more than five classes; the videos must have labels."""
    index = {name: number for number, name in enumerate(said.classes)}
    labels = torch.tensor([index[str(video.label)] for video in said.videos])
    groups = [video.group for video in said.videos]
    return {
        f"top-{k}": Share.of(top_k_correct(said.log_probabilities, labels, k), groups)
        for k in (1, 5)
        if k == 1 or k < len(said.classes)
    }


def listed(said: Predictions) -> tuple[Prediction, ...]:
    """One line for each video, as results keep them."""
    return tuple(
        Prediction(video.id, str(video.label), name, probability)
        for video, name, probability in zip(
            said.videos, said.predicted, said.probability.tolist(), strict=True
        )
    )
