"""Laws of positive mining."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from provico.errors import ConfigError
from provico.probability import (
    agreed,
    first_stage_pairs,
    mine_pairs,
    score_mining,
)

seeds = st.integers(0, 2**31)


def draw(seed: int, num_videos: int = 8) -> Tensor:
    half = torch.rand(num_videos, num_videos, generator=torch.Generator().manual_seed(seed))
    return half + half.T


@given(seed=seeds, threshold=st.floats(0, 2))
def test_without_guards_it_is_the_printed_set(seed: int, threshold: float) -> None:
    distances = draw(seed)
    pairs = mine_pairs(distances, threshold=threshold, mutual_top=None, max_share=None)
    for i in range(8):
        for j in range(8):
            assert bool(pairs.positive[i, j]) == (float(distances[i, j]) < threshold or i == j)
    assert pairs.num_mined == pairs.num_below_threshold == int(pairs.positive.sum()) - 8
    assert pairs.mined_share == pytest.approx(pairs.num_mined / 56)


@given(seed=seeds, threshold=st.floats(0, 2), top=st.integers(1, 8))
def test_mutual_top_keeps_pairs_that_are_near_from_both_sides(seed: int, threshold: float, top: int) -> None:
    distances = draw(seed)
    pairs = mine_pairs(distances, threshold=threshold, mutual_top=top, max_share=None)
    for i in range(8):
        others = [j for j in range(8) if j != i]
        for j in others:
            rank_from_i = sum(float(distances[i, k]) < float(distances[i, j]) for k in others)
            rank_from_j = sum(float(distances[j, k]) < float(distances[j, i]) for k in range(8) if k != j)
            mutual = rank_from_i < top and rank_from_j < top
            assert bool(pairs.positive[i, j]) == (mutual and float(distances[i, j]) < threshold)
    assert pairs.positive.sum(dim=1).max() <= top + 1
    assert pairs.num_below_threshold - pairs.num_cut_not_mutual == pairs.num_mined


@given(seed=seeds, others=st.lists(seeds, max_size=2), top=st.integers(1, 8), share=st.floats(0.1, 1))
def test_agreed_are_the_pairs_that_all_have_found(
    seed: int, others: list[int], top: int, share: float
) -> None:
    found = [mine_pairs(draw(s), threshold=1.0, mutual_top=top, max_share=share) for s in (seed, *others)]
    pairs = agreed(found)
    for i in range(8):
        for j in range(8):
            assert bool(pairs.positive[i, j]) == all(bool(one.positive[i, j]) for one in found)
    assert pairs.num_mined == int(pairs.positive.sum()) - 8 == found[0].num_mined - pairs.num_cut_not_agreed
    assert pairs.num_below_threshold == found[0].num_below_threshold
    assert torch.equal(agreed(found * 2).positive, pairs.positive)


@given(seed=seeds, top=st.integers(1, 14), size=st.integers(2, 12))
def test_among_all_a_video_must_be_near_by_the_count_of_all(seed: int, top: int, size: int) -> None:
    """Mining a batch among all is mining all, looked at where the batch is."""
    everyone = draw(seed, 12)
    batch = torch.randperm(12, generator=torch.Generator().manual_seed(seed))[:size]
    others = everyone.clone().fill_diagonal_(math.inf)
    of_all = mine_pairs(everyone, threshold=0.8, mutual_top=top, max_share=None)
    of_batch = mine_pairs(
        everyone[batch][:, batch],
        threshold=0.8,
        mutual_top=top,
        max_share=None,
        among=others[batch],
    )
    assert torch.equal(of_batch.positive, of_all.positive[batch][:, batch])


@given(seed=seeds, share=st.floats(0, 1))
def test_the_cap_keeps_the_closest_and_says_what_it_cut(seed: int, share: float) -> None:
    distances = draw(seed)
    free = mine_pairs(distances, threshold=1.5, mutual_top=None, max_share=None)
    pairs = mine_pairs(distances, threshold=1.5, mutual_top=None, max_share=share)
    assert pairs.mined_share <= share
    assert pairs.num_mined + pairs.num_cut_over_cap == free.num_mined
    assert torch.equal(pairs.positive, pairs.positive.T)
    kept = pairs.positive & ~torch.eye(8, dtype=torch.bool)
    cut = free.positive & ~pairs.positive
    if kept.any() and cut.any():
        assert distances[kept].max() < distances[cut].min()


def test_adaptive_threshold_is_the_mean_self_distance() -> None:
    distances = draw(0)
    own = torch.linspace(0.2, 0.8, 8)
    pairs = mine_pairs(distances, threshold="adaptive", self_distances=own, mutual_top=None, max_share=None)
    assert pairs.threshold == pytest.approx(0.5)
    fixed = mine_pairs(distances, threshold=float(own.mean()), mutual_top=None, max_share=None)
    assert torch.equal(pairs.positive, fixed.positive)
    with pytest.raises(ConfigError, match="self_distances"):
        mine_pairs(distances, threshold="adaptive")


@given(seed=seeds, order=st.permutations(range(8)))
def test_the_order_of_videos_does_not_matter(seed: int, order: list[int]) -> None:
    distances = draw(seed)
    pairs, shuffled = (
        mine_pairs(distances, threshold=0.7),
        mine_pairs(distances[order][:, order], threshold=0.7),
    )
    assert torch.equal(shuffled.positive, pairs.positive[order][:, order])


def test_mining_has_no_gradient() -> None:
    assert not mine_pairs(draw(0).requires_grad_(), threshold=0.5).positive.requires_grad


def test_in_the_first_stage_only_a_video_itself_is_positive() -> None:
    assert torch.equal(first_stage_pairs(5).positive, torch.eye(5, dtype=torch.bool))
    assert first_stage_pairs(5).num_mined == 0
    assert first_stage_pairs(5).threshold is None


def test_the_papers_toy_batch_has_308_pairs() -> None:
    labels = torch.arange(88) // 8
    nothing = score_mining(torch.eye(88, dtype=torch.bool), labels)
    assert (nothing.num_pairs, nothing.num_same_label, nothing.num_mined) == (3828, 308, 0)
    assert nothing.recall == 0
    assert math.isnan(nothing.precision)
    everything = score_mining(torch.ones(88, 88, dtype=torch.bool), labels)
    assert everything.recall == 1
    assert everything.precision == pytest.approx(308 / 3828)
    right = score_mining(labels.unsqueeze(1) == labels, labels)
    assert (right.precision, right.recall) == (1, 1)


def test_precision_and_recall_by_hand() -> None:
    labels = torch.tensor([0, 0, 0, 1])
    positive = torch.eye(4, dtype=torch.bool)
    positive[0, 1] = positive[1, 0] = True  # right, in both orders
    positive[2, 3] = True  # wrong, in one
    score = score_mining(positive, labels)
    assert (score.num_mined, score.num_mined_same_label, score.num_same_label) == (2, 1, 3)
    assert score.precision == 1 / 2
    assert score.recall == 1 / 3
