"""Calibration of the match probability: of the hits shown with 80 %, 80 % are right.

The match probability ranks pairs of videos, but training does not make it a frequency. Given pairs that are
known to match or not, the beta map of Kull, Silva Filho and Flach (2017) turns it into one,

    logit q = slope * log p - other_slope * log(1 - p) + intercept,      slopes >= 0,

which is monotone, so rankings do not change. Platt's map has equal slopes (docs/log.md has both).

A calibrated probability holds for pairs like those of the fit; `source` and `pairs` describe them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from provico.errors import ConfigError
from provico.probability.reliability import expected_calibration_error, group_indices
from provico.typed_json import build

JudgedBy = Literal["labels", "judgements"]
"""What determined which pairs match."""

NUM_FOLDS = 5
"""Folds of the cross-validation over groups."""
LARGEST_LOG_PROBABILITY = -1e-12
"""Match probabilities that are rounded to one are lowered to this, so that their logit is finite."""

_MOST_STEPS = 100
_GRADIENT_TOLERANCE = 1e-12


@dataclass(frozen=True, kw_only=True)
class CalibrationQuality:
    """How well probabilities agree with frequencies."""

    log_loss: float
    """Mean of -log of the probability given to the true outcome, in nats."""
    calibration_error: float
    """Expected calibration error, in bins with equally many pairs."""

    @classmethod
    def of(cls, logits: Float[Tensor, "pairs"], is_match: Bool[Tensor, "pairs"]) -> CalibrationQuality:
        """The quality of probabilities given by their logits."""
        return cls(
            log_loss=float(F.binary_cross_entropy_with_logits(logits.double(), is_match.double())),
            calibration_error=expected_calibration_error(logits.double().sigmoid(), is_match),
        )


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A monotone map from match probability to frequency, and where it comes from."""

    slope: float
    intercept: float
    other_slope: float = 0.0
    """The slope of -log(1 - p)."""
    source: JudgedBy
    pairs: str
    """The pairs of the fit and what a match is among them, in words."""
    num_pairs: int
    num_matches: int
    num_groups: int
    """Number of independent groups of pairs."""
    before: CalibrationQuality
    """Quality of the match probability itself."""
    after: CalibrationQuality
    """Quality of the map, by cross-validation over groups."""

    def __post_init__(self) -> None:
        slopes = (self.slope, self.other_slope)
        if not (all(0 <= slope < math.inf for slope in slopes) and math.isfinite(self.intercept)):
            raise ValueError(
                f"The slopes are {slopes} and the intercept {self.intercept}, but all must be finite and the "
                "slopes not negative."
            )
        if not 0 <= self.num_matches <= self.num_pairs or self.num_pairs < 1:
            raise ValueError(f"{self.num_matches} of {self.num_pairs} pairs match, which is impossible.")
        if self.source not in get_args(JudgedBy):
            raise ValueError(f"The source is {self.source!r}, not one of {', '.join(get_args(JudgedBy))}.")

    @property
    def prevalence(self) -> float:
        """The share of matches among the pairs."""
        return self.num_matches / self.num_pairs

    def probability(self, log_match_probability: Float[Tensor, "*pairs"]) -> Float[Tensor, "*pairs"]:
        """The calibrated probability, in float64."""
        return self.logit(log_match_probability).sigmoid()

    def logit(self, log_match_probability: Float[Tensor, "*pairs"]) -> Float[Tensor, "*pairs"]:
        """Its logit, in float64."""
        return BetaMap(self.slope, self.other_slope, self.intercept)(log_match_probability)

    @classmethod
    def fit(
        cls,
        log_match_probability: Float[Tensor, "pairs"],
        is_match: Bool[Tensor, "pairs"],
        *,
        source: JudgedBy,
        pairs: str,
        groups: Sequence[Hashable] | None = None,
    ) -> Calibration:
        """Fit the map to pairs by maximum likelihood.

        groups: pairs of one group, such as those of one query, are not independent. Without groups, every
            pair is independent.
        """
        scores = _checked(log_match_probability)
        if scores.shape != is_match.shape:
            raise ValueError(f"There are {len(scores)} match probabilities and {len(is_match)} answers.")
        num_matches = int(is_match.sum())
        if not 0 < num_matches < len(is_match):
            raise ConfigError(
                f"{num_matches} of {len(is_match)} pairs match, but a calibration needs some that match and "
                "some that do not. Give more videos, or labels of at least two classes."
            )
        group_of = group_indices(groups, len(is_match))
        fitted = fit_beta(scores, is_match)
        return cls(
            slope=fitted.slope,
            other_slope=fitted.other_slope,
            intercept=fitted.intercept,
            source=source,
            pairs=pairs,
            num_pairs=len(is_match),
            num_matches=num_matches,
            num_groups=int(group_of.max()) + 1,
            before=CalibrationQuality.of(log_odds(scores), is_match),
            after=CalibrationQuality.of(_unseen_logits(scores, is_match, group_of), is_match),
        )

    def summary(self) -> dict[str, Any]:
        """A summary to report with calibrated probabilities, as plain values."""
        return {
            "source": self.source,
            "pairs": self.pairs,
            "num_pairs": self.num_pairs,
            "prevalence": self.prevalence,
            "calibration_error": self.after.calibration_error,
        }

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return dataclasses.asdict(self) | {"prevalence": self.prevalence}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Calibration:
        """The inverse of `to_dict`; raises ValueError, KeyError or TypeError for other values."""
        known = {name: value for name, value in values.items() if name != "prevalence"}
        return build(cls, known)


