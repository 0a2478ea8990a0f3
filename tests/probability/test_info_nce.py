"""InfoNCE against cross-entropy and against its sum written out."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from provico.probability import info_nce, info_nce_two_view

seeds = st.integers(0, 2**31)


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(seed=seeds, temperature=st.floats(0.05, 2))
def test_one_view_is_cross_entropy_over_the_keys(seed: int, temperature: float) -> None:
    queries, keys = draw(seed, 5, 3), draw(seed + 1, 5, 3)
    cosines = torch.stack([F.cosine_similarity(query, keys) for query in queries])
    expected = F.cross_entropy(cosines / temperature, torch.arange(5))
    torch.testing.assert_close(info_nce(queries, keys, temperature=temperature), expected)


@given(seed=seeds)
def test_two_views_leave_out_only_the_query_itself(seed: int) -> None:
    first, second = draw(seed, 3, 4), draw(seed + 1, 3, 4)
    views = torch.cat([first, second])
    total = 0.0
    for i in range(6):
        scores = [math.exp(F.cosine_similarity(views[i], views[j], dim=0) / 0.5) for j in range(6)]
        total -= math.log(scores[(i + 3) % 6] / (sum(scores) - scores[i]))
    assert info_nce_two_view(first, second, temperature=0.5).item() == pytest.approx(total / 6)


def test_of_any_positive_the_sum_is_taken_as_printed() -> None:
    queries, keys = draw(0, 4, 3), draw(1, 4, 3)
    positive = torch.eye(4, dtype=torch.bool)
    positive[0, 2] = True
    scores = torch.exp(torch.stack([F.cosine_similarity(query, keys) for query in queries]) / 0.1)
    expected = -torch.log((scores * positive).sum(dim=1) / scores.sum(dim=1)).mean()
    torch.testing.assert_close(info_nce(queries, keys, positive=positive), expected)
    everything = torch.ones(4, 4, dtype=torch.bool)
    assert info_nce(queries, keys, positive=everything).item() == pytest.approx(0)
    assert info_nce_two_view(queries, keys, positive=everything).item() == pytest.approx(0)


@given(seed=seeds)
def test_without_mined_positives_any_and_each_are_the_same(seed: int) -> None:
    first, second = draw(seed, 3, 4), draw(seed + 1, 3, 4)
    for loss in (info_nce, info_nce_two_view):
        torch.testing.assert_close(loss(first, second, to_find="each"), loss(first, second))


def test_half_the_loss_is_for_the_own_key_and_half_for_the_mined_ones() -> None:
    queries, keys = draw(0, 4, 3), draw(1, 4, 3)
    positive = torch.eye(4, dtype=torch.bool)
    positive[0, 2] = positive[0, 3] = positive[1, 0] = True
    scores = torch.stack([F.cosine_similarity(query, keys) for query in queries]) / 0.1
    loss = -torch.log_softmax(scores, dim=1)
    rows = [
        (loss[0, 0] + (loss[0, 2] + loss[0, 3]) / 2) / 2,
        (loss[1, 1] + loss[1, 0]) / 2,
        loss[2, 2],
        loss[3, 3],
    ]
    torch.testing.assert_close(info_nce(queries, keys, positive=positive, to_find="each"), sum(rows) / 4)


def test_of_two_views_both_clips_of_a_mined_video_are_to_be_found() -> None:
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
    torch.testing.assert_close(info_nce_two_view(first, second, positive=positive, to_find="each"), total / 6)


def test_each_pulls_at_a_mined_video_that_is_far_where_any_hardly_does() -> None:
    """The query's own key is at hand, and to find that one is enough for `any`."""
    queries = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    positive = torch.tensor([[True, True, False], [True, True, False], [False, False, True]])
    pulls = {}
    for to_find in ("any", "each"):
        keys = queries.clone().requires_grad_()
        info_nce(queries, keys, positive=positive, to_find=to_find).backward()
        pulls[to_find] = -float(keys.grad[1, 0])  # of the key of video 1 towards the query of video 0
    assert pulls["each"] > 1
    assert abs(pulls["any"]) < 0.01


def test_gradients_are_right_and_autocast_changes_nothing() -> None:
    leaves = (draw(0, 3, 2).requires_grad_(), draw(1, 3, 2).requires_grad_())
    mined = torch.tensor([[True, True, False], [True, True, False], [False, False, True]])
    assert torch.autograd.gradcheck(
        lambda a, b: info_nce_two_view(a, b, positive=mined, to_find="each"), leaves
    )
    assert torch.autograd.gradcheck(info_nce, leaves)
    assert torch.autograd.gradcheck(info_nce_two_view, leaves)
    first, second = draw(0, 3, 2).float(), draw(1, 3, 2).float()
    plain = info_nce_two_view(first, second)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(info_nce_two_view(first, second), plain)
