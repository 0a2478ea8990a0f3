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
from provico.search import Gallery, describe, exact_top_k
from provico.search.exact import known as known_module
from provico.search.exact import top_k as exact_module
from provico.search.exact.found import Owners
from provico.search.store.postgres import place_vectors

from .made_up import check, clouds, curve, draw

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


@pytest.mark.parametrize("case", CASES)
def test_finds_what_the_loop_finds(loop, case):
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
    for query, found in zip(queries, exact_top_k(queries, gallery, curve=of, k=10), strict=True):
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
    assert found.rows.tolist() == order[:50].tolist()
    assert len(found.scores[:40].unique()) == 1


def test_the_order_of_samples_is_no_difference():
    """p is a mean over the samples, so a video with the same ones in another order is a tie."""
    videos = clouds(0, 30, 6, 8, 0.3)
    shuffled = torch.cat([videos[:, torch.tensor([3, 1, 5, 0, 4, 2])], videos])
    found = exact_top_k(clouds(5, 1, 6, 8, 0.3), Gallery.of_samples(shuffled), curve=curve(5.0, 4.0), k=20)[0]
    pairs = found.rows.view(10, 2)
    assert torch.equal(pairs[:, 0] + 30, pairs[:, 1])


def test_rounds_of_screening_change_nothing(loop, monkeypatch):
    """Nothing can be dismissed here, so that everything goes through float32 first."""
    for module in (exact_module, known_module):
        monkeypatch.setattr(module, "SCREEN_FROM", 4)
        monkeypatch.setattr(module, "LARGEST_ROUND", 16)
    videos, queries = clouds(0, 200, 4, 8, 1.5), clouds(4, 5, 4, 8, 1.5)
    of = curve(20.0, 1.0)
    for query, found in zip(
        queries, exact_top_k(queries, Gallery.of_samples(videos), curve=of, k=7), strict=True
    ):
        assert found.certificate.num_scored > 100
        check(loop, found, query, videos, of, 7)


def test_most_videos_are_dismissed_where_clouds_are_small(loop):
    videos, queries = clouds(0, 5000, 10, 32, 0.3), clouds(4, 8, 10, 32, 0.3)
    found = exact_top_k(queries, Gallery.of_samples(videos), curve=curve(5.0, 5.0))
    assert max(top.certificate.num_scored for top in found) < 500
    for query, top in zip(queries[:2], found, strict=False):
        check(loop, top, query, videos, curve(5.0, 5.0), 10)


def test_queries_do_not_depend_on_their_batch(monkeypatch):
    videos, queries = clouds(0, 300, 4, 8, 0.3), clouds(4, 7, 4, 8, 0.3)
    gallery, of = Gallery.of_samples(videos), curve(5.0, 4.0)
    together = exact_top_k(queries, gallery, curve=of)
    monkeypatch.setattr(exact_module, "QUERIES_AT_ONCE", 2)
    apart = exact_top_k(queries, gallery, curve=of)
    for one, other in zip(together, apart, strict=True):
        assert torch.equal(one.rows, other.rows)
        assert torch.allclose(one.scores, other.scores, rtol=1e-14, atol=0)


@pytest.mark.parametrize("many", [10**9, 0], ids=["from one side", "from both sides"])
@pytest.mark.parametrize("case", CASES)
def test_the_best_part_of_each_owner_is_found(loop, case, many, monkeypatch):
    """Owners with many parts, with few, with none, and with a score of their own."""
    monkeypatch.setattr(exact_module, "MANY", many)
    monkeypatch.setattr(exact_module, "WIDE", 0.0 if many == 0 else 1.0)
    for module in (exact_module, known_module):
        monkeypatch.setattr(module, "SCREEN_FROM", 4)
    of_case = {"num_samples": 4, "dim": 6, "width": 0.3, "hetero": 0.3, "shift": 0.0, "factor": 1.0} | {
        "a": 5.0, "b": 4.0, "sigmoid_scale": 1.0
    } | CASES[case]  # fmt: skip
    shape = {name: of_case[name] for name in ("num_samples", "dim", "width", "hetero")}
    parts = of_case["factor"] * (clouds(0, 150, **shape) + of_case["shift"])
    queries = of_case["factor"] * (clouds(9, 2, **shape) + of_case["shift"])
    queries[0] = parts[7]
    of = curve(of_case["a"], of_case["b"], of_case["sigmoid_scale"])
    rng = np.random.default_rng(0)
    owner = torch.from_numpy(np.minimum(rng.geometric(0.2, size=150) - 1, 11))
    allowed = torch.from_numpy(rng.random(150) < 0.9)
    gallery = Gallery.of_samples(parts)
    for query in queries:
        scores = torch.from_numpy(loop.scores(query, parts, of))
        known = torch.full((15,), -math.inf, dtype=torch.float64)
        known[::3] = torch.from_numpy(loop.scores(query, parts[torch.arange(5) * 30], of))
        best = known.scatter_reduce(0, owner[allowed], scores[allowed], "amax")
        for k in (1, 4, 30):
            (found,) = exact_top_k(
                query[None], gallery, curve=of, k=k, allowed=allowed, owners=Owners(owner, known)
            )
            assert found.certificate.is_exact
            assert bool(allowed[found.rows].all())
            owners = owner[found.rows]
            assert len(owners.unique()) == len(owners)
            of_parts = known.scatter_reduce(0, owners, found.scores, "amax")
            expected = best.sort(descending=True).values[:k]
            assert torch.allclose(
                of_parts.sort(descending=True).values[:k], expected, rtol=1e-9, atol=1e-13, equal_nan=True
            )
            assert torch.allclose(scores[found.rows], found.scores, rtol=1e-9, atol=1e-13)


