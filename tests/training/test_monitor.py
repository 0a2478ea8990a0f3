"""The monitor of a labelled run against neighbours that are sought one by one."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from provico.data.catalog import Catalog, Video
from provico.probability import MinedPairs
from provico.training import monitor as monitor_module
from provico.training.monitor import LabelMonitor

NUM_VIDEOS, DIM = 12, 4
LABELS = [number % 3 for number in range(NUM_VIDEOS)]
GROUPS = [number // 2 for number in range(NUM_VIDEOS)]


def draw(seed: int, num_videos: int = NUM_VIDEOS) -> Tensor:
    return torch.randn(num_videos, DIM, generator=torch.Generator().manual_seed(seed))


def make_catalog(labels: list[str | None], groups: list[str | None] | None = None) -> Catalog:
    groups = groups or [None] * len(labels)
    videos = tuple(
        Video(Path(f"{number}.mp4"), f"{number}.mp4", label, group)
        for number, (label, group) in enumerate(zip(labels, groups, strict=True))
    )
    return Catalog(Path(), "list", videos, tuple(sorted({label for label in labels if label})))


def recall_by_hand(means: Tensor, videos: list[int], labels: list[int], groups: list[int]) -> float:
    hits = []
    for query in range(len(videos)):
        best, cosine_of_best = None, -math.inf
        for other in range(len(videos)):
            if groups[videos[other]] == groups[videos[query]]:
                continue
            a, b = means[query].tolist(), means[other].tolist()
            cosine = sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)
            if cosine > cosine_of_best:
                best, cosine_of_best = other, cosine
        if best is not None:
            hits.append(labels[videos[best]] == labels[videos[query]])
    return sum(hits) / len(hits) if hits else math.nan


@given(
    seed=st.integers(0, 2**31),
    labels=st.lists(st.integers(0, 2), min_size=NUM_VIDEOS, max_size=NUM_VIDEOS),
    groups=st.lists(st.integers(0, 4), min_size=NUM_VIDEOS, max_size=NUM_VIDEOS),
    num_seen=st.integers(0, NUM_VIDEOS),
)
@settings(max_examples=40)
def test_recall_is_that_of_the_nearest_of_another_group(
    seed: int, labels: list[int], groups: list[int], num_seen: int
) -> None:
    monitor = LabelMonitor(labels, groups, dim=DIM)
    videos = torch.randperm(NUM_VIDEOS, generator=torch.Generator().manual_seed(seed))[:num_seen]
    means = draw(seed, num_seen)
    for rows in torch.split(torch.arange(num_seen), 5):
        monitor.see(videos[rows], means[rows])
    expected = recall_by_hand(means, videos.tolist(), labels, groups)
    assert monitor.recall_at_1() == pytest.approx(expected, nan_ok=True)


def test_a_video_of_the_same_group_is_never_a_neighbour() -> None:
    means = torch.eye(3, DIM)[[0, 0, 1, 1]]  # the videos of a group are one point
    means[:, 3] = torch.tensor([0.1, 0.1, 0.1, 0.1])
    within = LabelMonitor([0, 0, 1, 1], [0, 0, 1, 1], dim=DIM)
    apart = LabelMonitor([0, 0, 1, 1], [0, 1, 2, 3], dim=DIM)
    for monitor in (within, apart):
        monitor.see(torch.arange(4), means)
    assert within.recall_at_1() == 0
    assert apart.recall_at_1() == 1
    alone = LabelMonitor([0, 1], [0, 0], dim=DIM)
    alone.see(torch.arange(2), means[:2])
    assert math.isnan(alone.recall_at_1())


def test_the_newest_embedding_of_a_video_counts() -> None:
    monitor, fresh = (LabelMonitor(LABELS, GROUPS, dim=DIM) for _ in range(2))
    old, new = draw(0), draw(1)
    new[8:] = old[8:]
    monitor.see(torch.arange(NUM_VIDEOS), old)
    monitor.see(torch.tensor([5, 0, 1, 2]), new[[5, 0, 1, 2]])
    monitor.see(torch.tensor([3, 4, 6, 7]), new[[3, 4, 6, 7]])
    fresh.see(torch.arange(NUM_VIDEOS), new)
    assert monitor.recall_at_1() == fresh.recall_at_1()
    state = monitor.state_dict()
    assert sorted(state["videos"].tolist()) == list(range(NUM_VIDEOS))
    torch.testing.assert_close(state["means"][state["videos"].argsort()], new)


def test_only_the_newest_videos_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor_module, "NUM_KEPT", 5)
    monitor = LabelMonitor(LABELS, GROUPS, dim=DIM)
    means = draw(0)
    for video in (0, 1, 2, 3, 4, 5, 6, 2):
        monitor.see(torch.tensor([video]), means[[video]])
    assert monitor.state_dict()["videos"].tolist() == [3, 4, 5, 6, 2]
    expected = recall_by_hand(means[[3, 4, 5, 6, 2]], [3, 4, 5, 6, 2], LABELS, GROUPS)
    assert monitor.recall_at_1() == pytest.approx(expected)


def test_a_restored_monitor_goes_on(tmp_path: Path) -> None:
    whole, stopped, restored = (LabelMonitor(LABELS, GROUPS, dim=DIM) for _ in range(3))
    means = draw(2)
    for monitor in (whole, stopped):
        monitor.see(torch.arange(7), means[:7])
    torch.save(stopped.state_dict(), tmp_path / "state.pt")
    restored.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for monitor in (whole, restored):
        monitor.see(torch.arange(4, 12), means[4:])
    for name, value in whole.state_dict().items():
        assert torch.equal(value, restored.state_dict()[name])
    assert restored.recall_at_1() == whole.recall_at_1()


def test_what_it_sees_has_no_gradient() -> None:
    monitor = LabelMonitor(LABELS, GROUPS, dim=DIM)
    monitor.see(torch.arange(NUM_VIDEOS), draw(0).requires_grad_())
    assert not monitor.state_dict()["means"].requires_grad


@given(seed=st.integers(0, 2**31))
@settings(max_examples=20)
def test_mined_pairs_are_held_against_the_labels(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    videos = torch.randperm(NUM_VIDEOS, generator=generator)[:6]
    half = torch.rand(6, 6, generator=generator) < 0.4
    positive = half | half.T | torch.eye(6, dtype=torch.bool)
    found = LabelMonitor(LABELS, GROUPS, dim=DIM).score(MinedPairs(positive, threshold=0.1), videos)
    right = mined = same = 0
    for i in range(6):
        for j in range(i):
            alike = LABELS[int(videos[i])] == LABELS[int(videos[j])]
            mined, same = mined + bool(positive[i, j]), same + alike
            right += alike and bool(positive[i, j])
    precision, recall = right / mined if mined else math.nan, right / same if same else math.nan
    assert found["mining/precision"] == pytest.approx(precision, nan_ok=True)
    assert found["mining/recall"] == pytest.approx(recall, nan_ok=True)


def test_without_labels_there_is_no_monitor() -> None:
    assert LabelMonitor.of(make_catalog([None, None]), dim=DIM) is None
    assert LabelMonitor.of(make_catalog(["a", "a", None]), dim=DIM) is None
    assert LabelMonitor.of(make_catalog(["a", "a"]), dim=DIM) is None
    both = make_catalog(["a", "a", "b"])
    assert LabelMonitor.of(both.subset([0, 1]), dim=DIM) is None, "one label is left"
    assert LabelMonitor.of(both, dim=DIM) is not None


def test_groups_come_from_the_catalog() -> None:
    """What was cut from one recording is one group whatever it shows; a video without a group is one too."""
    labels: list[str | None] = ["a", "a", "b", "b", "b", "b"]
    monitor = LabelMonitor.of(make_catalog(labels, ["g1", "g1", "g1", "g2", None, None]), dim=DIM)
    assert monitor is not None
    for seed in range(10):
        means = draw(seed, 6)
        monitor.see(torch.arange(6), means)
        expected = recall_by_hand(means, list(range(6)), [0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 2, 3])
        assert monitor.recall_at_1() == pytest.approx(expected)


def test_videos_without_labels_are_as_if_they_were_not_there() -> None:
    labels: list[str | None] = ["a", None, "b", "a", None, "b", None, "b"]
    known = [number for number, label in enumerate(labels) if label is not None]
    every = make_catalog(labels)
    mixed, alone = (LabelMonitor.of(videos, dim=DIM) for videos in (every, every.subset(known)))
    assert mixed is not None
    assert alone is not None
    for seed in range(10):
        means = draw(seed, len(labels))
        mixed.see(torch.arange(len(labels)), means)
        alone.see(torch.arange(len(known)), means[known])
        assert mixed.recall_at_1() == alone.recall_at_1()
        positive = torch.cdist(means, means) < 2
        expected = alone.score(MinedPairs(positive[known][:, known], threshold=2.0), torch.arange(len(known)))
        found = mixed.score(MinedPairs(positive, threshold=2.0), torch.arange(len(labels)))
        assert found == pytest.approx(expected, nan_ok=True)
