"""Candidates are those that a loop over all videos and vectors finds, in whatever memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from provico.duplicates import neighbours
from provico.duplicates.neighbours import (
    BACKGROUND_RANK,
    BEST_VECTORS,
    near_each_other,
    nearest_videos,
    unordered,
)


def by_loop(ours, theirs, our_spread, their_spread, *, num: int, is_same: bool) -> set[tuple[int, int]]:
    """The definition, one pair of vectors at a time, in float64."""
    pairs = set()
    for a, video in enumerate(ours.double().numpy()):
        others = [b for b in range(len(theirs)) if not (is_same and a == b)]
        support = {b: [] for b in others}
        for i, vector in enumerate(video):
            squared = {
                b: min(
                    float(np.square(vector - other).sum()) + float(our_spread[a, i]) + float(spread)
                    for other, spread in zip(theirs[b].double().numpy(), their_spread[b], strict=True)
                )
                for b in others
            }
            background = sorted(squared.values())[min(BACKGROUND_RANK, len(others)) - 1]
            for b in others:
                support[b].append(max(0.0, 1 - squared[b] / background))
        totals = {b: sum(sorted(values)[-BEST_VECTORS:]) for b, values in support.items()}
        pairs |= {(a, b) for b in sorted(others, key=lambda b: -totals[b])[:num]}
    return pairs


@pytest.mark.parametrize("is_same", [True, False])
def test_every_block_size_gives_what_a_loop_gives(is_same, monkeypatch):
    torch.manual_seed(0)
    ours, our_spread = torch.randn(37, 4, 6), torch.rand(37, 4)
    theirs, their_spread = (ours, our_spread) if is_same else (torch.randn(41, 5, 6), torch.rand(41, 5))
    expected = by_loop(ours, theirs, our_spread, their_spread, num=5, is_same=is_same)
    for numbers_at_once, videos_at_once, cell_vectors in ((1, 3, 4096), (1000, 512, 41), (2**25, 1, 4096)):
        monkeypatch.setattr(neighbours, "NUMBERS_AT_ONCE", numbers_at_once)
        monkeypatch.setattr(neighbours, "VIDEOS_AT_ONCE", videos_at_once)
        monkeypatch.setattr(neighbours, "CELL_VECTORS", cell_vectors)
        # All cells are looked at, however many there are.
        monkeypatch.setattr(neighbours, "CELLS_LOOKED_AT", 100)
        found = nearest_videos(
            ours, theirs, num=5, our_spread=our_spread, their_spread=their_spread, is_same=is_same
        )
        assert {(a, b) for a, b in found.tolist()} == expected
        assert len(found) == len(expected)


def test_what_is_near_to_everything_says_nothing():
    """Every video begins with the same clip; only two share another one."""
    torch.manual_seed(0)
    videos = 10 * torch.randn(60, 4, 16)
    videos[:, 0] = 0.001 * torch.randn(60, 16)
    videos[59, 2] = videos[0, 1] + 1.0
    for number, partner in ((0, 59), (59, 0)):
        found = nearest_videos(videos, videos, num=1, is_same=True)
        assert found[number].tolist() == [number, partner]


def test_unsure_clips_speak_less():
    torch.manual_seed(0)
    videos = torch.randn(40, 1, 8)
    videos[1], videos[2] = videos[0] + 0.1, videos[0] + 0.2
    spread = torch.zeros(40, 1)
    assert nearest_videos(videos, videos, num=1, is_same=True)[0].tolist() == [0, 1]
    spread[1] = 5.0
    found = nearest_videos(videos, videos, num=1, our_spread=spread, their_spread=spread, is_same=True)
    assert found[0].tolist() == [0, 2]


@pytest.mark.parametrize("num_videos", [0, 1])
def test_too_few_videos_have_no_neighbours(num_videos):
    videos = torch.randn(num_videos, 3, 4)
    assert nearest_videos(videos, videos, num=5, is_same=True).shape == (0, 2)


def test_pairs_are_counted_once():
    pairs = torch.tensor([[3, 1], [1, 3], [0, 2], [1, 3]])
    assert unordered(pairs).tolist() == [[0, 2], [1, 3]]


def test_a_vector_is_compared_with_the_cells_around_it_only(monkeypatch):
    """Of many kinds of videos, copies are found, and each is compared with few."""
    torch.manual_seed(0)
    kinds = 20 * torch.randn(40, 1, 1, 8)
    videos = (kinds + torch.randn(40, 10, 4, 8)).flatten(0, 1)
    videos[7::10] = videos[6::10] + 0.05 * torch.randn(40, 4, 8)
    monkeypatch.setattr(neighbours, "CELL_VECTORS", 50)
    compared = []
    addmm = torch.addmm
    monkeypatch.setattr(
        torch, "addmm", lambda *given, **more: compared.append(addmm(*given, **more)) or compared[-1]
    )
    found = nearest_videos(videos, videos, num=1, is_same=True)
    partner = dict(found.tolist())
    assert all(
        partner[place + 6] == place + 7 and partner[place + 7] == place + 6 for place in range(0, 400, 10)
    )
    assert sum(products.numel() for products in compared) < (400 * 4) ** 2 / 3


def test_pairs_of_one_neighbourhood_are_together():
    """Two rings, whose members take turns in the order of numbers."""
    pairs = [(min(a, b), max(a, b)) for ring in (0, 1) for a in range(ring, 40, 2) for b in [(a + 2) % 40]]
    ordered = near_each_other(sorted(pairs))
    assert sorted(ordered) == sorted(pairs)
    assert [a % 2 for a, _ in ordered] == [0] * 20 + [1] * 20
    assert near_each_other([]) == []
