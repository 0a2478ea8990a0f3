"""The match probability against its definition, and its laws."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from provico.errors import ConfigError
from provico.probability import (
    Gaussian,
    MatchCurve,
    MatchLogProbabilities,
    Mixture,
    log_match_probability,
    match_log_probabilities,
    matching,
)

seeds = st.integers(0, 2**31)


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def curve(a: float = 1.3, b: float = 2.0, sigmoid_scale: float = 1.0) -> MatchCurve:
    return MatchCurve(
        torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64), sigmoid_scale
    )


def probability(z: Tensor, y: Tensor, curve: MatchCurve) -> float:
    """s(b - a |z - y|) of one sample pair, written out."""
    distance = math.sqrt(float((z - y).square().sum()) + 1e-6)
    return 1 / (1 + math.exp(-curve.sigmoid_scale * (float(curve.b) - float(curve.a) * distance)))


@given(seed=seeds, sigmoid_scale=st.sampled_from([1.0, 2.0]))
def test_is_the_mean_over_all_sample_pairs(seed: int, sigmoid_scale: float) -> None:
    samples_a, samples_b, shape = (
        draw(seed, 3, 4, 2),
        draw(seed + 1, 2, 5, 2),
        curve(sigmoid_scale=sigmoid_scale),
    )
    match = log_match_probability(samples_a, samples_b, curve=shape)
    for i, j in itertools.product(range(3), range(2)):
        terms = [probability(z, y, shape) for z in samples_a[i] for y in samples_b[j]]
        assert match[i, j].exp().item() == pytest.approx(sum(terms) / 20)
    within = match_log_probabilities(samples_a, curve=shape, self_pairs="keep")
    for i, j in itertools.product(range(3), range(3)):
        terms = [probability(z, y, shape) for z in samples_a[i] for y in samples_a[j]]
        assert within.match[i, j].exp().item() == pytest.approx(sum(terms) / 16)
        assert within.non_match[i, j].exp().item() == pytest.approx(1 - sum(terms) / 16)


@pytest.mark.parametrize("self_pairs", ["drop", "keep", "across_clips"])
@given(seed=seeds)
def test_self_pairs_are_what_they_say(self_pairs: Any, seed: int) -> None:
    samples, clip = draw(seed, 3, 4, 2), torch.tensor([[0, 1, 1, 0]] * 3)
    result = match_log_probabilities(samples, curve=curve(), self_pairs=self_pairs, clip=clip)
    scored = {
        "drop": lambda k, m: k != m,
        "keep": lambda k, m: True,
        "across_clips": lambda k, m: clip[0, k] != clip[0, m],
    }[self_pairs]
    for i, j in itertools.product(range(3), range(3)):
        pairs = [(k, m) for k in range(4) for m in range(4) if i != j or scored(k, m)]
        mean = sum(probability(samples[i, k], samples[j, m], curve()) for k, m in pairs) / len(pairs)
        assert result.match[i, j].exp().item() == pytest.approx(mean)
        assert result.non_match[i, j].exp().item() == pytest.approx(1 - mean)


def test_dropping_lifts_the_cap_that_kept_zeros_put_on_the_loss() -> None:
    wide = 100 * draw(0, 2, 10, 8)
    kept = match_log_probabilities(wide, curve=curve(), self_pairs="keep").match.diagonal()
    dropped = match_log_probabilities(wide, curve=curve(), self_pairs="drop").match.diagonal()
    assert (kept > -math.log(10) - 0.2).all()  # K of K^2 pairs match for certain, however wide the cloud
    assert (dropped < -50).all()


def test_log_space_holds_where_probabilities_vanish() -> None:
    samples = draw(0, 3, 10, 1024).float()
    shape = MatchCurve(torch.tensor(15.0), torch.tensor(15.0), 2.0)
    result = match_log_probabilities(samples, curve=shape)
    assert (result.match < -900).all()
    assert (result.match.exp() == 0).all()  # in float32 the probability itself is gone
    assert (result.non_match <= 0).all()
    torch.testing.assert_close(
        result.match.double(),
        match_log_probabilities(
            samples.double(), curve=MatchCurve(shape.a.double(), shape.b.double(), 2.0)
        ).match,
        rtol=1e-5,
        atol=0,
    )


@given(seed=seeds, order=st.permutations(range(4)))
def test_the_order_of_videos_and_of_samples_does_not_matter(seed: int, order: list[int]) -> None:
    samples = draw(seed, 4, 4, 3)
    result = match_log_probabilities(samples, curve=curve())
    shuffled = match_log_probabilities(samples[order], curve=curve())
    torch.testing.assert_close(shuffled.match, result.match[order][:, order])
    torch.testing.assert_close(shuffled.non_match, result.non_match[order][:, order])
    torch.testing.assert_close(match_log_probabilities(samples[:, order], curve=curve()).match, result.match)
    torch.testing.assert_close(result.match, result.match.T)


@given(seed=seeds)
def test_distance_alone_counts(seed: int) -> None:
    samples, rotation = draw(seed, 3, 4, 5), torch.linalg.qr(draw(seed + 1, 5, 5)).Q
    moved = samples @ rotation + 3
    torch.testing.assert_close(
        match_log_probabilities(moved, curve=curve()).match,
        match_log_probabilities(samples, curve=curve()).match,
    )


def test_single_precision_is_accurate_far_from_the_origin() -> None:
    samples = 0.05 * draw(0, 6, 5, 64) + 10
    exact = match_log_probabilities(samples, curve=curve(5.0, 5.0))
    shape = MatchCurve(torch.tensor(5.0), torch.tensor(5.0))
    single = match_log_probabilities(samples.float(), curve=shape)
    torch.testing.assert_close(single.match.double(), exact.match, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(single.non_match.double(), exact.non_match, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("self_pairs", ["drop", "keep", "across_clips"])
def test_gradients_are_right(self_pairs: Any) -> None:
    clip = torch.tensor([[0, 1, 0], [1, 0, 1], [0, 0, 1]])

    def both(samples: Tensor, log_a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        shape = MatchCurve.from_raw(log_a, b, sigmoid_scale=2.0)
        result = match_log_probabilities(samples, curve=shape, self_pairs=self_pairs, clip=clip)
        return result.match, result.non_match

    inputs = (draw(0, 3, 3, 2), torch.tensor(0.2).double(), torch.tensor(1.5).double())
    assert torch.autograd.gradcheck(both, tuple(value.requires_grad_() for value in inputs))


def test_blocks_change_neither_values_nor_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> tuple[MatchLogProbabilities, list[Tensor]]:
        leaves = [draw(0, 7, 3, 4), torch.tensor(0.1).double(), torch.tensor(2.0).double()]
        samples, log_a, b = (leaf.requires_grad_() for leaf in leaves)
        result = match_log_probabilities(samples, curve=MatchCurve.from_raw(log_a, b))
        (result.match.sum() + 2 * result.non_match.square().sum()).backward()
        return result, [leaf.grad for leaf in leaves if leaf.grad is not None]

    whole, whole_gradients = run()
    monkeypatch.setattr(matching, "BLOCK_ELEMENTS", 2 * 3 * 7 * 3)  # two videos at a time
    blocks, block_gradients = run()
    torch.testing.assert_close(blocks.match, whole.match)
    torch.testing.assert_close(blocks.non_match, whole.non_match)
    assert len(whole_gradients) == 3
    torch.testing.assert_close(block_gradients, whole_gradients)


class LargestTensor(TorchDispatchMode):
    """Notes the size of the largest tensor that any operation makes."""

    size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else [result]:
            if isinstance(value, Tensor):
                self.size = max(self.size, value.untyped_storage().nbytes() // value.element_size())
        return result


def test_nothing_of_size_k_squared_d_is_ever_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "BLOCK_ELEMENTS", 4000)
    num_videos, num_samples, dim = 12, 10, 256
    samples = draw(0, num_videos, num_samples, dim).requires_grad_()
    with LargestTensor() as largest:
        result = match_log_probabilities(samples, curve=curve())
        (result.match.sum() + result.non_match.sum()).backward()
    # The samples themselves are the largest thing; one video's K^2 D differences would be 25,600.
    assert largest.size == num_videos * num_samples * dim == 30_720
    assert largest.size < num_videos**2 * num_samples**2 * dim / 100


@pytest.mark.parametrize("self_pairs", ["drop", "keep"])
def test_gradients_are_finite_at_zero_distance(self_pairs: Any) -> None:
    samples = torch.zeros(3, 4, 5, requires_grad=True)
    log_a, b = torch.zeros((), requires_grad=True), torch.ones((), requires_grad=True)
    result = match_log_probabilities(samples, curve=MatchCurve.from_raw(log_a, b), self_pairs=self_pairs)
    (result.match.sum() + result.non_match.sum()).backward()
    for leaf in (samples, log_a, b):
        assert leaf.grad is not None
        assert leaf.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_and_autocast_are_lifted(dtype: torch.dtype) -> None:
    samples = draw(0, 3, 4, 5).to(dtype)
    shape = MatchCurve(torch.tensor(1.0), torch.tensor(2.0))
    plain = match_log_probabilities(samples.float(), curve=shape)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = match_log_probabilities(samples, curve=shape)
    assert result.match.dtype == result.non_match.dtype == torch.float32
    assert torch.equal(result.match, plain.match)


def test_a_stays_positive() -> None:
    for log_a in (-20.0, 0.0, 5.0):
        assert MatchCurve.from_raw(torch.tensor(log_a), torch.tensor(0.0)).a > 0


def test_what_cannot_be_scored_is_refused() -> None:
    samples = draw(0, 2, 1, 3)
    with pytest.raises(ConfigError, match="at least 2 samples"):
        match_log_probabilities(samples, curve=curve())
    with pytest.raises(ConfigError, match="the clip from which each sample was drawn"):
        match_log_probabilities(draw(0, 2, 3, 3), curve=curve(), self_pairs="across_clips")


def test_samples_of_clips_can_be_scored_across_clips() -> None:
    mixture = Mixture(Gaussian(draw(0, 3, 2, 4), draw(1, 3, 2, 4) - 3))
    drawn = mixture.sample_clips(6, generator=torch.Generator().manual_seed(0))
    own = match_log_probabilities(drawn.samples, curve=curve(), self_pairs="across_clips", clip=drawn.clip)
    # The clip means are far apart against their noise, so across clips a video matches itself less.
    assert (
        own.match.diagonal() < match_log_probabilities(drawn.samples, curve=curve()).match.diagonal()
    ).all()