def log_odds(log_probability: Float[Tensor, "*pairs"]) -> Float[Tensor, "*pairs"]:
    """log p - log(1 - p) from log p in float64, accurate for p = 1e-274 as well as for p = 1 - 1e-9."""
    log_probability = _checked(log_probability).clamp(max=LARGEST_LOG_PROBABILITY)
    # log(1 - p) is inaccurate by log1p for p near 1, and by expm1 for p near 0.
    log_other = torch.where(
        log_probability > -math.log(2),
        (-torch.expm1(log_probability)).log(),
        torch.log1p(-log_probability.exp()),
    )
    return log_probability - log_other


def _checked(log_probability: Float[Tensor, "*pairs"]) -> Float[Tensor, "*pairs"]:
    """Log-probabilities in float64. Values slightly above 0 by rounding are accepted."""
    log_probability = log_probability.detach().double()
    if bool(log_probability.isnan().any()) or bool((log_probability == -torch.inf).any()):
        raise ValueError("A log match probability is nan or -inf. Compute it in log space.")
    if bool((log_probability > 1e-6).any()):
        raise ValueError("A log match probability is above 0. Give logarithms, not probabilities.")
    return log_probability.clamp(max=0)


class BetaMap(NamedTuple):
    """The map from log p to the logit of a frequency."""

    slope: float
    other_slope: float
    intercept: float

    def __call__(self, log_probability: Float[Tensor, "*pairs"]) -> Float[Tensor, "*pairs"]:
        """The logit, in float64."""
        log_p, minus_log_other = _both_logs(log_probability)
        return self.slope * log_p + self.other_slope * minus_log_other + self.intercept


def fit_beta(log_probability: Float[Tensor, "pairs"], is_match: Bool[Tensor, "pairs"]) -> BetaMap:
    """The maximum-likelihood beta map with slopes >= 0.

    One of the two slopes may be fitted negative. The loss is convex, so the constrained optimum then has one
    slope of zero, and the other is fitted alone.
    """
    target = _platt_targets(is_match)
    columns = torch.stack(_both_logs(log_probability), dim=1)
    # Standardised inputs make the problem well conditioned whatever the scale of the scores.
    centre, scale = columns.mean(dim=0), columns.std(dim=0, correction=0)
    allowed = [part for part in range(2) if float(scale[part]) > 0]
    best = BetaMap(0.0, 0.0, float(torch.logit(target.mean())))
    least = math.inf
    for parts in ([0, 1], [0], [1]):
        if not set(parts) <= set(allowed):
            continue
        found = _newton((columns[:, parts] - centre[parts]) / scale[parts], target)
        if min(found[:-1]) <= 0:
            continue
        slopes = [0.0, 0.0]
        for part, slope in zip(parts, found, strict=False):
            slopes[part] = slope / float(scale[part])
        shift = sum(slope * float(centre[part]) for part, slope in enumerate(slopes))
        candidate = BetaMap(slopes[0], slopes[1], found[-1] - shift)
        loss = float(F.binary_cross_entropy_with_logits(candidate(log_probability), target))
        if loss < least:
            best, least = candidate, loss
        if len(parts) == 2:
            break
    return best


