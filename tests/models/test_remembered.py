"""Kinds of remembered videos: whether those that are nearest to a video are of one."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
import torch.nn.functional as F

from provico.models.remembered import DIVISIONS, NUM_NEAREST, Kinds


def kinds_of(num_videos: int) -> Kinds:
    kinds = Kinds(num_videos)
    kinds.remember(
        F.normalize(torch.randn(num_videos, 18, generator=torch.Generator().manual_seed(0)), dim=1)
    )
    return kinds


def test_disunity_is_the_entropy_of_the_kinds_of_the_nearest():
    kinds = kinds_of(80)
    similarity = torch.rand(5, 80, generator=torch.Generator().manual_seed(1))
    similarity[3, 4:] = -math.inf  # four are left
    similarity[4] = -math.inf
    found = kinds(similarity)
    assert found[4].isnan()
    for row in range(4):
        total = 0.0
        for division, size in zip(kinds.kind.tolist(), DIVISIONS, strict=True):
            nearest = sorted(range(80), key=lambda video, row=row: -similarity[row, video])[:NUM_NEAREST]
            counts = Counter(division[video] for video in nearest if similarity[row, video] > -math.inf)
            shares = [count / counts.total() for count in counts.values()]
            total -= sum(share * math.log(share) for share in shares) / math.log(size)
        assert float(found[row]) == pytest.approx(total / len(DIVISIONS), abs=1e-6)


def test_neighbours_of_one_kind_are_united_and_who_joins_a_majority_never_parts_them():
    kinds = kinds_of(80)
    similarity = torch.arange(80.0, 0, -1)
    before = float(kinds(similarity))
    assert 0 < before < 1
    for video in range(1, NUM_NEAREST):
        kinds.kind[:, video] = kinds.kind[:, 0]
        later = float(kinds(similarity))
        if video >= NUM_NEAREST // 2:
            assert later <= before + 1e-6
        before = later
    assert before == 0


def test_few_videos_have_no_kinds():
    assert kinds_of(11).kind.eq(0).all()
    assert [len(division.unique()) for division in kinds_of(100).kind] == list(DIVISIONS)
