"""Metrics of embeddings and of uncertainty for any encoder: they take plain tensors.

    does doubt predict errors?        r_auroc, risk_coverage, aurc, excess_aurc
    are false match rates correct?    false_match_calibration
    is the space well used?           alignment, uniformity, effective_rank

Each example can be run as it stands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

BLOCK_ELEMENTS = 2**22
"""The number of distances that are held at once (32 MB in float64)."""


def r_auroc(doubt: Float[Tensor, "queries"], correct: Bool[Tensor, "queries"]) -> float:
    """Area under the ROC curve of errors: how often a wrong answer has more doubt than a right one.

    1 is perfect and 1/2 is chance; ties count as 1/2. The result is nan if all answers are right or all are
    wrong. For retrieval, where an answer is right if the best match is of the query's class, it is the
    R-AUROC of Kirchhof et al., URL: A Representation Learning Benchmark for Transferable Uncertainty
    Estimates, NeurIPS 2023.

    >>> doubt = torch.tensor([0.1, 0.2, 0.3, 0.9])
    >>> r_auroc(doubt, torch.tensor([True, True, False, False]))
    1.0
    """
    if doubt.shape != correct.shape or bool(doubt.isnan().any()):
        raise ValueError("Each query needs one value of doubt, which must not be nan.")
    num_right = int(correct.sum())
    num_wrong = len(correct) - num_right
    if num_right == 0 or num_wrong == 0:
        return float("nan")
    # Ties get the mean of their ranks (Mann and Whitney).
    _, value, count = torch.unique(doubt, return_inverse=True, return_counts=True)
    rank = (count.cumsum(0).double() - (count.double() - 1) / 2)[value]
    return float((rank[~correct].sum() - num_wrong * (num_wrong + 1) / 2) / (num_right * num_wrong))


def risk_coverage(
    doubt: Float[Tensor, "queries"], correct: Bool[Tensor, "queries"]
) -> Float[Tensor, "queries"]:
    """The risk at coverages 1/n, 2/n, ..., 1: the share of errors among the answers with the least doubt.

    Ties in doubt get the expected risk of a random order (Geifman and El-Yaniv, Selective Classification for
    Deep Neural Networks, NeurIPS 2017).

    >>> risk_coverage(torch.tensor([0.1, 0.2, 0.9]), torch.tensor([True, True, False])).tolist()[:2]
    [0.0, 0.0]
    """
    if doubt.shape != correct.shape or not len(doubt) or bool(doubt.isnan().any()):
        raise ValueError(
            "Each query needs one value of doubt, which must not be nan, and at least one query is needed."
        )
    _, value, count = torch.unique(doubt, return_inverse=True, return_counts=True)
    errors = torch.zeros(len(count), dtype=torch.float64).index_add(0, value, (~correct).double())
    # Among ties, every answer counts with the share of errors of all of them.
    expected = (errors / count).repeat_interleave(count).cumsum(0)
    counts = torch.arange(1, len(doubt) + 1, dtype=torch.float64)
    return torch.div(expected, counts)


def aurc(doubt: Float[Tensor, "queries"], correct: Bool[Tensor, "queries"]) -> float:
    """Area under the risk-coverage curve, the mean risk over all coverages; smaller is better.

    >>> aurc(torch.tensor([0.1, 0.2, 0.3, 0.9]), torch.tensor([True, True, True, False]))
    0.0625
    """
    return float(risk_coverage(doubt, correct).mean())


def excess_aurc(doubt: Float[Tensor, "queries"], correct: Bool[Tensor, "queries"]) -> float:
    """AURC minus the lowest AURC possible with these errors: zero for perfect doubt.

    Geifman, Uziel and El-Yaniv, Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers, ICLR 2019.

    >>> excess_aurc(torch.tensor([0.1, 0.2, 0.3, 0.9]), torch.tensor([True, True, True, False]))
    0.0
    """
    return aurc(doubt, correct) - aurc((~correct).double(), correct)


def false_match_calibration(
    claimed: Float[Tensor, "*pairs"], *, rates: Sequence[float] = (0.1, 0.01, 0.001)
) -> dict[float, float]:
    """Ratio of observed to claimed false match rate, for each claimed rate.

    claimed: the false match rates of pairs that do not match. If they are correct they are p-values: a share
        r of the pairs has at most r. So 1 is correct and more than 1 is overconfident; nan without pairs.

    >>> false_match_calibration(torch.tensor([0.05, 0.2, 0.5, 0.9]), rates=(0.25, 0.5))
    {0.25: 2.0, 0.5: 1.5}
    """
    if not bool(((claimed >= 0) & (claimed <= 1)).all()):
        raise ValueError("False match rates lie between 0 and 1.")
    return {rate: float((claimed <= rate).double().mean()) / rate for rate in rates}


def mean_squared_distance(points: Float[Tensor, "*batch points dim"]) -> Float[Tensor, "*batch"]:
    """Mean of |x - y|^2 over pairs of different points: twice the unbiased variance, without forming pairs.

    >>> mean_squared_distance(torch.tensor([[0.0], [1.0], [5.0]])).item()  # of 1, 16 and 25
    14.0
    """
    return 2 * points.var(dim=-2, correction=1).sum(dim=-1)


def alignment(clips: Float[Tensor, "videos clips dim"]) -> float:
    """Mean squared distance between clips of one video on the unit sphere; 0 if they have the same direction.

    Wang and Isola, Understanding Contrastive Representation Learning through Alignment and Uniformity on the
    Hypersphere, ICML 2020. The result is nan if videos have one clip.

    >>> alignment(torch.tensor([[[1.0, 0.0], [0.0, 2.0]], [[3.0, 0.0], [1.0, 0.0]]]))
    1.0
    """
    if clips.shape[1] < 2:
        return math.nan
    return mean_squared_distance(F.normalize(clips, dim=-1)).mean().item()


def uniformity(clips: Float[Tensor, "videos clips dim"]) -> float:
    """log of the mean of exp(-2 |x - y|^2) over clips of different videos, on the unit sphere.

    0 if all coincide; smaller values mean a more even spread (Wang and Isola, ICML 2020).

    >>> round(uniformity(torch.tensor([[[1.0, 0.0]], [[0.0, 5.0]]])), 3)
    -4.0
    """
    directions = F.normalize(clips, dim=-1)
    num_videos, num_clips, _ = directions.shape
    flat = directions.flatten(0, 1)
    block = max(1, BLOCK_ELEMENTS // len(flat))
    # The sum over all pairs of clips minus that over pairs within a video, a block of rows at a time.
    everywhere = 0.0
    for start in range(0, len(flat), block):
        everywhere += _similarity(flat[start : start + block], flat).sum().item()
    within = _similarity(directions, directions).sum().item()
    return math.log((everywhere - within) / (num_videos * (num_videos - 1) * num_clips**2))


def effective_rank(points: Float[Tensor, "points dim"]) -> float:
    """Effective number of dimensions of the points: exp of the entropy of the normalised singular values.

    Roy and Vetterli, The Effective Rank, EUSIPCO 2007. The points are centred first. The singular values are
    computed from the smaller Gram matrix, which is cheaper than an SVD. Spread below the resolution of
    float32 is rounding and is ignored. The result is nan if a value is not finite.

    >>> corners = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    >>> round(effective_rank(corners), 6), round(effective_rank(corners * torch.tensor([1.0, 0.0])), 6)
    (2.0, 1.0)
    """
    if not points.isfinite().all():
        return math.nan
    points = points.double()
    centred = points - points.mean(dim=0)
    gram = centred @ centred.T if len(points) < points.shape[1] else centred.T @ centred
    singular = torch.linalg.eigvalsh(gram).clamp(min=0).sqrt()
    singular = singular[singular > torch.finfo(torch.float32).eps * points.norm()]
    if len(singular) == 0:
        return 1.0
    entropy = torch.special.entr(singular / singular.sum()).sum().item()
    return math.exp(entropy)


def _similarity(a: Float[Tensor, "*batch rows dim"], b: Float[Tensor, "*batch columns dim"]) -> Tensor:
    """exp(-2 |a - b|^2) for all rows and columns; at least exp(-8) on the sphere, so it cannot underflow."""
    squares = a.square().sum(dim=-1).unsqueeze(-1) + b.square().sum(dim=-1).unsqueeze(-2)
    return torch.exp(-2 * (squares - 2 * a @ b.transpose(-1, -2)).clamp(min=0))
