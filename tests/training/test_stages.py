"""Which pairs count as positive: the two stages, thresholds, guards and networks side by side."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
import torch
from torch import Tensor

from provico.config import MiningSettings
from provico.probability import Gaussian, Mixture
from provico.training.memory import Remembered
from provico.training.objective import Provico

from .small_step import EPOCH, UNGUARDED, B, D, N, context, loss_of, moments_by_hand, random_videos


def test_in_the_first_stage_a_video_matches_only_itself() -> None:
    alike = Mixture(Gaussian(torch.zeros(B, N, D), torch.zeros(B, N, D)))
    for mining, epoch in (
        (MiningSettings(mine_from=30, threshold=9.0), 29),
        (MiningSettings(mine_from=None, threshold=9.0), 10**6),
    ):
        pairs = loss_of(alike, mining=mining, epoch=epoch).pairs
        assert torch.equal(pairs.positive, torch.eye(B, dtype=torch.bool))
        assert pairs.threshold is None
    second = loss_of(alike, mining=dataclasses.replace(UNGUARDED, threshold=9.0), epoch=30).pairs
    assert second.positive.all()


def bhattacharyya_by_hand(videos: Mixture) -> Tensor:
    """Expected distance of samples, with each coordinate's own variance (eq. 5)."""
    mean, var = moments_by_hand(videos)
    distances = torch.zeros(len(mean), len(mean), dtype=torch.float64)
    for i, j in itertools.product(range(len(mean)), repeat=2):
        for d in range(D):
            v, w, gap = float(var[i, d]), float(var[j, d]), float(mean[i, d] - mean[j, d])
            width = 0.25 * math.log(0.25 * (v / w + w / v + 2))
            distances[i, j] += (width + (gap**2 + v + w) / (16 * (v + w))) / D
    return distances


def test_the_second_stage_mines_below_the_threshold() -> None:
    videos = random_videos(3, num_videos=6)
    distances = bhattacharyya_by_hand(videos)
    num_mined = []
    for threshold, epoch in itertools.product((0.045, 0.135, 0.18), (30, 200)):
        mining = dataclasses.replace(UNGUARDED, threshold=threshold)
        pairs = loss_of(videos, mining=mining, epoch=epoch).pairs
        assert pairs.threshold == threshold
        assert torch.equal(pairs.positive, (distances < threshold) | torch.eye(6, dtype=torch.bool))
        num_mined.append(pairs.num_mined)
    assert 0 == num_mined[0] < num_mined[2] < num_mined[4]


def test_without_a_threshold_the_guards_decide() -> None:
    videos = random_videos(3, num_videos=6)
    mining = MiningSettings(mine_from=0, threshold=None, mutual_top=1)
    pairs = loss_of(videos, mining=mining).pairs
    distances = bhattacharyya_by_hand(videos).fill_diagonal_(math.inf)
    nearest = distances.argmin(dim=1).tolist()
    expected = torch.eye(6, dtype=torch.bool)
    for i, j in enumerate(nearest):
        expected[i, j] = nearest[j] == i
    assert torch.equal(pairs.positive, expected)
    assert pairs.num_mined > 0
    capped = loss_of(videos, mining=dataclasses.replace(mining, mutual_top=None), max_share=0.2).pairs
    assert 0 < capped.num_mined <= 0.2 * 30


def test_among_all_videos_the_nearest_are_those_that_were_last_seen() -> None:
    """Videos 0 and 1 are each other's nearest in the batch, but one that is not in it lies between them."""
    means = torch.tensor([[0.0], [2.0], [1.0], [9.0]], dtype=torch.float64)
    everyone = Gaussian(means, torch.zeros(4, 1, dtype=torch.float64))
    clips = means[[1, 0, 3]].unsqueeze(1).expand(3, 2, 1)
    videos = Mixture(Gaussian(clips, torch.zeros(3, 2, 1, dtype=torch.float64)))
    remembered = Remembered(everyone=everyone, place=torch.tensor([1, 0, 3]))
    for mutual_top, expected in ((1, []), (2, [(0, 1)])):
        mining = MiningSettings(
            mine_from=0,
            distance="squared_euclidean_means",
            threshold=None,
            mutual_top=mutual_top,
            among="all",
        )
        step = dataclasses.replace(context(mining=mining, epoch=EPOCH), remembered=remembered)
        outcome = Provico(max_share=None)(videos, step)
        mined = outcome.pairs.positive & ~torch.eye(3, dtype=torch.bool)
        assert [(i, j) for i, j in mined.nonzero().tolist() if i < j] == expected


@pytest.mark.parametrize("among", ["batch", "all"])
def test_networks_side_by_side_must_both_find_a_pair(among: str) -> None:
    """Videos 0 and 1 are near, but in the second coordinate 4 lies between them; 2 and 3 are near in both."""
    means = torch.tensor([[0, 0], [1, 3], [9, 9], [9.5, 9.5], [30, 1]], dtype=torch.float64)
    everyone = Gaussian(means, torch.full_like(means, -20))
    videos = Mixture(Gaussian(*(part.unsqueeze(1).repeat(1, 2, 1) for part in (means, everyone.log_var))))
    remembered = Remembered(everyone=everyone, place=torch.arange(5))
    mining = MiningSettings(
        mine_from=0, distance="squared_euclidean_means", threshold=None, mutual_top=1, among=among
    )
    for num_streams, expected in ((1, [(0, 1), (2, 3)]), (2, [(2, 3)])):
        step = dataclasses.replace(context(mining=mining), remembered=remembered, num_streams=num_streams)
        outcome = Provico()(videos, step)
        assert [(i, j) for i, j in outcome.pairs.positive.nonzero().tolist() if i < j] == expected
        assert outcome.pairs.num_cut_not_agreed == (0 if num_streams == 1 else 2)


def test_the_adaptive_threshold_is_the_mean_distance_of_a_video_to_itself() -> None:
    videos = random_videos(0)
    mining = dataclasses.replace(UNGUARDED, threshold="adaptive", distance="squared_euclidean_sampled")
    pairs = loss_of(videos, mining=mining, epoch=EPOCH).pairs
    samples = Provico().draw(videos, context()).samples.detach()
    own, between = 0.0, torch.zeros(B, B, dtype=torch.float64)
    for i, j, k, other in itertools.product(range(B), range(B), range(4), range(4)):
        squared = (samples[i, k] - samples[j, other]).square().sum()
        between[i, j] += squared / 16
        own += float(squared) / (12 * B) if i == j and k != other else 0.0
    assert pairs.threshold == pytest.approx(own)
    assert torch.equal(pairs.positive, (between < own) | torch.eye(B, dtype=torch.bool))
    assert pairs.num_mined > 0
