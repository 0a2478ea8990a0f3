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


def test_several_positives_are_summed_as_printed() -> None:
    queries, keys = draw(0, 4, 3), draw(1, 4, 3)
    positive = torch.eye(4, dtype=torch.bool)
    positive[0, 2] = True
    scores = torch.exp(torch.stack([F.cosine_similarity(query, keys) for query in queries]) / 0.1)
    expected = -torch.log((scores * positive).sum(dim=1) / scores.sum(dim=1)).mean()
    torch.testing.assert_close(info_nce(queries, keys, positive=positive), expected)
    everything = torch.ones(4, 4, dtype=torch.bool)
    assert info_nce(queries, keys, positive=everything).item() == pytest.approx(0)
    assert info_nce_two_view(queries, keys, positive=everything).item() == pytest.approx(0)


def test_gradients_are_right_and_autocast_changes_nothing() -> None:
    leaves = (draw(0, 3, 2).requires_grad_(), draw(1, 3, 2).requires_grad_())
    assert torch.autograd.gradcheck(info_nce, leaves)
    assert torch.autograd.gradcheck(info_nce_two_view, leaves)
    first, second = draw(0, 3, 2).float(), draw(1, 3, 2).float()
    plain = info_nce_two_view(first, second)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(info_nce_two_view(first, second), plain)
