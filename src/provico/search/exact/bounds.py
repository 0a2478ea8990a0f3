"""How large can the match probability be, if only a few numbers of the squared distances are known?

p is the mean of f(s) = sigmoid(scale * (b - a sqrt(s))) over the K x K squared distances s between the
samples of two videos. Let their mean be m, their variance at most v, and none of them below l. For every t

    f(s) <= f(t) + f'(t) (s - t) + c (s - t)^2     for all s >= l,     with a large enough c = c(t, l),

and the mean of this parabola over the pairs needs no more than m and v:

    p <= f(t) + f'(t) (m - t) + c (v + (m - t)^2).

`MomentBound` tabulates c for one curve and takes the best t. docs/exact-search.md proves that this holds for
every curve, also where m is only known from below, and whatever rounding does; its lemmas are named here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from provico.errors import ConfigError
from provico.probability.match_scores import slope_and_offset
from provico.probability.matching import SQUARED_DISTANCE_FLOOR, MatchCurve

SATURATION = 45.0
"""The logit beyond which the curve is one to the last digit of float64."""
TAIL = 75.0
"""The logit, downwards, to which the curve is tabulated finely."""
NUM_INNER, NUM_KNEE, NUM_OUTER = 30, 600, 60
"""Knots where the curve is one, where it falls, and where it is next to nothing."""
NUM_TANGENTS = 28
"""Parabolas: their tangent points t are dense where the curve bends, and ever further apart from there."""
ROUNDING = 2.0**-48
"""Relative error of a value of the curve, of its slope and of its bend, for each unit of the logit."""
LEAST_LOG_THRESHOLD = -600.0
"""Below this, probabilities are too small for float64."""


@dataclass(frozen=True, eq=False)
class DistanceMoments:
    """What is known of the K x K squared distances of each pair of videos."""

    mean: Float[Tensor, "*pairs"]
    """At most their mean."""
    var: Float[Tensor, "*pairs"]
    """At least their variance."""
    least: Float[Tensor, "*pairs"]
    """At most the smallest of them."""


class MomentBound:
    """Upper bounds on match probabilities, from moments of squared distances.

    slope, offset: A and B of the logit B - A |z - z'|; `MomentBound.of` takes them from a curve.
    """

    def __init__(self, slope: float, offset: float) -> None:
        if not (0 < slope < math.inf and math.isfinite(offset)):
            raise ConfigError(
                f"The match curve has the slope {slope} and the offset {offset}, but exact search needs a "
                "probability that falls with distance: a positive slope and a finite offset."
            )
        self.slope, self.offset = slope, offset
        self._knots = self._place_knots()
        self._tangents = self._place_tangents()
        rounding = self._rounding(self._tangents)
        self._heights = (1 + 12 * rounding) * self._value(self._tangents)
        self._slopes = (1 + 4 * rounding) * self._derivative(self._tangents)
        # A row for each knot, so that one index finds the bends of all parabolas.
        self._bends = ((1 + 12 * rounding) * self._all_bends().T).contiguous()

    @classmethod
    def of(cls, curve: MatchCurve) -> MomentBound:
        """The bound for a curve; the table takes some milliseconds, and the last few are kept."""
        return _remembered(*slope_and_offset(curve))

    def __call__(self, moments: DistanceMoments) -> Float[Tensor, "*pairs"]:
        """At least the match probability of each pair (theorem 1)."""
        # Means are sums in float64, and what is subtracted from them below loses digits once more.
        mean = (1 - 2.0**-40) * moments.mean.clamp(min=0)
        var = moments.var + 2.0**-50 * mean.square()
        least = torch.minimum(moments.least, mean)
        row = torch.bucketize(least, self._knots, right=True) - 1
        gap = mean.unsqueeze(-1) - self._tangents
        parabolas = self._heights + self._slopes * gap + self._bends[row] * (var.unsqueeze(-1) + gap * gap)
        return torch.minimum(parabolas.amin(dim=-1), self.at_least(least))

    def most_var(self, mean: Float[Tensor, "*pairs"], probability: Tensor) -> Float[Tensor, "*pairs"]:
        """Below this variance the bound of theorem 1 is below a probability; if it is negative, it never is.

        What grows with the mean may be looked up for any smaller one (lemma 2).
        """
        mean = (1 - 2.0**-40) * mean.clamp(min=0)
        gap = mean.unsqueeze(-1) - self._tangents
        room = (probability.unsqueeze(-1) - self._heights - self._slopes * gap) / self._bends[0]
        lost = 2.0**-40 * (1 + gap.abs() * self._slopes.abs()) / self._bends[0] + 2.0**-40 * gap.square()
        return (room - gap.square() - lost).amax(dim=-1) - 2.0**-50 * mean.square()

    def distance_at(self, log_probability: Float[Tensor, "*pairs"]) -> Float[Tensor, "*pairs"]:
        """The distance of two points that match with this probability; 0 if none do."""
        logit = log_probability - (-torch.expm1(log_probability)).log()
        return ((self.offset - logit) / self.slope).clamp(min=0)

    def at_least(self, least: Float[Tensor, "*pairs"]) -> Float[Tensor, "*pairs"]:
        """At least the match probability of each pair, from the smallest squared distance alone."""
        return (1 + 4 * self._rounding(least)) * self._value(least)

    def _logit(self, squared: Tensor) -> Tensor:
        return self.offset - self.slope * (squared + SQUARED_DISTANCE_FLOOR).sqrt()

    def _value(self, squared: Tensor) -> Tensor:
        return torch.sigmoid(self._logit(squared))

    def _derivative(self, squared: Tensor) -> Tensor:
        logit, distance = self._logit(squared), (squared + SQUARED_DISTANCE_FLOOR).sqrt()
        return -self.slope * torch.sigmoid(logit) * torch.sigmoid(-logit) / (2 * distance)

    def _rounding(self, squared: Tensor) -> Tensor:
        """The logit is a difference of two numbers, whose rounding is the relative error of the curve."""
        return ROUNDING * (1 + abs(self.offset) + self.slope * (squared + SQUARED_DISTANCE_FLOOR).sqrt())

    def _place_knots(self) -> Float[Tensor, "knots"]:
        """Squared distances from 0 on: even steps of the logit where the curve falls, wider elsewhere."""
        saturated = max(0.0, (self.offset - SATURATION) / self.slope)
        end = max(TAIL, self.offset + TAIL) / self.slope
        inner = torch.linspace(0, saturated, NUM_INNER + 1, dtype=torch.float64)[:-1]
        knee = torch.linspace(saturated, end, NUM_KNEE + 1, dtype=torch.float64)[:-1]
        outer = end * torch.logspace(0, 4, NUM_OUTER, base=2, dtype=torch.float64)
        return torch.cat([inner, knee, outer]).square()

    def _place_tangents(self) -> Float[Tensor, "tangents"]:
        """Knots at which the logit is near 24, ..., 1/2, 0, -1/2, ..., -54, as far as there are such."""
        logits = min(0.0, self.offset) - 2 * torch.linspace(-3.2, 4, NUM_TANGENTS, dtype=torch.float64).sinh()
        wanted = ((self.offset - logits) / self.slope).clamp(min=0).square()
        indices = torch.bucketize(wanted, self._knots).clamp(1, len(self._knots) - NUM_OUTER // 2)
        return self._knots[sorted(set(indices.tolist()))]

    def _largest_bend(self) -> Float[Tensor, "cells"]:
        """At least half the second derivative anywhere between two knots (lemma 3).

        f'' = A y (1 - y) / (4 d^3) * (1 + A d (1 - 2 y)),   y = f, d the distance, A the slope.
        """
        distance = (self._knots + SQUARED_DISTANCE_FLOOR).sqrt()
        logit = self._logit(self._knots)
        bell = torch.sigmoid(logit) * torch.sigmoid(-logit)
        widest = torch.where((logit[:-1] > 0) & (logit[1:] < 0), 0.25, torch.maximum(bell[:-1], bell[1:]))
        tilt = torch.tanh(-logit[1:] / 2)  # 1 - 2 y, which grows with distance
        turn = 1 + self.slope * tilt * torch.where(tilt > 0, distance[1:], distance[:-1])
        turn = turn.clamp(min=0) + 8 * self._rounding(self._knots[1:])
        return self.slope * widest * turn / (8 * distance[:-1] ** 3)

    def _all_bends(self) -> Float[Tensor, "tangents knots"]:
        """c(t, l) for each tangent t, and for l at each knot: the largest that any cell beyond l asks for."""
        start, stop = self._knots[:-1], self._knots[1:]
        t = self._tangents.unsqueeze(1)
        height, slope = self._value(t), self._derivative(t)
        # Each cell is on one side of t: Taylor about its nearer end, over (near + x)^2.
        right = start >= t
        end = torch.where(right, start, stop)
        near = (end - t).abs()
        width = stop - start
        error = self._rounding(torch.maximum(end, t))
        rise = self._value(end) - height - slope * (end - t)
        rise = rise + 4 * error * (self._value(end) + height + slope.abs() * near)
        tilt = torch.where(right, 1.0, -1.0) * (self._derivative(end) - slope)
        tilt = tilt + 4 * error * (self._derivative(end).abs() + slope.abs())
        bend = ((1 + 8 * error) * self._largest_bend()).expand_as(near)
        touching = near == 0
        taylor = torch.where(touching, bend, _largest_ratio(rise, tilt, bend, near, width))
        # Where the second derivative is steep, near 0, that f falls says more.
        highest = self._value(start) * (1 + 4 * error) - height * (1 - 4 * error)
        highest = highest - (1 - 8 * error * torch.where(right, -1.0, 1.0)) * slope.abs() * (t - stop)
        falling = torch.where(touching, torch.inf, highest.clamp(min=0) / near.square())
        cells = torch.minimum(taylor, falling).clamp(min=0)
        # Beyond the last knot f(s) < f(t), and -f'(t) (s - t) is all that is left.
        last = (1 + 8 * self._rounding(self._knots[-1])) * slope.abs() / (self._knots[-1] - t)
        return torch.cat([cells, last], dim=1).flip(1).cummax(dim=1).values.flip(1)


def least_probability(log_threshold: float) -> float:
    """What a bound must reach not to be dismissed; 0, so that all do, where float64 is too coarse."""
    return math.exp(log_threshold) if log_threshold > LEAST_LOG_THRESHOLD else 0.0


@lru_cache(maxsize=8)
def _remembered(slope: float, offset: float) -> MomentBound:
    return MomentBound(slope, offset)


def _largest_ratio(rise: Tensor, tilt: Tensor, bend: Tensor, near: Tensor, width: Tensor) -> Tensor:
    """The largest (rise + tilt x + bend x^2) / (near + x)^2 for 0 <= x <= width (lemma 3).

    In u = 1 / (near + x) it is the parabola bend + linear u + quadratic u^2.
    """
    far = near + width
    ends = torch.maximum(rise / near.square(), (rise + tilt * width + bend * width.square()) / far.square())
    linear = tilt - 2 * bend * near
    quadratic = rise - tilt * near + bend * near.square()
    peak = -linear / (2 * quadratic)
    inside = (quadratic < 0) & (peak * near < 1) & (peak * far > 1)
    top = torch.where(inside, bend - linear.square() / (4 * quadratic), -torch.inf)
    rounding = ROUNDING * (bend + tilt.abs() / near + rise.abs() / near.square())
    return torch.maximum(ends, top) + rounding
