"""The match probability p(m|V_i, V_j) = 1/K^2 sum_kk' s(b - a |z_i^k - z_j^k'|)   (eq. 9), in log space.

Both logarithms are needed: log p for positive pairs, log(1 - p) for negative ones. Since 1 - s(x) = s(-x),
each is a log-mean of log-sigmoids, and neither is computed from the other: p reaches 1e-274 in ordinary
settings, and log(1 - p) from a rounded p would be zero.

Squared distances come from one matrix product over all samples, so nothing of size K^2 D is formed. The K^2
values of each pair are processed in blocks of rows. With several blocks, each is recomputed in the backward
pass instead of being stored, so the peak memory does not grow with the batch either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from provico.errors import ConfigError
from provico.probability.precision import at_least_float32, autocast_off

SelfPairs = Literal["drop", "keep", "across_clips"]
"""Which sample pairs score a video against itself; `match_log_probabilities` explains each."""

BLOCK_ELEMENTS = 2**20
"""The number of sample pairs held at once (4 MB in float32 for each intermediate result)."""

SQUARED_DISTANCE_FLOOR = 1e-6
"""Added under the square root, whose slope at zero is infinite."""


@dataclass(frozen=True)
class MatchCurve:
    """The match probability as a function of distance: s(sigmoid_scale * (b - a * distance))."""

    a: Float[Tensor, ""]
    b: Float[Tensor, ""]
    sigmoid_scale: float = 1.0

    @classmethod
    def from_raw(
        cls, log_a: Float[Tensor, ""], b: Float[Tensor, ""], *, sigmoid_scale: float = 1.0
    ) -> MatchCurve:
        """The curve from its trained parameters: log a, so that a stays positive, and b.

        An optimiser step then changes a by a relative amount, independent of the units of the embedding.
        """
        return cls(log_a.exp(), b, sigmoid_scale)

    def fixed(self) -> MatchCurve:
        """The curve without gradient, on the CPU, for rankings."""
        return MatchCurve(self.a.detach().cpu(), self.b.detach().cpu(), self.sigmoid_scale)

    def logits(self, squared_distances: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The logit of a match at each squared distance."""
        distances = (squared_distances.clamp(min=0) + SQUARED_DISTANCE_FLOOR).sqrt()
        return self.sigmoid_scale * (self.b - self.a * distances)


@dataclass(frozen=True)
class MatchLogProbabilities:
    """log p and log(1 - p) for all pairs of videos."""

    match: Float[Tensor, "videos_a videos_b"]
    non_match: Float[Tensor, "videos_a videos_b"]


def log_match_probability(
    samples_a: Float[Tensor, "videos_a samples_a dim"],
    samples_b: Float[Tensor, "videos_b samples_b dim"],
    *,
    curve: MatchCurve,
) -> Float[Tensor, "videos_a videos_b"]:
    """log p(m|V_a, V_b) between two sets of videos, for retrieval."""
    return _over_blocks(samples_a, samples_b, curve, signs=(1,))[0]


def match_log_probabilities(
    samples: Float[Tensor, "videos samples dim"],
    *,
    curve: MatchCurve,
    self_pairs: SelfPairs = "drop",
    clip: Int[Tensor, "videos samples"] | None = None,
) -> MatchLogProbabilities:
    """Both log-probabilities within a batch. `self_pairs` defines the match of a video with itself.

    `drop`          over the K (K - 1) pairs of two different samples. A sample has distance zero to
                    itself: with those K pairs the loss of the diagonal is at most log K, and its gradient
                    vanishes.
    `keep`          over all K^2 pairs, as printed.
    `across_clips`  over the pairs of samples that came from different clips (`clip` says which), so that
                    the clips of a video attract each other directly, not only through its variance.
    """
    match, non_match = _over_blocks(samples, samples, curve, signs=(1, -1))
    if self_pairs == "keep":
        return MatchLogProbabilities(match, non_match)

    scored = _scored_self_pairs(samples, self_pairs, clip)
    centred = at_least_float32(samples)
    centred = centred - centred.mean(dim=1, keepdim=True)
    own_logits = curve.logits(_squared_distances(centred, centred))
    diagonal = torch.eye(len(samples), dtype=torch.bool, device=samples.device)
    return MatchLogProbabilities(
        torch.where(diagonal, _log_mean_sigmoid(own_logits, scored).unsqueeze(1), match),
        torch.where(diagonal, _log_mean_sigmoid(-own_logits, scored).unsqueeze(1), non_match),
    )


