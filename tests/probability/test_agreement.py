"""Pairs that two views of videos agree on: which they are, and how many chance would give."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from provico.probability.mining import LEAST_BEYOND_CHANCE, _chosen_twice, agree


def videos_of(
    strength: float, *, shared: float = 0.0, num_videos: int = 900, size: int = 6, seed: int = 0
) -> tuple[list[Tensor], Tensor]:
    """Two views of videos of several kinds, and their kinds. `shared` is what both views see of a scene."""
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.arange(num_videos) // size
    scenes = torch.randn(num_videos, 32, generator=generator)
    views = []
    for _ in range(2):
        of_kind = torch.randn(int(kinds.max()) + 1, 32, generator=generator)[kinds]
        noise = torch.randn(num_videos, 32, generator=generator)
        views.append(F.normalize(strength * of_kind + shared * scenes + noise, dim=1))
    return views, kinds


@given(seed=st.integers(0, 1000), num_nearest=st.integers(1, 6))
def test_pairs_are_mutual_neighbours_of_other_recordings_in_both_views(seed: int, num_nearest: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    views = [F.normalize(torch.randn(12, 4, generator=generator), dim=1) for _ in range(2)]
    recordings = torch.randint(5, (12,), generator=generator)
    found = agree(views, recordings, num_nearest=num_nearest)
    assert found is not None

    def is_near(view: Tensor, i: int, j: int) -> bool:
        others = [k for k in range(12) if recordings[k] != recordings[i]]
        nearer = sum(float(view[i] @ view[k]) > float(view[i] @ view[j]) for k in others)
        return j in others and nearer < num_nearest

    expected = [
        12 * i + j
        for i in range(12)
        for j in range(12)
        if all(is_near(view, i, j) and is_near(view, j, i) for view in views)
    ]
    assert found.pairs.tolist() == expected
    batch = torch.randperm(12, generator=generator)[:7]
    if expected:
        mined = found.among(batch)
        for row, i in enumerate(batch.tolist()):
            for column, j in enumerate(batch.tolist()):
                assert bool(mined.positive[row, column]) == (i == j or 12 * i + j in expected)
        assert mined.num_mined == int(mined.positive.sum()) - 7


@given(a=st.floats(1e-3, 0.5), b=st.floats(1e-3, 0.5), correlation=st.floats(-0.9, 0.9))
def test_what_chance_chooses_twice_is_the_tail_of_two_normal_numbers(
    a: float, b: float, correlation: float
) -> None:
    limits = [stats.norm.ppf(share) for share in (a, b)]
    expected = stats.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]]).cdf(limits)
    assert _chosen_twice(a, b, correlation) == pytest.approx(expected, abs=2e-5)


@pytest.mark.parametrize("strength", [0.0, 0.5, 0.7, 1.2])
@pytest.mark.parametrize("shared", [0.0, 0.7, 1.5])
def test_what_is_beyond_chance_never_promises_more_than_is_right(strength: float, shared: float) -> None:
    views, kinds = videos_of(strength, shared=shared)
    found = agree(views, torch.arange(len(kinds)), num_nearest=20)
    assert found is not None
    first, second = found.pairs // len(kinds), found.pairs % len(kinds)
    precision = float((kinds[first] == kinds[second]).float().mean())
    assert precision - 0.2 < found.beyond_chance < precision + 0.05


def test_views_that_see_the_same_scene_are_not_trusted_and_clear_kinds_are() -> None:
    views, kinds = videos_of(0.3, shared=1.5)
    found = agree(views, torch.arange(len(kinds)), num_nearest=20)
    assert found is not None
    assert len(found.pairs) > 500  # they agree on many pairs, and nearly all of these are wrong
    assert not found.are_trusted
    views, kinds = videos_of(1.0)
    found = agree(views, torch.arange(len(kinds)), num_nearest=20)
    assert found is not None
    assert found.are_trusted
    assert found.beyond_chance > 2 * LEAST_BEYOND_CHANCE


def test_of_several_views_the_two_least_alike_are_asked() -> None:
    views, kinds = videos_of(1.0, shared=0.5)
    copy = F.normalize(views[0] + 0.05 * torch.randn(views[0].shape), dim=1)
    alone = agree(views, torch.arange(len(kinds)), num_nearest=20)
    among = agree([views[0], copy, views[1]], torch.arange(len(kinds)), num_nearest=20)
    assert alone is not None
    assert among is not None
    assert abs(among.correlation - alone.correlation) < 0.05


def test_one_view_or_one_recording_cannot_agree() -> None:
    views, _ = videos_of(1.0, num_videos=60)
    assert agree(views[:1], torch.arange(60), num_nearest=5) is None
    assert agree(views, torch.zeros(60, dtype=torch.long), num_nearest=5) is None
