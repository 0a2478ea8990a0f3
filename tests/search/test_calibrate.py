"""Pairs for calibration are the hits of a search, and halves of videos."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from provico.embedding.embeddings import Embeddings
from provico.errors import ConfigError
from provico.evaluation.embedded_search import Sampling, SearchedEmbeddings, hits_of
from provico.evaluation.retrieval import retrieve
from provico.probability.gaussian import Gaussian
from provico.probability.matching import MatchCurve, log_match_probability
from provico.probability.mixture import Mixture
from provico.probability.seeded_samples import seeded_samples
from provico.search.calibrate import calibrate, half_pairs, halves, labelled_pairs

CURVE = MatchCurve(torch.tensor(1.0), torch.tensor(3.0))


def made_up(
    num_videos: int = 60, *, num_clips: int = 4, spread: float = 1.0, seed: int = 0, labelled: bool = True
) -> Embeddings:
    """Videos of three classes, two to a recording, whose clips lie about the video's own place."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.arange(num_videos) % 3
    middles = 3 * torch.eye(3, 5)[classes] + spread * torch.randn(num_videos, 5, generator=generator)
    means = middles.unsqueeze(1) + 0.2 * torch.randn(num_videos, num_clips, 5, generator=generator)
    return Embeddings(
        ids=tuple(f"{number}.mp4" for number in range(num_videos)),
        videos=Mixture(Gaussian(means, torch.full_like(means, -3.0))),
        labels=tuple(f"class {number}" if labelled else None for number in classes.tolist()),
        groups=tuple(f"g{number // 6}-{number % 3}" for number in range(num_videos)),
    )


def searched(embeddings: Embeddings, curve: MatchCurve = CURVE) -> SearchedEmbeddings:
    return SearchedEmbeddings(embeddings, curve, Sampling(5))


def test_labelled_pairs_are_what_retrieval_finds_outside_the_group() -> None:
    videos = made_up()
    report = retrieve(videos, videos, curve=CURVE, ks=(7,), num_samples=5, exclude_same="group")
    pairs = labelled_pairs(searched(videos), k=7)
    assert torch.equal(pairs.is_match.view(60, 7), report.right)
    assert torch.allclose(pairs.log_probability.view(60, 7)[:, 0].float(), report.score)
    assert pairs.groups[::7] == videos.groups


def test_hits_are_what_retrieval_finds() -> None:
    videos, queries = made_up(), replace(made_up(9, seed=1), ids=tuple("abcdefghi"))
    report = retrieve(queries, videos, curve=CURVE, ks=(4,), num_samples=5)
    log_probability, right = hits_of(queries, searched(videos), k=4)
    assert torch.equal(right, report.right)
    assert torch.allclose(log_probability[:, 0].float(), report.score)


def test_videos_without_labels_are_neither_queries_nor_hits() -> None:
    videos = made_up()
    some = replace(videos, labels=tuple(label if n % 2 else None for n, label in enumerate(videos.labels)))
    pairs = labelled_pairs(searched(some), k=100)
    assert set(pairs.groups) == set(videos.groups)
    # Thirty queries find the labelled videos of other groups: all but those of their own, which is one.
    assert len(pairs.is_match) == 30 * 29


def test_half_pairs_by_their_definition() -> None:
    videos = made_up()
    pairs = half_pairs(searched(videos))
    assert int(pairs.is_match.sum()) == 60
    assert len(pairs.is_match) == 120
    clips = videos.videos.clips
    number = 17
    first = Mixture(Gaussian(clips.mean[number : number + 1, :2], clips.log_var[number : number + 1, :2]))
    second = Mixture(Gaussian(clips.mean[number : number + 1, 2:], clips.log_var[number : number + 1, 2:]))
    samples = [
        seeded_samples([videos.ids[number]], half, num_samples=5, seed=0, stream=stream)
        for half, stream in ((first, "query"), (second, "gallery"))
    ]
    expected = float(log_match_probability(*samples, curve=CURVE))
    assert float(pairs.log_probability[number]) == pytest.approx(expected, rel=1e-5)
    assert pairs.log_probability[:60].mean() > pairs.log_probability[60:].mean() + 1


def test_the_other_video_is_never_of_the_same_recording() -> None:
    """Two recordings, far apart: a pair within one would stand out."""
    means = torch.zeros(40, 2, 3)
    means[20:] = 50.0
    two = Embeddings(
        ids=tuple(map(str, range(40))),
        videos=Mixture(Gaussian(means, torch.full_like(means, -5.0))),
        labels=(None,) * 40,
        groups=("a",) * 20 + ("b",) * 20,
    )
    pairs = half_pairs(searched(two))
    assert float(pairs.log_probability[40:].max()) < -50
    with pytest.raises(ConfigError, match="one recording"):
        half_pairs(searched(replace(two, groups=("a",) * 40)))


def test_halves_keep_every_clip_once() -> None:
    clips = made_up(3, num_clips=5).videos.clips
    first, second = halves(clips)
    assert torch.equal(torch.cat([first.mean, second.mean], dim=1), clips.mean)
    assert first.mean.shape[1] == 2


def test_labels_are_taken_if_there_are_enough() -> None:
    assert calibrate(searched(made_up())).source == "labels"
    assert calibrate(searched(made_up(labelled=False))).source == "self-supervised"
    assert calibrate(searched(made_up()), source="self-supervised").prevalence == 0.5
    with pytest.raises(ConfigError, match="0 match"):
        calibrate(searched(made_up(labelled=False)), source="labels")


def test_a_calibrated_search_keeps_its_word_on_new_videos() -> None:
    """Classes that overlap: raw probabilities are far off, calibrated ones are not."""
    gallery, queries = made_up(600, spread=2.0), made_up(300, spread=2.0, seed=5)
    queries = replace(queries, ids=tuple(f"new {name}" for name in queries.ids))
    strict = searched(gallery, MatchCurve(torch.tensor(1.0), torch.tensor(1.0)))
    found = calibrate(strict)
    log_probability, right = hits_of(queries, strict, k=10)
    promised, came_true = float(found.probability(log_probability).mean()), float(right.double().mean())
    assert promised == pytest.approx(came_true, abs=0.03)
    assert abs(float(log_probability.exp().mean()) - came_true) > 0.2


def test_few_videos_and_single_clips_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 20"):
        calibrate(searched(made_up(10)))
    with pytest.raises(ConfigError, match="one clip"):
        calibrate(searched(made_up(num_clips=1)), source="self-supervised")
    with pytest.raises(ConfigError, match="k is 0"):
        calibrate(searched(made_up()), k=0)


def test_queries_are_a_sample_that_the_seed_decides() -> None:
    videos = searched(made_up())
    some = labelled_pairs(videos, k=3, num_queries=25)
    assert len(some.is_match) == 75
    assert torch.equal(some.log_probability, labelled_pairs(videos, k=3, num_queries=25).log_probability)
    other = labelled_pairs(videos, k=3, num_queries=25, seed=1)
    assert not torch.equal(some.log_probability, other.log_probability)
