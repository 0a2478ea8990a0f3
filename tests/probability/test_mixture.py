"""Laws of the video mixture."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from provico.probability import Gaussian, Mixture

seeds = st.integers(0, 2**31)


def make(seed: int, num_videos: int = 3, num_clips: int = 4, dim: int = 5) -> Mixture:
    generator = torch.Generator().manual_seed(seed)
    shape = (2, num_videos, num_clips, dim)
    mean, log_var = torch.randn(shape, generator=generator, dtype=torch.float64)
    return Mixture(Gaussian(mean, log_var))


@given(seed=seeds, num_clips=st.integers(1, 6))
def test_moments_are_those_of_torch(seed: int, num_clips: int) -> None:
    mixture = make(seed, num_clips=num_clips)
    clips = torch.distributions.Normal(mixture.clips.mean.transpose(1, 2), mixture.clips.std.transpose(1, 2))
    even = torch.distributions.Categorical(logits=torch.zeros_like(clips.mean))
    truth = torch.distributions.MixtureSameFamily(even, clips)
    torch.testing.assert_close(mixture.mean, truth.mean)
    torch.testing.assert_close(mixture.moment_matched.mean, truth.mean)
    torch.testing.assert_close(mixture.moment_matched.var, truth.variance)
    torch.testing.assert_close(mixture.within + mixture.between, truth.variance)


@given(seed=seeds)
def test_the_two_parts_have_their_meaning(seed: int) -> None:
    mixture = make(seed)
    agreeing = Mixture(Gaussian(mixture.mean.unsqueeze(1).expand(-1, 4, -1), mixture.clips.log_var))
    assert agreeing.between.max() < 1e-30
    torch.testing.assert_close(agreeing.within, mixture.clips.var.mean(dim=1))
    certain = Mixture(Gaussian(mixture.clips.mean, torch.full_like(mixture.clips.mean, -60.0)))
    torch.testing.assert_close(certain.moment_matched.var, mixture.clips.mean.var(dim=1, correction=0))


@given(seed=seeds, num_clips=st.integers(1, 6), spread=st.floats(0.0, 10.0))
def test_disagreement_is_what_the_total_has_more(seed: int, num_clips: int, spread: float) -> None:
    mixture = make(seed, num_clips=num_clips)
    mixture = Mixture(Gaussian(spread * mixture.clips.mean, mixture.clips.log_var))
    total = mixture.clips.var.mean(dim=1) + mixture.clips.mean.var(dim=1, correction=0)
    torch.testing.assert_close(mixture.total_uncertainty, total.prod(dim=1) ** (1 / 5))
    torch.testing.assert_close(
        mixture.uncertainty, mixture.clips.var.prod(dim=2).prod(dim=1) ** (1 / 5 / num_clips)
    )
    torch.testing.assert_close(mixture.uncertainty + mixture.disagreement, mixture.total_uncertainty)
    assert (mixture.disagreement >= 0).all()


@given(seed=seeds, num_clips=st.integers(1, 6))
def test_departures_of_clips_add_up_to_their_spread(seed: int, num_clips: int) -> None:
    mixture = make(seed, num_clips=num_clips)
    assert mixture.departure.shape == mixture.clips.mean.shape[:-1]
    torch.testing.assert_close(mixture.departure.mean(dim=-1), mixture.between.mean(dim=-1))


def test_a_small_disagreement_is_not_lost_in_rounding() -> None:
    """In float32, a hundred-millionth of the variance: as a difference of two numbers it would be zero."""
    mean = torch.tensor([[[1e-4], [-1e-4]]])
    mixture = Mixture(Gaussian(mean, torch.zeros_like(mean)))
    assert mixture.disagreement.item() == pytest.approx(1e-8, rel=1e-5)
    assert (mixture.total_uncertainty - mixture.uncertainty).item() == 0
    agreeing = Mixture(Gaussian(mean[:, :1].expand(-1, 2, -1), torch.zeros_like(mean)))
    assert agreeing.disagreement.item() == 0


@given(seed=seeds, order=st.permutations(range(4)))
def test_the_order_of_clips_does_not_matter(seed: int, order: list[int]) -> None:
    mixture = make(seed)
    shuffled = Mixture(Gaussian(mixture.clips.mean[:, order], mixture.clips.log_var[:, order]))
    torch.testing.assert_close(shuffled.moment_matched.mean, mixture.moment_matched.mean)
    torch.testing.assert_close(shuffled.moment_matched.log_var, mixture.moment_matched.log_var)


def test_no_cancellation_far_from_the_origin() -> None:
    mean = torch.tensor([[[1000.0], [1000.5]]])
    mixture = Mixture(Gaussian(mean, torch.full_like(mean, math.log(1e-3))))
    assert mixture.moment_matched.var.item() == pytest.approx(0.0635, rel=1e-5)
    printed = (mixture.clips.var + mean.square()).mean(dim=1) - mean.mean(dim=1).square()
    assert abs(printed.item() - 0.0635) > 1e-3  # what the appendix's form gives in float32


@pytest.mark.parametrize("log_var", [-40.0, 0.0, 40.0])
def test_one_clip_is_its_own_video_and_gradients_are_finite(log_var: float) -> None:
    mean = torch.ones(2, 1, 3, requires_grad=True)
    spread = torch.full((2, 1, 3), log_var, requires_grad=True)
    video = Mixture(Gaussian(mean, spread)).moment_matched
    assert torch.equal(video.log_var, spread[:, 0])
    (video.mean.sum() + video.log_var.sum()).backward()
    assert torch.equal(mean.grad, torch.ones_like(mean))
    assert torch.equal(spread.grad, torch.ones_like(spread))


def test_gradients_are_right() -> None:
    mixture = make(0, num_videos=2, num_clips=3, dim=2)
    inputs = (mixture.clips.mean.requires_grad_(), mixture.clips.log_var.requires_grad_())

    def moments(mean: torch.Tensor, log_var: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        video = Mixture(Gaussian(mean, log_var)).moment_matched
        return video.mean, video.log_var

    def draw(mean: torch.Tensor, log_var: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(3)
        return Mixture(Gaussian(mean, log_var)).sample_clips(5, generator=generator).samples

    assert torch.autograd.gradcheck(moments, inputs)
    assert torch.autograd.gradcheck(draw, inputs)


def test_samples_have_the_moments_of_the_mixture() -> None:
    mixture = make(5, num_videos=2, num_clips=3, dim=2)
    generator = torch.Generator().manual_seed(0)
    drawn = mixture.sample_clips(150_000, generator=generator)
    truth = mixture.moment_matched
    error = (drawn.samples.mean(dim=1) - truth.mean) / (truth.std / 150_000**0.5)
    assert error.abs().max() < 5  # standard errors
    torch.testing.assert_close(drawn.samples.var(dim=1), truth.var, rtol=0.03, atol=0)
    # Samples that say they come from a clip have the moments of that clip.
    own = drawn.samples[0][drawn.clip[0] == 2]
    clip = Gaussian(mixture.clips.mean[0, 2], mixture.clips.log_var[0, 2])
    assert ((own.mean(dim=0) - clip.mean) / (clip.std / len(own) ** 0.5)).abs().max() < 5
    torch.testing.assert_close(own.var(dim=0), clip.var, rtol=0.05, atol=0)


@given(seed=seeds, num_samples=st.integers(1, 11))
def test_samples_are_dealt_evenly(seed: int, num_samples: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    drawn = make(seed).sample_clips(num_samples, generator=generator)
    counts = torch.nn.functional.one_hot(drawn.clip, 4).sum(dim=1)
    assert int(counts.max() - counts.min()) <= 1


def test_what_does_not_divide_goes_to_every_clip_alike() -> None:
    drawn = make(0, num_videos=1, num_clips=3).clips
    many = Mixture(Gaussian(drawn.mean.expand(30_000, -1, -1), drawn.log_var.expand(30_000, -1, -1)))
    clip = many.sample_clips(4, generator=torch.Generator().manual_seed(0)).clip
    shares = torch.bincount(clip.flatten(), minlength=3) / clip.numel()
    assert (shares - 1 / 3).abs().max() < 0.005


def test_a_look_without_gradient_costs_no_later_one_its_gradient() -> None:
    mixture = Mixture(Gaussian(torch.randn(2, 3, 4), torch.randn(2, 3, 4, requires_grad=True)))
    with torch.no_grad():
        assert not mixture.moment_matched.log_var.requires_grad
    assert mixture.moment_matched.log_var.requires_grad


def test_a_mixture_needs_clips() -> None:
    with pytest.raises(ValueError, match="at least one clip"):
        Mixture(Gaussian(torch.zeros(3, 0, 2), torch.zeros(3, 0, 2)))
