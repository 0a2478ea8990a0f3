"""What is claimed of the K x K squared distances against the distances, and radii against p."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from provico.probability import MatchCurve
from provico.search import MomentBound, describe
from provico.search.exact.moments import Extents, _ring_moments, hopeless_from, item_moments, squared_gaps

from .made_up import UNKNOWN


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**31),
    num_samples=st.sampled_from([1, 2, 7]),
    dim=st.integers(1, 20),
    width=st.sampled_from([0.0, 1e-4, 0.3, 30.0]),
    offset=st.sampled_from([0.0, 1e3]),
)
def test_item_moments_enclose_the_distances(seed, num_samples, dim, width, offset):
    generator = torch.Generator().manual_seed(seed)
    middles = offset + torch.randn(6, 1, dim, generator=generator)
    samples = middles + width * torch.randn(6, num_samples, dim, generator=generator)
    query = (
        samples[0] + torch.randn(num_samples, dim, generator=generator) * torch.tensor([0.0, 1.0])[seed % 2]
    )
    mean, spread = describe(samples)
    centre = mean.mean(dim=0)
    gaps, reaches = squared_gaps((query.double() - centre).float(), (mean - centre).float())
    origin = float(torch.cat([query.unsqueeze(0), samples]).norm(dim=2).max())
    found = item_moments(gaps, reaches, spread, dim=dim, origin=origin, rest_var=UNKNOWN)
    size = 1e-3 + 4 * torch.cat([query.unsqueeze(0), samples]).sub(centre).square().sum(dim=2).max()
    for number, video in enumerate(samples):
        squared = (query.double().unsqueeze(1) - video.double()).square().sum(dim=2)
        assert found.mean[number] <= squared.mean()
        assert found.var[number] >= squared.var(correction=0)
        assert found.least[number] <= squared.min()
        # And not by much, in units of all there is.
        assert found.mean[number] >= squared.mean() - 1e-3 * (size + 0.1 * offset)
        assert found.var[number].sqrt() <= 4 * size


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**31),
    num_samples=st.sampled_from([1, 2, 7]),
    dim=st.integers(1, 6),
    widths=st.tuples(st.sampled_from([0.0, 0.3, 3.0]), st.sampled_from([0.0, 0.3, 3.0])),
)
def test_moments_of_a_ring_hold_for_each_of_its_videos(seed, num_samples, dim, widths):
    """In few dimensions, with the query in line with the longest axis, it is nearly as bad as it can be."""
    generator = torch.Generator().manual_seed(seed)
    samples = widths[0] * torch.randn(5, num_samples, dim, generator=generator)
    query = widths[1] * torch.randn(num_samples, dim, generator=generator)
    samples[:, :, 1:] *= 0.1
    query[:, 1:] *= 0.1
    query[:, 0] += 4 * (seed % 2) * torch.rand(1, generator=generator)
    mean, spread = describe(samples)
    query_mean, query_spread = describe(query.unsqueeze(0))
    stage_one = (mean - query_mean).square().sum(dim=1) + spread.mean_square
    everyone = Extents.of_groups(spread, torch.zeros(5, dtype=torch.long))
    whole = _ring_moments(query_spread, everyone, stage_one.min().view(1), stage_one.max().view(1))
    for number, video in enumerate(samples):
        place = slice(number, number + 1)
        alone = Extents.of_groups(spread[place], torch.zeros(1, dtype=torch.long))
        own = _ring_moments(query_spread, alone, stage_one[place], stage_one[place])
        squared = (query.double().unsqueeze(1) - video.double()).square().sum(dim=2)
        for found in (whole, own):
            assert found.mean <= squared.mean() + 1e-9
            assert found.var >= squared.var(correction=0) - 1e-9
            assert found.least <= squared.min() + 1e-9


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**31),
    width=st.sampled_from([0.0, 0.05, 0.5, 2.0]),
    slope=st.sampled_from([0.5, 3.0, 20.0]),
    offset=st.sampled_from([-2.0, 1.0, 8.0]),
    threshold=st.sampled_from([-1e-9, -0.1, -1.0, -4.0, -30.0]),
)
def test_no_video_beyond_the_radius_reaches_the_threshold(loop, seed, width, slope, offset, threshold):
    generator = torch.Generator().manual_seed(seed)
    num_videos, num_samples, dim = 60, 3, 4
    widths = width * torch.rand(num_videos, 1, 1, generator=generator)
    lengths = 4 * torch.rand(num_videos, 1, 1, generator=generator) * max(1.0, offset) / slope
    directions = torch.nn.functional.normalize(torch.randn(num_videos, 1, dim, generator=generator), dim=2)
    samples = lengths * directions + widths * torch.randn(num_videos, num_samples, dim, generator=generator)
    query = width * torch.randn(num_samples, dim, generator=generator)
    mean, spread = describe(samples)
    query_mean, query_spread = describe(query.unsqueeze(0))
    group = torch.arange(num_videos) % 3
    radii = hopeless_from(
        [threshold],
        MomentBound(slope, offset),
        (query_mean - mean.mean(dim=0)).float(),
        query_spread,
        Extents.of_groups(spread, group),
        origin=float(samples.norm(dim=2).max()),
    )
    squared = (mean - query_mean).square().sum(dim=1) + spread.mean_square
    scores = loop.scores(query, samples, MatchCurve(torch.tensor(slope), torch.tensor(offset)))
    assert radii.shape == (1, 3)
    for number in range(num_videos):
        if squared[number] > radii[0, group[number]] + 1e-4:
            assert scores[number] < threshold


def test_radii_are_worth_having_and_infinite_where_nothing_is_known():
    samples = torch.randn(50, 5, 8, generator=torch.Generator().manual_seed(0)) * 0.1
    mean, spread = describe(samples)
    extents = Extents.of_groups(spread, torch.zeros(50, dtype=torch.long))
    thresholds = [math.log(0.5), -700.0, -math.inf]
    radii = hopeless_from(
        thresholds, MomentBound(5.0, 5.0), mean[:3].float(), spread[:3], extents, origin=1.0
    ).squeeze(1)
    # One half is reached at a distance of one, for clouds that are small against it.
    assert radii[0].item() == pytest.approx(1.0, abs=0.35)
    assert radii[0] > 1 - 2 * spread.mean_square.max()
    assert radii[1].item() == radii[2].item() == math.inf
