"""A class for each video from samples of its distribution: what the linear probe and finetuning share.

    p(y|V) = 1/K sum_k softmax(W z_k + w)_y        loss = -log p(y|V)

The cross-entropy is that of the *averaged* probability, formed in log space. In the test ten clips make five
mixtures of two neighbours each, and all 5 K probabilities are averaged (paper, appendix C.2).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture


def log_mean_probability(logits: Float[Tensor, "*batch samples classes"]) -> Float[Tensor, "*batch classes"]:
    """Log of the softmax averaged over samples."""
    return logits.log_softmax(dim=-1).logsumexp(dim=-2) - math.log(logits.shape[-2])


def averaged_cross_entropy(
    logits: Float[Tensor, "videos samples classes"], labels: Int[Tensor, "videos"]
) -> Float[Tensor, ""]:
    """Mean over videos of minus the log of the averaged probability of the right class."""
    return -log_mean_probability(logits).gather(1, labels.unsqueeze(1)).mean()


def neighbouring_clips(clips: Gaussian, clips_per_mixture: int) -> Mixture:
    """Mixtures of consecutive clips: "videos clips dim" becomes "videos*mixtures clips_per_mixture dim"."""
    num_videos, num_clips, dim = clips.mean.shape
    shape = (num_videos * (num_clips // clips_per_mixture), clips_per_mixture, dim)
    return Mixture(Gaussian(clips.mean.reshape(shape), clips.log_var.reshape(shape)))


def average_over_mixtures(
    logits: Float[Tensor, "mixtures samples classes"], num_videos: int
) -> Float[Tensor, "videos classes"]:
    """Log-probabilities of videos from the logits of all samples of all their mixtures."""
    return log_mean_probability(logits.reshape(num_videos, -1, logits.shape[-1]))


def top_k_correct(
    log_probabilities: Float[Tensor, "videos classes"], labels: Int[Tensor, "videos"], k: int
) -> Tensor:
    """Whether the right class is among the k most probable; of equal ones the first in the list counts."""
    order = log_probabilities.sort(dim=1, descending=True, stable=True).indices[:, :k]
    return torch.eq(order, labels.unsqueeze(1)).any(dim=1)
