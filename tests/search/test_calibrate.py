"""Pairs for calibration are the hits of a search."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from provico.embedding.embeddings import Embeddings
from provico.errors import ConfigError
from provico.evaluation.embedded_search import Sampling, SearchedEmbeddings, hits_of
from provico.evaluation.retrieval import retrieve
from provico.probability.gaussian import Gaussian
from provico.probability.matching import MatchCurve
from provico.probability.mixture import Mixture
from provico.search.calibrate import calibrate, labelled_pairs

CURVE = MatchCurve(torch.tensor(1.0), torch.tensor(3.0))


def made_up(num_videos: int = 60, *, spread: float = 1.0, seed: int = 0, labelled: bool = True) -> Embeddings:
    """Videos of three classes, two to a recording, whose clips lie about the video's own place."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.arange(num_videos) % 3
    middles = 3 * torch.eye(3, 5)[classes] + spread * torch.randn(num_videos, 5, generator=generator)
    means = middles.unsqueeze(1) + 0.2 * torch.randn(num_videos, 4, 5, generator=generator)
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


def test_without_labels_there_is_none() -> None:
    assert calibrate(searched(made_up())).source == "labels"
    with pytest.raises(ConfigError, match=r"0 match.*--max-chance"):
        calibrate(searched(made_up(labelled=False)))


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


def test_few_videos_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 20"):
        calibrate(searched(made_up(10)))
    with pytest.raises(ConfigError, match="k is 0"):
        calibrate(searched(made_up()), k=0)


def test_queries_are_a_sample_that_the_seed_decides() -> None:
    videos = searched(made_up())
    some = labelled_pairs(videos, k=3, num_queries=25)
    assert len(some.is_match) == 75
    assert torch.equal(some.log_probability, labelled_pairs(videos, k=3, num_queries=25).log_probability)
    other = labelled_pairs(videos, k=3, num_queries=25, seed=1)
    assert not torch.equal(some.log_probability, other.log_probability)
