"""The few numbers of a cloud against loops over its samples."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from provico.search import Spread, describe


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**31),
    num_samples=st.integers(1, 12),
    dim=st.integers(1, 9),
    offset=st.sampled_from([0.0, 1.0, 1e4]),
)
def test_spread_covers_the_samples_and_hardly_more(seed, num_samples, dim, offset):
    generator = torch.Generator().manual_seed(seed)
    samples = offset + torch.randn(3, num_samples, dim, generator=generator)
    mean, spread = describe(samples)
    directions = torch.randn(200, dim, generator=generator, dtype=torch.float64)
    directions /= directions.norm(dim=1, keepdim=True)
    size = 1e-5 * (1 + offset)
    for number, video in enumerate(samples.double()):
        assert torch.allclose(mean[number], sum(video) / num_samples, rtol=1e-12)
        deviations = video - mean[number]
        squares = deviations.square().sum(dim=1)
        assert spread.mean_square[number].item() == pytest.approx(squares.mean().item(), rel=1e-9, abs=1e-12)
        assert spread.radius[number] >= squares.max().sqrt()
        assert spread.radius[number].item() == pytest.approx(squares.max().sqrt().item(), rel=1e-5, abs=size)
        square_std = squares.std(correction=0)
        assert spread.square_std[number] >= square_std
        assert spread.square_std[number].item() == pytest.approx(square_std.item(), rel=1e-5, abs=10 * size)
        along = (deviations @ directions.T).std(dim=0, correction=0)
        assert (spread.axis_std[number] >= along).all()
        covariance = deviations.T @ deviations / num_samples
        largest = torch.linalg.matrix_norm(covariance, ord=2).sqrt()
        assert spread.axis_std[number].item() == pytest.approx(largest.item(), rel=1e-5, abs=size)
        assert spread.reach[number] >= video.norm(dim=1).max()


def test_videos_can_be_described_in_parts():
    samples = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0))
    _, whole = describe(samples)
    parts = Spread.joined([describe(samples[:2])[1], describe(samples[2:])[1]])
    assert len(parts) == 5
    assert torch.equal(parts.axis_std, whole.axis_std)
    assert torch.equal(whole[torch.tensor([3])].radius, whole.radius[3:4])


@settings(max_examples=30)
@given(seed=st.integers(0, 2**31), offset=st.sampled_from([0.0, 10.0]))
def test_spread_also_covers_samples_that_were_drawn_where_rounding_differs(seed, offset):
    generator = torch.Generator().manual_seed(seed)
    samples = offset + torch.randn(3, 6, 5, generator=generator)
    _, spread = describe(samples)
    # Every number one step of float32 up or down.
    _, again = describe(torch.nextafter(samples, torch.randn(samples.shape, generator=generator) * torch.inf))
    own = 2 * 2.0**-21 * again.reach
    assert (again.radius - own <= spread.radius).all()
    assert (again.axis_std - own <= spread.axis_std).all()
    assert (again.square_std - own * (2 * again.radius + own) <= spread.square_std).all()
