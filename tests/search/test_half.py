"""Middles kept as float16 leave every bound true, if lemma 6 is told how far they were moved by that.

Rounding moves a middle, as drawing its samples again does, for which the lemma allows SAMPLE_MARGIN * origin.
So the origin is raised by the longest step, measured in float64, and nothing else changes. Galleries keep
float32; this is what the halved index of docs/scaling.md rests on.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from provico.probability import MatchCurve
from provico.search import MomentBound, describe
from provico.search.exact.bounds import LEAST_LOG_THRESHOLD
from provico.search.exact.clouds import SAMPLE_MARGIN
from provico.search.exact.moments import Extents, hopeless_from, item_moments, squared_gaps

WIDTHS = st.sampled_from([0.0, 1e-3, 0.1, 1.0])
LENGTHS = st.sampled_from([0.01, 1.0, 100.0])
"""Of the middles, about their centre: the longer they are, the further they are moved."""


def in_half(middles: Tensor) -> tuple[Tensor, float]:
    """The middles as float16 keeps them, and what the origin must be raised by."""
    kept = middles.half().double()
    step = float((kept - middles).norm(dim=1).max()) * (1 + 2**-40)
    return kept, step / SAMPLE_MARGIN


def drawn(seed: int, width: float, length: float, dim: int) -> tuple[Tensor, Tensor]:
    """Clouds, and a query that is near the first of them."""
    generator = torch.Generator().manual_seed(seed)
    middles = length * torch.randn(40, 1, dim, generator=generator)
    samples = middles + width * torch.randn(40, 4, dim, generator=generator)
    return samples, samples[0] + width * torch.randn(4, dim, generator=generator)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**31), width=WIDTHS, length=LENGTHS, dim=st.sampled_from([1, 3, 64]))
def test_moments_hold(seed: int, width: float, length: float, dim: int) -> None:
    samples, query = drawn(seed, width, length, dim)
    mean, spread = describe(samples)
    centre = mean.mean(dim=0)
    kept, raised = in_half(mean - centre)
    origin = float(torch.cat([query[None], samples]).norm(dim=2).max())
    gaps, reaches = squared_gaps((query.double() - centre).float(), kept.float())
    found = item_moments(gaps, reaches, spread, dim=dim, origin=origin + raised)
    squared = (query.double()[:, None] - samples.double()[:, None]).square().sum(dim=3).flatten(1)
    assert (found.mean <= squared.mean(dim=1)).all()
    assert (found.var >= squared.var(dim=1, correction=0)).all()
    assert (found.least <= squared.amin(dim=1)).all()


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**31),
    width=WIDTHS,
    length=LENGTHS,
    slope=st.sampled_from([0.5, 3.0, 20.0]),
    threshold=st.sampled_from([-1e-9, -0.1, -1.0, -4.0, -30.0]),
)
def test_what_is_dismissed_does_not_reach_the_threshold(
    loop, seed: int, width: float, length: float, slope: float, threshold: float
) -> None:
    """By its distance alone, or by a bound of its own: against a loop over all pairs in float64."""
    samples, query = drawn(seed, width, length, 3)
    mean, spread = describe(samples)
    query_mean, query_spread = describe(query[None])
    centre = mean.mean(dim=0)
    kept, raised = in_half(mean - centre)
    origin = float(samples.norm(dim=2).max()) + raised
    bound = MomentBound(slope, 2.0)
    everyone = Extents.of_groups(spread, torch.zeros(len(samples), dtype=torch.long))
    middle = (query_mean - centre).float()
    radius = hopeless_from([threshold], bound, middle, query_spread, everyone, origin=origin)[0, 0]
    distances = (kept - middle.double()).square().sum(dim=1) + spread.mean_square
    gaps, reaches = squared_gaps((query.double() - centre).float(), kept.float())
    bounds = bound(item_moments(gaps, reaches, spread, dim=3, origin=origin))
    scores = torch.from_numpy(loop.scores(query, samples, MatchCurve(torch.tensor(slope), torch.tensor(2.0))))
    is_told_apart = scores > LEAST_LOG_THRESHOLD  # what is below, nothing dismisses
    assert (scores.exp() <= bounds * (1 + 1e-12))[is_told_apart].all()
    assert (scores[distances >= radius] < threshold).all()


@pytest.mark.parametrize("is_raised", [False, True])
def test_without_that_they_would_be_false(is_raised: bool) -> None:
    """A point at 100.02 is kept as 100, which makes the squared distance from 110.02 too large by 0.4."""
    samples = torch.tensor([[100.02], [-100.02]])[:, None]
    mean, spread = describe(samples)
    kept, raised = in_half(mean)
    gaps, reaches = squared_gaps(torch.tensor([[110.02]]), kept.float())
    found = item_moments(gaps, reaches, spread, dim=1, origin=110.02 + is_raised * raised)
    assert bool(found.mean[0] <= 100) is is_raised
