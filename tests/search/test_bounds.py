"""The bound on p against p itself, for every shape of curve and the worst sets of distances."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from provico.errors import ConfigError
from provico.search import DistanceMoments, MomentBound

slopes = st.floats(-4, 4).map(lambda power: 10.0**power)
offsets = st.one_of(st.floats(-50, 60), st.sampled_from([-1000.0, 0.0, 200.0, 1000.0]))


def match(squared, slope: float, offset: float):
    """f, written out."""
    return np.exp(-np.logaddexp(0, slope * np.sqrt(squared + 1e-6) - offset))


def moments(mean: float, var: float, least: float) -> DistanceMoments:
    return DistanceMoments(*(torch.tensor([number], dtype=torch.float64) for number in (mean, var, least)))


@settings(max_examples=300)
@given(
    slope=slopes,
    offset=offsets,
    seed=st.integers(0, 2**31),
    # In units of the distance at which the curve has fallen to one half.
    middle=st.floats(0, 4),
    spread=st.floats(0, 3),
    num=st.integers(1, 100),
    shape=st.sampled_from(["even", "tail", "two"]),
)
def test_no_set_of_distances_exceeds_its_bound(slope, offset, seed, middle, spread, num, shape):
    rng = np.random.default_rng(seed)
    noise = {
        "even": rng.uniform(-1, 1, num),
        "tail": rng.standard_t(1.5, num),
        "two": rng.choice([-1.0, 20.0], num, p=[0.05, 0.95]),
    }[shape]
    squared = np.square((middle + spread * noise) * max(1.0, abs(offset)) / slope)
    # Below e^-600 nothing is claimed.
    p = match(squared, slope, offset).mean() * (1 - 1e-12) - math.exp(-600)
    bound = MomentBound(slope, offset)
    assert bound(moments(squared.mean(), squared.var(), squared.min())).item() >= p
    # To know less is to be less sure, never wrong.
    vague = moments(0.9 * squared.mean(), 1.2 * squared.var(), 0.5 * squared.min())
    assert bound(vague).item() >= p
    assert bound.at_least(torch.tensor(squared.min())).item() >= p


@pytest.mark.parametrize(
    ("slope", "offset"), [(0.96, 13.2), (5.0, 5.0), (20.0, 8.0), (2.0, -3.0), (30.0, 30.0)]
)
def test_parabolas_lie_above_the_curve_and_touch_it(slope, offset):
    bound = MomentBound(slope, offset)
    squared = torch.linspace(0, 1.2 * float(bound._knots[-1]) ** 0.5, 20001, dtype=torch.float64).square()
    curve = torch.from_numpy(match(squared.numpy(), slope, offset))
    for row in (0, 40, 200, 400):
        beyond = squared >= bound._knots[row]
        gap = squared[beyond].unsqueeze(1) - bound._tangents
        above = (
            bound._heights
            + bound._slopes * gap
            + bound._bends[row] * gap.square()
            - curve[beyond].unsqueeze(1)
        )
        assert (above >= -1e-15).all()
        # Each is the lowest: it also touches the curve away from t, or at the end of what it covers.
        needed = torch.where(
            gap.abs() > 1e-2 * bound._tangents, -(above - bound._bends[row] * gap.square()), 0
        )
        slack = bound._bends[row] / (needed / gap.square()).nan_to_num(0).amax(dim=0)
        assert slack[(bound._heights > 1e-6) & (bound._heights < 1 - 1e-6)].median() < 1.05


@pytest.mark.parametrize(("slope", "offset"), [(0.96, 13.2), (5.0, 5.0), (20.0, 8.0)])
@pytest.mark.parametrize("relative", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("relative_std", [0.1, 0.2, 0.4])
def test_the_bound_is_nearly_the_least_there_is(slope, offset, relative, relative_std):
    """Some two distances with the same mean, variance and least come close to it."""
    mean = (relative * offset / slope) ** 2
    std = relative_std * mean
    share = np.linspace(1e-4, 0.9999, 20001)  # of the smaller one
    low, high = mean - std * np.sqrt((1 - share) / share), mean + std * np.sqrt(share / (1 - share))
    p = np.where(low >= 0, share * match(low.clip(0), slope, offset), 0)
    p = np.where(low >= 0, p + (1 - share) * match(high, slope, offset), 0).max()
    found = MomentBound(slope, offset)(moments(mean, std**2, 0.0)).item()
    assert p <= found <= 1.2 * p


def test_curves_that_do_not_fall_are_refused():
    for slope, offset in ((0.0, 1.0), (-1.0, 1.0), (math.nan, 1.0), (1.0, math.inf)):
        with pytest.raises(ConfigError, match="positive slope"):
            MomentBound(slope, offset)