def test_only_allowed_videos_are_found(loop):
    videos, query = clouds(0, 300, 4, 8, 0.3), clouds(4, 1, 4, 8, 0.3)
    gallery, of = Gallery.of_samples(videos), curve(5.0, 4.0)
    allowed = torch.arange(300) % 7 == 3
    found = exact_top_k(query, gallery, curve=of, allowed=allowed)[0]
    _, order = loop.ranking(query[0], videos[allowed], of)
    assert found.certificate.is_exact
    assert found.rows.tolist() == allowed.nonzero().squeeze(1)[order[:10]].tolist()
    few = torch.arange(300) < 3
    assert sorted(exact_top_k(query, gallery, curve=of, allowed=few)[0].rows.tolist()) == [0, 1, 2]
    none = exact_top_k(query, gallery, curve=of, allowed=torch.zeros(300, dtype=torch.bool))[0]
    assert len(none.rows) == 0
    assert none.certificate.is_exact


def test_what_is_below_the_least_probability_is_left_out(loop):
    videos, query = clouds(0, 300, 4, 8, 0.3), clouds(4, 1, 4, 8, 0.3)
    gallery, of = Gallery.of_samples(videos), curve(5.0, 4.0)
    scores, order = loop.ranking(query[0], videos, of)
    least = float(scores[3:5].mean())
    found = exact_top_k(query, gallery, curve=of, min_log_probability=least)[0]
    assert found.rows.tolist() == order[:4].tolist()
    assert found.certificate.is_exact
    nothing = exact_top_k(query + 100, gallery, curve=of, min_log_probability=math.log(0.5))[0]
    assert len(nothing.rows) == 0
    assert nothing.certificate.is_exact
    assert nothing.certificate.num_scored < 30


@settings(max_examples=40)
@given(seed=st.integers(0, 2**31), k=st.integers(1, 30), width=st.sampled_from([0.2, 0.6, 1.0]))
def test_a_certificate_is_never_false(loop, seed, k, width):
    """No video whose samples were not looked at is above the ceiling, which no hit is below."""
    videos, query = clouds(seed, 120, 3, 6, width, 0.5), clouds(seed + 5, 1, 3, 6, width)
    of, fetched = curve(6.0, 3.0), set()

    def fetch(rows: Tensor) -> Tensor:
        fetched.update(rows.tolist())
        return videos[rows]

    found = exact_top_k(query, Gallery(*describe(videos), fetch), curve=of, k=k)[0]
    certificate = found.certificate
    assert certificate.is_exact
    assert certificate.num_allowed == 120
    assert certificate.num_scored == len(fetched)
    assert certificate.ceiling <= found.scores[-1]
    missed = sorted(set(range(120)) - fetched)
    assert all(loop.scores(query[0], videos[missed], of) <= certificate.ceiling + 1e-9)


def test_samples_may_be_anywhere(loop):
    videos, query = clouds(0, 200, 4, 8, 0.3), clouds(4, 1, 4, 8, 0.3)
    whole = Gallery.of_samples(videos)
    asked: list[int] = []

    def fetch(rows: Tensor) -> Tensor:
        asked.extend(rows.tolist())
        return videos[rows]

    mean = videos.double().mean(dim=1)
    elsewhere = Gallery(mean, whole.spread, fetch)
    found = exact_top_k(query, elsewhere, curve=curve(5.0, 4.0), k=3)[0]
    check(loop, found, query[0], videos, curve(5.0, 4.0), 3)
    assert len(asked) == found.certificate.num_scored < 100


def test_vectors_of_an_engine_are_what_the_identity_needs():
    """|q - m|^2 + V + V_q is the mean squared distance of all samples."""
    videos, query = clouds(0, 20, 4, 8, 0.3), clouds(4, 1, 4, 8, 0.3)[0]
    mean, spread = describe(videos)
    vectors = torch.from_numpy(np.stack(place_vectors(mean.numpy(), spread.mean_square.numpy())))
    vector = torch.cat([query.mean(dim=0), torch.zeros(1)])
    stage_one = (vectors - vector).square().sum(dim=1)
    own = (query - query.mean(dim=0)).square().sum(dim=1).mean()
    for number, video in enumerate(videos):
        mean = (query.unsqueeze(1) - video).square().sum(dim=2).mean()
        assert stage_one[number].item() + own.item() == pytest.approx(mean.item(), rel=1e-5)


def test_what_cannot_be_searched_is_refused():
    gallery, query, of = Gallery.of_samples(draw(0, 5, 2, 3)), draw(1, 1, 2, 3), curve(1.0, 1.0)
    with pytest.raises(ConfigError, match="k is 0"):
        exact_top_k(query, gallery, curve=of, k=0)
    with pytest.raises(ConfigError, match="at most 0"):
        exact_top_k(query, gallery, curve=of, min_log_probability=0.5)
    with pytest.raises(ConfigError, match="samples, 3"):
        exact_top_k(draw(1, 1, 2, 4), gallery, curve=of)
    with pytest.raises(ConfigError, match="samples, 3"):
        exact_top_k(query * math.nan, gallery, curve=of)
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
