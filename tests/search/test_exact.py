"""The exact search against a float64 loop over everything, on cases that are meant to break it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from provico.errors import ConfigError
from provico.probability import MatchCurve
from provico.search import Gallery, TopK, exact_top_k
from provico.search.exact import top_k as exact_module


def curve(a: float, b: float, sigmoid_scale: float = 1.0) -> MatchCurve:
    return MatchCurve(
        torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64), sigmoid_scale
    )


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def clouds(seed: int, num: int, num_samples: int, dim: int, width: float, hetero: float = 0.0) -> Tensor:
    widths = width * torch.exp(hetero * draw(seed, num, 1, 1)) / math.sqrt(dim)
    return draw(seed + 1, num, 1, dim) / math.sqrt(dim) + widths * draw(seed + 2, num, num_samples, dim)


def check(loop, found: TopK, query: Tensor, videos: Tensor, of: MatchCurve, k: int) -> None:
    """The k best, in order. Scores that differ by less than rounding may be in either order."""
    scores, order = loop.ranking(query, videos, of)
    k = min(k, len(videos))
    assert found.is_certified
    assert len(set(found.numbers.tolist())) == len(found.numbers) == k
    assert np.allclose(found.log_probabilities.numpy(), scores[:k], rtol=1e-9, atol=0)
    own = loop.scores(query, videos[found.numbers], of)
    assert np.allclose(own, scores[:k], rtol=1e-9, atol=0)
    is_clear = np.diff(scores[: k + 1], append=-np.inf)[:k] < -1e-9 * np.abs(scores[:k])
    is_clear[1:] &= is_clear[:-1]
    assert (found.numbers.numpy() == order[:k])[is_clear].all()
    assert found.num_scored <= len(videos)


CASES: dict[str, dict[str, Any]] = {
    "ordinary": {},
    "one video": {"num": 1},
    "fewer than k": {"num": 4},
    "one sample": {"num_samples": 1},
    "more samples than dimensions": {"num_samples": 9, "dim": 3},
    "one dimension": {"dim": 1},
    "tiny variance": {"width": 1e-6},
    "no variance": {"width": 0.0},
    "huge variance": {"width": 1e3},
    "mixed variances": {"width": 0.5, "hetero": 2.0},
    "steep": {"a": 1e3},
    "a times distance is huge": {"a": 1e6},
    "flat": {"a": 1e-4},
    "b is huge": {"b": 1e3},
    "b is negative": {"b": -20.0},
    "b is very negative": {"b": -2e3},
    "doubled sigmoid": {"sigmoid_scale": 2.0, "a": 15.0, "b": 15.0},
    "far from the origin": {"shift": 1e3},
    "tiny numbers": {"factor": 1e-12},
    "large numbers": {"factor": 1e12},
}


@pytest.mark.parametrize("engine", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_finds_what_the_loop_finds(loop, case, engine):
    settings_ = {
        "num": 150, "num_samples": 5, "dim": 12, "width": 0.3, "hetero": 0.3, "shift": 0.0, "factor": 1.0,
        "a": 5.0, "b": 4.0, "sigmoid_scale": 1.0,
    } | CASES[case]  # fmt: skip
    shape = {name: settings_[name] for name in ("num_samples", "dim", "width", "hetero")}
    videos = settings_["factor"] * (clouds(0, settings_["num"], **shape) + settings_["shift"])
    queries = settings_["factor"] * (clouds(9, 6, **shape) + settings_["shift"])
    queries[0] = videos[0]
    of = curve(settings_["a"], settings_["b"], settings_["sigmoid_scale"])
    gallery = Gallery.of_samples(videos)
    candidates = brute_engine(gallery) if engine else None
    for query, found in zip(
        queries, exact_top_k(queries, gallery, curve=of, k=10, candidates=candidates), strict=True
    ):
        check(loop, found, query, videos, of, 10)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**31),
    num=st.integers(1, 200),
    num_samples=st.sampled_from([1, 2, 6]),
    dim=st.sampled_from([1, 3, 16]),
    width=st.floats(-4, 2).map(lambda power: 10.0**power),
    hetero=st.sampled_from([0.0, 1.0]),
    a=st.floats(-2, 3).map(lambda power: 10.0**power),
    b=st.floats(-30, 60),
    k=st.integers(1, 12),
    num_copies=st.integers(0, 5),
)
def test_any_gallery_is_searched_exactly(
    loop, seed, num, num_samples, dim, width, hetero, a, b, k, num_copies
):
    videos = clouds(seed, num, num_samples, dim, width, hetero)
    videos = torch.cat([videos, videos[:num_copies]])
    query = clouds(seed + 7, 1, num_samples, dim, width, hetero)
    gallery = Gallery.of_samples(videos)
    found = exact_top_k(query, gallery, curve=curve(a, b), k=k)[0]
    check(loop, found, query[0], videos, curve(a, b), k)


def test_equal_scores_come_in_the_order_of_the_gallery(loop):
    few = clouds(0, 3, 4, 8, 0.3)
    videos = few.repeat(40, 1, 1)[torch.randperm(120, generator=torch.Generator().manual_seed(0))]
    query = clouds(5, 1, 4, 8, 0.3)
    found = exact_top_k(query, Gallery.of_samples(videos), curve=curve(5.0, 4.0), k=50)[0]
    _, order = loop.ranking(query[0], videos, curve(5.0, 4.0))
    assert found.numbers.tolist() == order[:50].tolist()
    assert len(found.log_probabilities[:40].unique()) == 1


def test_the_order_of_samples_is_no_difference():
    """p is a mean over the samples, so a video with the same ones in another order is a tie."""
    videos = clouds(0, 30, 6, 8, 0.3)
    shuffled = torch.cat([videos[:, torch.tensor([3, 1, 5, 0, 4, 2])], videos])
    found = exact_top_k(clouds(5, 1, 6, 8, 0.3), Gallery.of_samples(shuffled), curve=curve(5.0, 4.0), k=20)[0]
    pairs = found.numbers.view(10, 2)
    assert torch.equal(pairs[:, 0] + 30, pairs[:, 1])


def test_rounds_of_screening_change_nothing(loop, monkeypatch):
    """Nothing can be dismissed here, so that everything goes through float32 first."""
    monkeypatch.setattr(exact_module, "SCREEN_FROM", 4)
    monkeypatch.setattr(exact_module, "LARGEST_ROUND", 16)
    videos, queries = clouds(0, 200, 4, 8, 1.5), clouds(4, 5, 4, 8, 1.5)
    of = curve(20.0, 1.0)
    for query, found in zip(
        queries, exact_top_k(queries, Gallery.of_samples(videos), curve=of, k=7), strict=True
    ):
        assert found.num_scored > 100
        check(loop, found, query, videos, of, 7)


def test_most_videos_are_dismissed_where_clouds_are_small(loop):
    videos, queries = clouds(0, 5000, 10, 32, 0.3), clouds(4, 8, 10, 32, 0.3)
    found = exact_top_k(queries, Gallery.of_samples(videos), curve=curve(5.0, 5.0))
    assert max(top.num_scored for top in found) < 500
    for query, top in zip(queries[:2], found, strict=False):
        check(loop, top, query, videos, curve(5.0, 5.0), 10)


def test_queries_do_not_depend_on_their_batch(monkeypatch):
    videos, queries = clouds(0, 300, 4, 8, 0.3), clouds(4, 7, 4, 8, 0.3)
    gallery, of = Gallery.of_samples(videos), curve(5.0, 4.0)
    together = exact_top_k(queries, gallery, curve=of)
    monkeypatch.setattr(exact_module, "QUERIES_AT_ONCE", 2)
    apart = exact_top_k(queries, gallery, curve=of)
    for one, other in zip(together, apart, strict=True):
        assert torch.equal(one.numbers, other.numbers)
        assert torch.allclose(one.log_probabilities, other.log_probabilities, rtol=1e-14, atol=0)


def test_only_allowed_videos_are_found(loop):
    videos, query = clouds(0, 300, 4, 8, 0.3), clouds(4, 1, 4, 8, 0.3)
    gallery, of = Gallery.of_samples(videos), curve(5.0, 4.0)
    allowed = torch.arange(300) % 7 == 3
    found = exact_top_k(query, gallery, curve=of, allowed=allowed)[0]
    _, order = loop.ranking(query[0], videos[allowed], of)
    assert found.is_certified
    assert found.numbers.tolist() == allowed.nonzero().squeeze(1)[order[:10]].tolist()
    few = torch.arange(300) < 3
    assert sorted(exact_top_k(query, gallery, curve=of, allowed=few)[0].numbers.tolist()) == [0, 1, 2]
    none = exact_top_k(query, gallery, curve=of, allowed=torch.zeros(300, dtype=torch.bool))[0]
    assert len(none.numbers) == 0
    assert none.is_certified


def test_what_is_below_the_least_probability_is_left_out(loop):
    videos, query = clouds(0, 300, 4, 8, 0.3), clouds(4, 1, 4, 8, 0.3)
    gallery, of = Gallery.of_samples(videos), curve(5.0, 4.0)
    scores, order = loop.ranking(query[0], videos, of)
    least = float(scores[3:5].mean())
    found = exact_top_k(query, gallery, curve=of, min_log_probability=least)[0]
    assert found.numbers.tolist() == order[:4].tolist()
    assert found.is_certified
    nothing = exact_top_k(query + 100, gallery, curve=of, min_log_probability=math.log(0.5))[0]
    assert len(nothing.numbers) == 0
    assert nothing.is_certified
    assert nothing.num_scored < 30


@pytest.mark.parametrize("engine", [False, True])
@pytest.mark.parametrize("b", [1.0, -900.0])
def test_a_search_that_was_cut_short_says_so(loop, engine, b):
    videos, query = clouds(0, 400, 4, 8, 1.5), clouds(4, 1, 4, 8, 1.5)
    gallery, of = Gallery.of_samples(videos), curve(20.0, b)
    candidates = brute_engine(gallery) if engine else None
    whole = exact_top_k(query, gallery, curve=of, candidates=candidates)[0]
    assert whole.is_certified
    assert whole.num_scored > 100
    cut = exact_top_k(query, gallery, curve=of, max_scored=20, candidates=candidates)[0]
    assert not cut.is_certified
    assert cut.num_scored < 100
    scores = loop.scores(query[0], videos, of)
    others = np.setdiff1d(np.argsort(-scores)[:100], cut.numbers.numpy())
    assert cut.ceiling >= cut.log_probabilities[-1]
    assert cut.ceiling >= scores[others].max() or scores[others].max() <= cut.log_probabilities[-1]


@settings(max_examples=40)
@given(seed=st.integers(0, 2**31), max_scored=st.integers(1, 120), width=st.sampled_from([0.2, 0.6, 1.0]))
def test_a_certificate_is_never_false(loop, seed, max_scored, width):
    videos, query = clouds(seed, 120, 3, 6, width, 0.5), clouds(seed + 5, 1, 3, 6, width)
    of = curve(6.0, 3.0)
    found = exact_top_k(query, Gallery.of_samples(videos), curve=of, k=5, max_scored=max_scored)[0]
    scores, _ = loop.ranking(query[0], videos, of)
    if found.is_certified:
        check(loop, found, query[0], videos, of, 5)
    elif not np.allclose(found.log_probabilities.numpy(), scores[:5], rtol=1e-9):
        missed = np.setdiff1d(np.arange(120), found.numbers.numpy())
        assert loop.scores(query[0], videos[missed], of).max() <= found.ceiling


def test_samples_may_be_anywhere(loop):
    videos, query = clouds(0, 200, 4, 8, 0.3), clouds(4, 1, 4, 8, 0.3)
    whole = Gallery.of_samples(videos)
    asked: list[int] = []

    def fetch(numbers: Tensor) -> Tensor:
        asked.extend(numbers.tolist())
        return videos[numbers]

    mean = videos.double().mean(dim=1)
    elsewhere = Gallery(mean, whole.spread, fetch)
    found = exact_top_k(query, elsewhere, curve=curve(5.0, 4.0), k=3)[0]
    check(loop, found, query[0], videos, curve(5.0, 4.0), 3)
    assert len(asked) == found.num_scored < 100


def test_vectors_are_what_the_identity_needs():
    """|q - m|^2 + V + V_q is the mean squared distance of all samples."""
    videos, query = clouds(0, 20, 4, 8, 0.3), clouds(4, 1, 4, 8, 0.3)[0]
    gallery = Gallery.of_samples(videos)
    vector = torch.cat([query.mean(dim=0) - gallery.centre, torch.zeros(1)])
    stage_one = (gallery.vectors - vector).square().sum(dim=1)
    own = (query - query.mean(dim=0)).square().sum(dim=1).mean()
    for number, video in enumerate(videos):
        mean = (query.unsqueeze(1) - video).square().sum(dim=2).mean()
        assert stage_one[number].item() + own.item() == pytest.approx(mean.item(), rel=1e-5)


def test_what_cannot_be_searched_is_refused():
    gallery, query, of = Gallery.of_samples(draw(0, 5, 2, 3)), draw(1, 1, 2, 3), curve(1.0, 1.0)
    with pytest.raises(ConfigError, match="k is 0"):
        exact_top_k(query, gallery, curve=of, k=0)
    with pytest.raises(ConfigError, match="max_scored is 0"):
        exact_top_k(query, gallery, curve=of, max_scored=0)
    with pytest.raises(ConfigError, match="at most 0"):
        exact_top_k(query, gallery, curve=of, min_log_probability=0.5)
    with pytest.raises(ConfigError, match="samples, 3"):
        exact_top_k(draw(1, 1, 2, 4), gallery, curve=of)
    with pytest.raises(ConfigError, match="samples, 3"):
        exact_top_k(query * math.nan, gallery, curve=of)
    with pytest.raises(ConfigError, match="own filters"):
        exact_top_k(
            query,
            gallery,
            curve=of,
            allowed=torch.ones(5, dtype=torch.bool),
            candidates=brute_engine(gallery),
        )
    with pytest.raises(ConfigError, match="positive slope"):
        exact_top_k(query, gallery, curve=curve(-1.0, 1.0))
    for videos in (draw(0, 0, 2, 3), draw(0, 5, 2, 3) * math.inf, draw(0, 5, 2, 3) * 1e16):
        with pytest.raises(ConfigError, match="at least one video"):
            Gallery.of_samples(videos)
    with pytest.raises(ConfigError, match="proved for 16000"):
        Gallery.of_samples(draw(0, 1, 1, 16001))


def test_rounding_that_no_proof_covers_is_refused():
    gallery = Gallery.of_samples(draw(0, 5, 2, 3))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(ConfigError, match="no certificate covers"):
            exact_top_k(draw(1, 1, 2, 3), gallery, curve=curve(1.0, 1.0))
    finally:
        torch.set_float32_matmul_precision(before)


def brute_engine(gallery: Gallery):
    """A vector engine: exact L2 search over the vectors of the gallery, in float32."""
    vectors = gallery.vectors

    def candidates(query: Tensor, num: int) -> tuple[Tensor, Tensor]:
        squared = (vectors - query).square().sum(dim=1)
        order = squared.argsort()[:num]
        return order, squared[order]

    return candidates
