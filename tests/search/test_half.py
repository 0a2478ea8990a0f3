"""Middles that are kept as float16 leave every bound true, since lemma 6 is told how far they were moved.

Rounding moves a middle, as drawing its samples again does, for which the lemma allows SAMPLE_MARGIN * origin.
So the origin is raised by the longest step, measured in float64, and nothing else changes.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from provico.probability import MatchCurve
from provico.search import MomentBound, describe
from provico.search.exact import gallery
from provico.search.exact.bounds import LEAST_LOG_THRESHOLD
from provico.search.exact.clouds import SAMPLE_MARGIN
from provico.search.exact.gallery import Gallery
from provico.search.exact.moments import Extents, hopeless_from, item_moments, squared_gaps
from provico.search.exact.rounded import Halved

from .made_up import UNKNOWN

WIDTHS = st.sampled_from([0.0, 1e-3, 0.1, 1.0])
LENGTHS = st.sampled_from([0.01, 1.0, 100.0])
"""Of the middles, about their centre: the longer they are, the further they are moved."""


def in_half(middles: Tensor) -> tuple[Tensor, float]:
    """The middles as they are kept, and what the origin must be raised by."""
    halves = Halved(*middles.shape, longest=float(middles.norm(dim=1).max()))
    halves.put(0, middles)
    kept = halves[torch.arange(len(middles))].double()
    assert float((kept - middles).norm(dim=1).max()) <= halves.step
    return kept, halves.step / SAMPLE_MARGIN


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
    found = item_moments(gaps, reaches, spread, dim=dim, origin=origin + raised, rest_var=UNKNOWN)
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
    bounds = bound(item_moments(gaps, reaches, spread, dim=3, origin=origin, rest_var=UNKNOWN))
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
    found = item_moments(gaps, reaches, spread, dim=1, origin=110.02 + is_raised * raised, rest_var=UNKNOWN)
    assert bool(found.mean[0] <= 100) is is_raised


@pytest.mark.parametrize("longest", [0.0, 1e-30, 1.0, 65504.0, 1e15])
def test_any_length_fits(longest: float) -> None:
    vectors = torch.randn(50, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    vectors = longest * torch.nn.functional.normalize(vectors, dim=1)
    kept, raised = in_half(vectors)
    assert kept.isfinite().all()
    assert raised * SAMPLE_MARGIN <= 1e-3 * longest + 1e-20


def test_a_gallery_that_is_made_bit_by_bit_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of means that lie in a file, so that never all of them are in memory."""
    samples, _ = drawn(0, 0.1, 1.0, 16)
    samples = samples.repeat(12, 1, 1) + 0.01 * torch.randn(
        480, 4, 16, generator=torch.Generator().manual_seed(1)
    )
    whole = Gallery.of_samples(samples)
    monkeypatch.setattr(gallery, "VIDEOS_AT_ONCE", 100)
    parts = Gallery.of_samples(samples)
    torch.testing.assert_close(parts.centre, whole.centre, rtol=1e-12, atol=0)
    assert parts.raised == pytest.approx(whole.raised)
    assert len(parts.scan.rounded) == len(whole.scan.rounded) == 512
    everyone = torch.arange(480)
    torch.testing.assert_close(parts.scan.halves[everyone], whole.scan.halves[everyone], rtol=1e-3, atol=1e-3)
    assert parts.scan.halves[everyone].dtype == torch.float32
    moved = parts.scan.halves[everyone].double() + parts.centre - samples.double().mean(dim=1)[parts.rows]
    assert float(moved.norm(dim=1).max()) <= parts.raised * SAMPLE_MARGIN
