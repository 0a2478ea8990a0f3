"""Stored features come in an order that follows from the seed, whatever the processes or interruptions."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from provico.errors import ConfigError
from provico.training.data import FeatureBatch, FeatureLoader

NUM_VIDEOS, NUM_STORED = 14, 5
# Every number says its video and clip, so that what a batch holds can be read off.
FEATURES = torch.stack(
    [torch.arange(NUM_VIDEOS * NUM_STORED).view(NUM_VIDEOS, NUM_STORED)] * 3, dim=2
).float()

Contents = list[tuple[list[int], list[list[int]]]]


def make(**options: Any) -> FeatureLoader:
    return FeatureLoader(FEATURES, **{"num_clips": 2, "batch_size": 4, "seed": 3, **options})


def contents(batches: list[FeatureBatch]) -> Contents:
    """The videos of each batch, and which of their clips were chosen."""
    return [
        (batch.videos.tolist(), (batch.features[..., 0] % NUM_STORED).int().tolist()) for batch in batches
    ]


def epochs(number: int, **options: Any) -> Contents:
    loader = make(**options)
    return contents([batch for _ in range(number) for batch in loader])


@given(seed=st.integers(0, 2**32), num_clips=st.integers(1, NUM_STORED), batch_size=st.integers(1, 14))
@settings(max_examples=20)
def test_a_batch_holds_different_clips_of_the_videos_it_names(
    seed: int, num_clips: int, batch_size: int
) -> None:
    loader = make(seed=seed, num_clips=num_clips, batch_size=batch_size)
    seen: list[int] = []
    batches = list(loader)
    assert len(batches) == len(loader) == NUM_VIDEOS // batch_size
    for batch in batches:
        assert len(batch) == batch_size
        assert batch.features.shape == (batch_size, num_clips, 3)
        for video, clips in zip(batch.videos.tolist(), batch.features, strict=True):
            numbers = (clips[:, 0] - video * NUM_STORED).int().tolist()
            assert sorted(set(numbers)) == sorted(numbers)
            assert set(numbers) <= set(range(NUM_STORED))
            assert torch.equal(clips, FEATURES[video, numbers])
        seen += batch.videos.tolist()
    assert len(set(seen)) == len(seen) == NUM_VIDEOS // batch_size * batch_size


def test_choices_differ_between_epochs_and_follow_the_seed() -> None:
    expected = epochs(2)
    assert epochs(2) == expected
    assert epochs(2, seed=4) != expected
    first, second = (
        {v: c for videos, clips in e for v, c in zip(videos, clips, strict=True)}
        for e in (expected[:3], expected[3:])
    )
    both = first.keys() & second.keys()
    assert any(first[video] != second[video] for video in both)
    assert [videos for videos, _ in expected[:3]] != [videos for videos, _ in expected[3:]]


def test_every_clip_is_chosen_as_often_in_each_place() -> None:
    num_epochs = 400
    counts = torch.zeros(NUM_STORED, 2)
    for _, choices in epochs(num_epochs, batch_size=14):
        for first, second in choices:
            counts[first, 0] += 1
            counts[second, 1] += 1
    expected = num_epochs * NUM_VIDEOS / NUM_STORED
    assert float((counts - expected).abs().max()) < 5 * expected**0.5


def test_a_choice_does_not_depend_on_the_batch_size() -> None:
    def chosen(**options: Any) -> dict[int, list[int]]:
        return {
            video: choice
            for videos, clips in epochs(1, **options)
            for video, choice in zip(videos, clips, strict=True)
        }

    assert chosen(batch_size=7) == chosen(batch_size=14) == chosen(batch_size=2)


def test_processes_share_the_batches_of_one() -> None:
    whole = epochs(2, batch_size=6)
    parts = [epochs(2, batch_size=2, rank=rank, world_size=3) for rank in range(3)]
    assert len(whole) == 4
    for (videos, clips), *apart in zip(whole, *parts, strict=True):
        assert videos == [video for part, _ in apart for video in part]
        assert clips == [choice for _, part in apart for choice in part]


@pytest.mark.parametrize("stop", range(7))
def test_a_restored_loader_goes_on_with_the_next_batch(stop: int) -> None:
    expected = epochs(2)
    loader = make()
    seen: list[FeatureBatch] = []
    while len(seen) < stop:
        for batch in loader:
            seen.append(batch)
            if len(seen) == stop:
                break
    again = make()
    again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    rest: list[FeatureBatch] = []
    while again.epoch < 2:
        rest += list(again)
    assert contents(seen + rest) == expected


def test_processes_can_be_more_or_fewer_after_a_stop() -> None:
    expected = epochs(1, batch_size=4)
    loader = make(batch_size=4)
    next(iter(loader))
    state = loader.state_dict()
    parts = []
    for rank in range(2):
        part = make(batch_size=2, rank=rank, world_size=2)
        part.load_state_dict(state)
        parts.append(contents(list(part)))
    together = [(left[0] + right[0], left[1] + right[1]) for left, right in zip(*parts, strict=True)]
    assert together == expected[1:]


def test_another_order_is_refused() -> None:
    state = make().state_dict()
    with pytest.raises(ConfigError, match="--seed was 3 and is 5"):
        make(seed=5).load_state_dict(state)
    with pytest.raises(ConfigError, match="--batch-size was 4 and is 7"):
        make(batch_size=7).load_state_dict(state)
    with pytest.raises(ConfigError, match="There are 14 videos, but one batch takes 15"):
        make(batch_size=15)