def _scored_self_pairs(
    samples: Float[Tensor, "videos samples dim"],
    self_pairs: SelfPairs,
    clip: Int[Tensor, "videos samples"] | None,
) -> Bool[Tensor, "videos samples samples"]:
    """Mask of the K x K sample pairs of a video with itself that are scored."""
    num_videos, num_samples, _ = samples.shape
    if self_pairs == "drop":
        different = ~torch.eye(num_samples, dtype=torch.bool, device=samples.device)
        scored = different.expand(num_videos, -1, -1)
    elif clip is None:
        raise ConfigError(
            "self_pairs='across_clips' needs `clip`, the clip from which each sample was drawn."
        )
    else:
        scored = clip.unsqueeze(2) != clip.unsqueeze(1)
    if not bool(scored.flatten(1).any(dim=1).all()):
        raise ConfigError(
            f"A video has {num_samples} sample(s), none of which can be compared with another under "
            f"self_pairs='{self_pairs}'. Draw at least 2 samples per video, and 2 clips for 'across_clips'."
        )
    return scored


def _over_blocks(
    samples_a: Float[Tensor, "videos_a samples_a dim"],
    samples_b: Float[Tensor, "videos_b samples_b dim"],
    curve: MatchCurve,
    *,
    signs: tuple[int, ...],
) -> list[Float[Tensor, "videos_a videos_b"]]:
    """log-mean-sigmoid of sign * logit for each sign, a block of rows at a time."""
    samples_a, samples_b = at_least_float32(samples_a), at_least_float32(samples_b)
    # Squared distances by products lose digits as points move from the origin: centre them first.
    centre = samples_b.detach().mean(dim=(0, 1))
    samples_a, samples_b = samples_a - centre, samples_b - centre

    def rows(block: Tensor, others: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        flat = _squared_distances(block.flatten(0, 1), others.flatten(0, 1))
        squared = flat.view(len(block), block.shape[1], len(others), others.shape[1]).transpose(1, 2)
        logits = MatchCurve(a, b, curve.sigmoid_scale).logits(squared)
        return tuple(_log_mean_sigmoid(sign * logits) for sign in signs)

    pairs_per_row = samples_a.shape[1] * samples_b.shape[0] * samples_b.shape[1]
    size = max(1, BLOCK_ELEMENTS // max(1, pairs_per_row))
    arguments = (samples_b, curve.a, curve.b)
    if len(samples_a) <= size:
        return list(rows(samples_a, *arguments))
    blocks: list[tuple[Tensor, ...]] = [
        checkpoint(rows, block, *arguments, use_reentrant=False, preserve_rng_state=False)
        for block in torch.split(samples_a, size)
    ]
    return [torch.cat(column) for column in zip(*blocks, strict=True)]


def _squared_distances(
    a: Float[Tensor, "*videos samples_a dim"], b: Float[Tensor, "*videos samples_b dim"]
) -> Float[Tensor, "*videos samples_a samples_b"]:
    squares_a, squares_b = a.square().sum(dim=-1), b.square().sum(dim=-1)
    with autocast_off(a):
        products = a @ b.transpose(-1, -2)
    return squares_a.unsqueeze(-1) + squares_b.unsqueeze(-2) - 2 * products


def _log_mean_sigmoid(
    logits: Float[Tensor, "*pairs samples_a samples_b"],
    scored: Bool[Tensor, "*pairs samples_a samples_b"] | None = None,
) -> Float[Tensor, "*pairs"]:
    """log of the mean of s(logit) over the scored sample pairs (by default all)."""
    log_terms = F.logsigmoid(logits)
    if scored is None:
        return log_terms.logsumexp(dim=(-2, -1)) - math.log(logits.shape[-2] * logits.shape[-1])
    log_terms = log_terms.masked_fill(~scored, -torch.inf)
    return log_terms.logsumexp(dim=(-2, -1)) - scored.sum(dim=(-2, -1)).log()
