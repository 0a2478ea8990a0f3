"""InfoNCE against cross-entropy and against its sum written out."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from provico.probability import info_nce

seeds = st.integers(0, 2**31)


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(seed=seeds)
def test_two_views_leave_out_only_the_query_itself(seed: int) -> None:
    first, second = draw(seed, 3, 4), draw(seed + 1, 3, 4)
    views = torch.cat([first, second])
    total = 0.0
    for i in range(6):
        scores = [math.exp(F.cosine_similarity(views[i], views[j], dim=0) / 0.5) for j in range(6)]
        total -= math.log(scores[(i + 3) % 6] / (sum(scores) - scores[i]))
    assert info_nce(first, second, temperature=0.5).item() == pytest.approx(total / 6)


def test_of_any_positive_the_sum_is_taken_as_printed() -> None:
    first, second = draw(0, 4, 3), draw(1, 4, 3)
    positive = torch.eye(4, dtype=torch.bool)
    positive[0, 2] = True
    views = torch.cat([first, second])
    cosines = torch.stack([F.cosine_similarity(view, views) for view in views])
    scores = torch.exp(cosines / 0.1).fill_diagonal_(0)
    expected = -torch.log((scores * positive.repeat(2, 2)).sum(dim=1) / scores.sum(dim=1)).mean()
    torch.testing.assert_close(info_nce(first, second, positive=positive), expected)
    everything = torch.ones(4, 4, dtype=torch.bool)
    assert info_nce(first, second, positive=everything).item() == pytest.approx(0)


@given(seed=seeds)
def test_without_mined_positives_any_and_each_are_the_same(seed: int) -> None:
    first, second = draw(seed, 3, 4), draw(seed + 1, 3, 4)
    torch.testing.assert_close(info_nce(first, second, to_find="each"), info_nce(first, second))


def test_half_the_loss_is_for_the_own_clip_and_half_for_both_clips_of_mined_videos() -> None:
    first, second = draw(0, 3, 4), draw(1, 3, 4)
    positive = torch.eye(3, dtype=torch.bool)
    positive[0, 2] = positive[2, 0] = True
    views = torch.cat([first, second])
    cosines = torch.stack([F.cosine_similarity(view, views) for view in views]) / 0.1
    loss = -torch.log_softmax(cosines.fill_diagonal_(-torch.inf), dim=1)
    total = 0.0
    for clip, own in ((0, 3), (3, 0)):
        total += (loss[clip, own] + (loss[clip, 2] + loss[clip, 5]) / 2) / 2
    for clip, own in ((2, 5), (5, 2)):
        total += (loss[clip, own] + (loss[clip, 0] + loss[clip, 3]) / 2) / 2
    total += loss[1, 4] + loss[4, 1]
    torch.testing.assert_close(info_nce(first, second, positive=positive, to_find="each"), total / 6)


def test_each_pulls_at_a_mined_video_that_is_far_where_any_hardly_does() -> None:
    """The query's own key is at hand, and to find that one is enough for `any`."""
    first = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    positive = torch.tensor([[True, True, False], [True, True, False], [False, False, True]])
    pulls = {}
    for to_find in ("any", "each"):
        second = first.clone().requires_grad_()
        info_nce(first, second, positive=positive, to_find=to_find).backward()
        pulls[to_find] = -float(second.grad[1, 0])  # of a clip of video 1 towards video 0
    assert pulls["each"] > 1
    assert abs(pulls["any"]) < 0.01


def test_gradients_are_right_and_autocast_changes_nothing() -> None:
    leaves = (draw(0, 3, 2).requires_grad_(), draw(1, 3, 2).requires_grad_())
    mined = torch.tensor([[True, True, False], [True, True, False], [False, False, True]])
    assert torch.autograd.gradcheck(lambda a, b: info_nce(a, b, positive=mined, to_find="each"), leaves)
    assert torch.autograd.gradcheck(info_nce, leaves)
    first, second = draw(0, 3, 2).float(), draw(1, 3, 2).float()
    plain = info_nce(first, second)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(info_nce(first, second), plain)