def _both_logs(log_probability: Float[Tensor, "*pairs"]) -> tuple[Tensor, Tensor]:
    """log p and -log(1 - p)."""
    log_p = _checked(log_probability)
    return log_p, log_odds(log_p) - log_p.clamp(max=LARGEST_LOG_PROBABILITY)


def _platt_targets(is_match: Bool[Tensor, "pairs"]) -> Float[Tensor, "pairs"]:
    """(n + 1) / (n + 2) for n matches and 1 / (m + 2) for m others, in place of 1 and 0.

    They keep slopes finite if a threshold separates the two perfectly.
    """
    num_matches = int(is_match.sum())
    num_others = len(is_match) - num_matches
    return torch.where(is_match, (num_matches + 1) / (num_matches + 2), 1 / (num_others + 2)).double()


def fit_platt(scores: Float[Tensor, "pairs"], is_match: Bool[Tensor, "pairs"]) -> tuple[float, float]:
    """Slope (>= 0) and intercept of the logistic regression of matches on scores."""
    target = _platt_targets(is_match)
    # Standardised scores make the problem well conditioned whatever their scale.
    centre, scale = scores.double().mean(), scores.double().std(correction=0)
    if float(scale) > 0:
        slope, intercept = _newton((scores.double() - centre).unsqueeze(1) / scale, target)
        if slope > 0:
            return slope / float(scale), intercept - slope * float(centre / scale)
    # The loss is convex: if the optimum has a negative slope, the constrained optimum has slope zero.
    return 0.0, float(torch.logit(target.mean()))


def _newton(inputs: Float[Tensor, "pairs parts"], target: Float[Tensor, "pairs"]) -> list[float]:
    """Slopes and intercept of least cross-entropy, by Newton's method with step halving."""
    design = torch.cat([inputs, torch.ones_like(inputs[:, :1])], dim=1)
    weights = torch.zeros(design.shape[1], dtype=torch.float64)
    weights[-1] = torch.logit(target.mean())

    def loss(at: Tensor) -> float:
        return float(F.binary_cross_entropy_with_logits(design @ at, target))

    now = loss(weights)
    for _ in range(_MOST_STEPS):
        predicted = (design @ weights).sigmoid()
        gradient = design.T @ (predicted - target) / len(target)
        if float(gradient.abs().max()) < _GRADIENT_TOLERANCE:
            break
        curvature = (design.T * (predicted * (1 - predicted))) @ design / len(target)
        # A tiny ridge keeps it invertible if all predictions are nearly 0 or 1.
        step = torch.linalg.solve(curvature + 1e-12 * torch.eye(len(weights)).double(), gradient)
        while (after := loss(weights - step)) > now and float(step.abs().max()) > 1e-15:
            step = step / 2
        if after >= now:
            break  # converged to float64 precision
        weights, now = weights - step, after
    found: list[float] = weights.tolist()
    return found


def _unseen_logits(scores: Tensor, is_match: Tensor, group_of: Tensor) -> Float[Tensor, "pairs"]:
    """The calibrated logit of each pair, from a map fitted without its fold."""
    order = torch.randperm(int(group_of.max()) + 1, generator=torch.Generator().manual_seed(0))
    fold_of = order[group_of] % NUM_FOLDS
    calibrated = torch.empty_like(scores)
    for fold in torch.unique(fold_of).tolist():
        held = fold_of == fold
        # A single group cannot be held out, so its map is fitted to it.
        kept = ~held if bool((~held).any()) else held
        calibrated[held] = fit_beta(scores[kept], is_match[kept])(scores[held])
    return calibrated
