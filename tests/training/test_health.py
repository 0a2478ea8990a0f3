"""Laws of the label-free numbers, and what makes the guard end a run."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from provico import metrics
from provico.errors import UnhealthyRunError
from provico.probability import Gaussian, Mixture
from provico.training import health
from provico.training.health import Health, HealthGuard, examine

seeds = st.integers(0, 2**31)
few = settings(max_examples=15)


def make(seed: int, num_videos: int = 7, num_clips: int = 3, dim: int = 5) -> Mixture:
    generator = torch.Generator().manual_seed(seed)
    shape = (2, num_videos, num_clips, dim)
    mean, log_var = torch.randn(shape, generator=generator, dtype=torch.float64)
    return Mixture(Gaussian(mean, log_var))


def close(a: Health, b: Health) -> None:
    for name, value in a.record().items():
        assert value == pytest.approx(b.record()[name], rel=1e-9, nan_ok=True), name


# --- examine -----------------------------------------------------------------------------------------------


@few
@given(seed=seeds, num_videos=st.integers(2, 9), num_clips=st.integers(1, 4), dim=st.integers(1, 12))
def test_the_numbers_are_those_of_loops(seed: int, num_videos: int, num_clips: int, dim: int) -> None:
    videos = make(seed, num_videos, num_clips, dim)
    found = examine(videos)
    means, variances = videos.clips.mean.numpy(), np.exp(videos.clips.log_var.numpy())

    centres = [clips.mean(axis=0) for clips in means]
    totals = [v.mean(axis=0) + m.var(axis=0) for m, v in zip(means, variances, strict=True)]
    uncertainty = [np.prod(total) ** (1 / dim) for total in totals]
    assert found.uncertainty_low == pytest.approx(np.quantile(uncertainty, 0.1))
    assert found.uncertainty_median == pytest.approx(np.median(uncertainty))
    assert found.uncertainty_high == pytest.approx(np.quantile(uncertainty, 0.9))
    assert found.noise == pytest.approx(np.median([total.sum() for total in totals]))
    signal = np.mean([np.sum((a - b) ** 2) for a, b in combinations(centres, 2)])
    assert found.signal == pytest.approx(signal)
    assert found.noise_to_signal == pytest.approx(found.noise / signal)

    singular = np.linalg.svd(np.array(centres) - np.mean(centres, axis=0), compute_uv=False)
    shares = singular[singular > 1e-9] / singular.sum()
    assert found.effective_rank == pytest.approx(np.exp(-np.sum(shares * np.log(shares))), rel=1e-4)

    unit = means / np.linalg.norm(means, axis=-1, keepdims=True)
    if num_clips > 1:
        own = [np.sum((a - b) ** 2) for clips in unit for a, b in combinations(clips, 2)]
        assert found.alignment == pytest.approx(np.mean(own))
    else:
        assert math.isnan(found.alignment)
    other = [np.exp(-2 * np.sum((a - b) ** 2)) for x, y in combinations(unit, 2) for a in x for b in y]
    assert found.uniformity == pytest.approx(np.log(np.mean(other)))


@few
@given(seed=seeds)
def test_turning_all_means_or_reordering_changes_nothing(seed: int) -> None:
    videos = make(seed)
    clips = videos.clips
    # A rotation mixes the coordinates' variances unless they are equal, so make them so.
    even = Gaussian(clips.mean, clips.log_var.mean(dim=-1, keepdim=True).expand_as(clips.mean))
    turn = torch.linalg.qr(make(seed + 1, 1, 5, 5).clips.mean[0]).Q
    plain, turned = examine(Mixture(even)), examine(Mixture(Gaussian(even.mean @ turn, even.log_var)))
    for name in ("noise", "signal", "noise_to_signal", "effective_rank", "alignment", "uniformity"):
        assert getattr(turned, name) == pytest.approx(getattr(plain, name)), name

    generator = torch.Generator().manual_seed(seed)
    order, inside = torch.randperm(7, generator=generator), torch.randperm(3, generator=generator)
    shuffled = Gaussian(clips.mean[order][:, inside], clips.log_var[order][:, inside])
    close(examine(videos), examine(Mixture(shuffled)))


@few
@given(seed=seeds, log_scale=st.floats(-6, 6))
def test_units_do_not_matter_to_ratios(seed: int, log_scale: float) -> None:
    clips = make(seed).clips
    scaled = Gaussian(clips.mean * math.exp(log_scale), clips.log_var + 2 * log_scale)
    plain, other = examine(Mixture(clips)), examine(Mixture(scaled))
    for name in ("noise_to_signal", "effective_rank", "alignment", "uniformity"):
        assert getattr(other, name) == pytest.approx(getattr(plain, name)), name
    assert other.signal == pytest.approx(plain.signal * math.exp(2 * log_scale))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_point_has_rank_one_and_no_signal(dtype: torch.dtype) -> None:
    point = torch.randn(1, 1, 6, dtype=dtype, generator=torch.Generator().manual_seed(0)).expand(9, 2, 6)
    found = examine(Mixture(Gaussian(point, torch.zeros_like(point))))
    assert found.effective_rank == 1.0
    assert found.signal == pytest.approx(0, abs=1e-20)
    assert found.noise_to_signal > 1e9
    assert found.alignment == pytest.approx(0, abs=1e-12)
    assert found.uniformity == pytest.approx(0, abs=1e-12)


def test_a_line_has_rank_one_and_a_cloud_nearly_all() -> None:
    generator = torch.Generator().manual_seed(0)
    along = torch.randn(50, 1, 1, generator=generator) * torch.randn(16, generator=generator)
    assert examine(Mixture(Gaussian(along, along))).effective_rank == pytest.approx(1, abs=1e-3)
    cloud = torch.randn(2000, 1, 16, generator=generator)
    assert 15.9 < examine(Mixture(Gaussian(cloud, cloud))).effective_rank <= 16
    few_videos = torch.randn(5, 1, 64, generator=generator)
    assert 3.9 < examine(Mixture(Gaussian(few_videos, few_videos))).effective_rank <= 4


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    videos = make(3)
    whole = examine(videos)
    monkeypatch.setattr(metrics, "BLOCK_ELEMENTS", 50)  # two rows of the 21 clips at a time
    close(examine(videos), whole)


def test_autocast_and_gradients_stay_outside() -> None:
    clips = make(5).clips
    mean = clips.mean.float().requires_grad_()
    plain = examine(Mixture(Gaussian(mean, clips.log_var.float())))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert examine(Mixture(Gaussian(mean, clips.log_var.float()))) == plain


def test_what_is_not_finite_is_said_not_hidden() -> None:
    clips = make(0).clips
    clips.mean[2, 1, 0] = math.nan
    found = examine(Mixture(clips))
    assert math.isnan(found.effective_rank)
    assert math.isnan(found.signal)
    assert math.isnan(found.uniformity)


def test_one_video_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="at least two videos"):
        examine(make(0, num_videos=1))


# --- guard -------------------------------------------------------------------------------------------------


def batch(*, spread: float = 1.0, variance: float = 0.1, rank: int = 16) -> Health:
    """Health of 32 videos of unit scale about a common point: real tensors, sick on request."""
    generator = torch.Generator().manual_seed(1)
    mean = torch.randn(32, 1, rank, generator=generator) @ torch.randn(rank, 16, generator=generator)
    mean = 1.0 + spread * mean.expand(32, 2, 16) / math.sqrt(rank)
    return examine(Mixture(Gaussian(mean, torch.full_like(mean, math.log(variance)))))


HEALTHY = batch()
SICK = {
    "collapsed to a point": (batch(spread=1e-3, variance=1e-8), 0.0, "the means have collapsed"),
    "collapsed to a line": (batch(rank=1), 0.0, "they span 1.0 directions"),
    "noise": (batch(variance=20.0), 0.0, "the noise dominates the signal"),
    "mining": (HEALTHY, 0.5, "mining has run away: 50%"),
    "not a number": (replace(HEALTHY, uniformity=math.nan), 0.0, "uniformity nan"),
}
sick = pytest.mark.parametrize(("found", "share", "said"), SICK.values(), ids=SICK.keys())


def test_a_healthy_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PATIENCE", 1)
    guard = HealthGuard(warmup_steps=0)
    for step in range(20):
        guard.check(step, HEALTHY, mined_share=0.1)
        guard.check_finite(step, loss=-5.0, gradient_norm=1e4, parts={"loss/kl": 0.0})


@sick
def test_a_lasting_symptom_ends_the_run(
    found: Health, share: float, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PATIENCE", 3)
    guard = HealthGuard(warmup_steps=100)
    for step in (98, 99, 100, 110):  # the first two are warm-up and do not count
        guard.check(step, found, share)
    with pytest.raises(UnhealthyRunError, match=said) as raised:
        guard.check(120, found, share)
    assert "At step 120, and for 3 records in a row" in str(raised.value)
    assert "--mutual-top" in str(raised.value)
    assert "--on-unhealthy rewind" in str(raised.value)


@sick
def test_one_good_record_starts_the_count_anew(
    found: Health, share: float, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PATIENCE", 3)
    guard = HealthGuard(warmup_steps=0)
    for step in range(30):
        if step % 3 == 2:
            guard.check(step, HEALTHY, 0.0)
        else:
            guard.check(step, found, share)


def test_the_cause_is_named_before_its_effects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PATIENCE", 1)
    guard = HealthGuard(warmup_steps=0)
    with pytest.raises(UnhealthyRunError, match="mining has run away"):
        guard.check(1, batch(spread=1e-3), mined_share=1.0)


def test_the_rank_of_tiny_batches_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PATIENCE", 1)
    line = batch(rank=1)
    HealthGuard(warmup_steps=0, num_directions=1).check(1, line)
    with pytest.raises(UnhealthyRunError, match="collapsed"):
        HealthGuard(warmup_steps=0, num_directions=15).check(1, line)


@sick
@pytest.mark.parametrize("stop_after", [0, 1, 2, 3])
def test_a_resumed_guard_counts_on(
    found: Health, share: float, said: str, stop_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PATIENCE", 4)
    first = HealthGuard(warmup_steps=0)
    for step in range(stop_after):
        first.check(step, found, share)
    resumed = HealthGuard(warmup_steps=0)
    resumed.load_state_dict(first.state_dict())
    assert resumed.state_dict() == first.state_dict()
    for step in range(stop_after, 3):
        resumed.check(step, found, share)
    with pytest.raises(UnhealthyRunError, match=said):
        resumed.check(3, found, share)


def test_the_state_is_a_copy_of_plain_numbers() -> None:
    guard = HealthGuard(warmup_steps=0)
    before = guard.state_dict()
    guard.check(0, HEALTHY, mined_share=1.0)
    assert before == {"runaway": 0, "collapse": 0, "noise": 0}
    assert guard.state_dict() == {"runaway": 1, "collapse": 0, "noise": 0}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_ends_the_run_at_once(bad: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PATIENCE", 1000)
    guard = HealthGuard(warmup_steps=1000)
    with pytest.raises(UnhealthyRunError, match=f"not finite at step 7: loss/kl is {bad}. Lower") as raised:
        guard.check_finite(7, bad, bad, {"loss/kl": bad, "loss/regulariser": 0.5})
    assert "--learning-rate" in str(raised.value)
    assert "--precision fp32" in str(raised.value)
    with pytest.raises(UnhealthyRunError, match=f"The loss is not finite at step 7: it is {bad}"):
        guard.check_finite(7, bad, 1.0, {})
    with pytest.raises(UnhealthyRunError, match=f"norm of its gradient is {bad}"):
        guard.check_finite(7, 0.25, bad, {"loss/kl": 1.0})
