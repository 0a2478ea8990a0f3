"""Codes of eight bits and the variance from both sides, against float64; and searches that rest on them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from provico.probability import MatchCurve
from provico.search import Gallery, MomentBound, describe, exact_top_k
from provico.search.exact import rounded, sample_codes, sides, top_k
from provico.search.exact.bounds import DistanceMoments
from provico.search.exact.rounded import Rounded, products_of_codes
from provico.search.exact.sides import Sides

from .made_up import check, clouds, curve, draw


@pytest.fixture(params=["eight bits", "float32"])
def engine(request, monkeypatch):
    """Both ways to multiply codes."""
    monkeypatch.setattr(rounded, "eight_bits_are_fast", lambda: request.param == "eight bits")


@pytest.mark.parametrize("dim", [1, 2, 16, 128, 1000])
@pytest.mark.parametrize("num", [1, 7, 300])
def test_products_of_codes_are_those_of_whole_numbers(engine, dim, num):
    left, right = (Rounded.of(draw(seed, some, 1, dim)).codes.squeeze(1) for seed, some in ((0, 3), (1, num)))
    assert torch.equal(products_of_codes(left, right).long(), left.long() @ right.long().T)


def test_engines_of_this_machine_are_compared_and_one_is_chosen():
    rounded.eight_bits_are_fast.cache_clear()
    assert rounded.eight_bits_are_fast() in {True, False}


def test_an_engine_that_is_wrong_is_not_chosen(monkeypatch):
    """As on processors that lose the sum of two large products."""
    right = torch._int_mm
    monkeypatch.setattr(torch, "_int_mm", lambda left, other: right(left, other).clamp(-(2**15), 2**15))
    rounded.eight_bits_are_fast.cache_clear()
    assert not rounded.eight_bits_are_fast()
    rounded.eight_bits_are_fast.cache_clear()


@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**31),
    dim=st.sampled_from([1, 3, 16, 130]),
    factor=st.sampled_from([0.0, 1e-15, 1e-6, 1.0, 1e12]),
    num_vectors=st.sampled_from([1, 4]),
)
def test_what_codes_lose_is_known(seed, dim, factor, num_vectors):
    vectors = factor * draw(seed, 5, num_vectors, dim)
    vectors[0, 0] = 0
    of = Rounded.of(vectors)
    kept = (of.codes.double() * of.scale.double()[:, None, None])[..., :dim]
    lost = (vectors.double() - kept).square().sum(dim=2).mean(dim=1).sqrt()
    length = kept.square().sum(dim=2).mean(dim=1).sqrt()
    assert (of.lost >= lost).all()
    assert (of.length >= length).all()
    assert (of.lost <= 0.01 * vectors.abs().amax(dim=(1, 2)) * dim**0.5 + 1e-28).all()


@pytest.mark.parametrize(("slope", "offset"), [(1.2, 15.0), (5.0, 4.0), (30.0, -3.0), (0.1, 0.5)])
def test_below_the_most_variance_the_bound_is_below_the_probability(slope, offset):
    bound = MomentBound(slope, offset)
    mean = torch.linspace(0, 4 * (abs(offset) + 5) ** 2 / slope**2, 50, dtype=torch.float64)
    is_possible = False
    for probability in (1e-9, 0.01, 0.3, 0.9):
        most = bound.most_var(mean, torch.tensor(probability, dtype=torch.float64))
        some = most > 0
        is_possible = is_possible or bool(some.any())
        least = torch.zeros_like(mean)
        below = bound(DistanceMoments(mean=mean, var=(0.999999 * most).clamp(min=0), least=least))
        above = bound(DistanceMoments(mean=mean, var=1.001 * most.clamp(min=0) + 1e-6, least=least))
        assert (below[some] < probability).all()
        assert (above[some] > 0.99 * probability)[above[some] < bound.at_least(least)[some]].all()
    assert is_possible


@pytest.mark.parametrize("shift", [0.0, 100.0])
def test_both_sides_enclose_the_variance_closely(engine, shift):
    """The variance of the K x K squared distances is that of both sides, and of what crosses."""
    videos, queries = (clouds(seed, num, 6, 32, 1.0, 0.3) + shift for seed, num in ((0, 200), (7, 5)))
    gallery = Gallery.of_samples(videos)
    _, spread = describe(queries)
    least = torch.full((len(queries),), 0.1, dtype=torch.float64)
    origin = float(max(gallery.origin, spread.reach.max()))
    both = Sides(queries, spread, gallery, MomentBound(5.0, 4.0), least, origin=origin)
    all_videos = torch.arange(len(videos))
    before = gallery.codes.cross_std(all_videos)
    of_videos = gallery.codes.of(all_videos)
    after = gallery.codes.cross_std(all_videos)
    a = both._a_var(torch.arange(len(queries)), slice(0, len(videos))).double()
    b = both._b_var(torch.arange(len(queries)), of_videos).double()
    crossed = torch.stack(
        [both._crossed_var(torch.tensor([one]), of_videos) for one in range(len(queries))]
    ).double()
    samples = videos[gallery.rows].double()
    squared = (queries.double()[:, None, :, None] - samples[None, :, None]).square().sum(dim=4)
    var = squared.flatten(2).var(dim=2, correction=0)
    assert (a + b + crossed >= var).all()
    assert (before >= after).all()
    # What all directions of both say of what crosses, without a product.
    u, v = (some.double() - some.double().mean(dim=1, keepdim=True) for some in (queries, samples))
    true = 4 * torch.einsum("qkd,njd->qnkj", u, v).square().mean(dim=(2, 3))
    assert (crossed >= true).all()
    assert ((both._cross_std * after).double().square() >= true).all()
    assert ((a + b + crossed).sqrt() <= (1.2 if shift == 0 else 1.5) * var.sqrt() + 1e-3).all()


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**31),
    num=st.integers(1, 300),
    num_samples=st.sampled_from([1, 2, 6]),
    dim=st.sampled_from([1, 3, 16]),
    width=st.floats(-4, 2).map(lambda power: 10.0**power),
    hetero=st.sampled_from([0.0, 1.0]),
    factor=st.sampled_from([1e-12, 1.0, 1e10]),
    shift=st.sampled_from([0.0, 1e3]),
    a=st.floats(-2, 3).map(lambda power: 10.0**power),
    b=st.floats(-30, 60),
    k=st.integers(1, 12),
    worth_all=st.sampled_from([-1.0, 0.5, 100.0]),
)
def test_any_gallery_is_searched_exactly_from_both_sides(
    loop, seed, num, num_samples, dim, width, hetero, factor, shift, a, b, k, worth_all
):
    videos = factor * (clouds(seed, num, num_samples, dim, width, hetero) + shift)
    queries = factor * (clouds(seed + 7, 3, num_samples, dim, width, hetero) + shift)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(top_k, "WIDE", -1.0)
        patch.setattr(top_k, "MANY", 0)
        patch.setattr(sides, "WORTH_ALL", worth_all)
        patch.setattr(sides, "SOME_AT_ONCE", 50)
        patch.setattr(top_k, "QUERY_SAMPLES_AT_ONCE", 2 * num_samples)
        for query, found in zip(
            queries, exact_top_k(queries, Gallery.of_samples(videos), curve=curve(a, b), k=k), strict=True
        ):
            check(loop, found, query, videos, curve(a, b), k)


@pytest.fixture
def hard() -> tuple[Tensor, Tensor, MatchCurve]:
    """Wide clouds, of which radii dismiss next to nothing."""
    queries = clouds(9, 3, 10, 64, 0.5, 0.3)
    return clouds(0, 3000, 10, 64, 0.5, 0.3), queries[[0, 2]], curve(5.0, 4.0)


def test_few_videos_are_scored_where_radii_leave_all(engine, loop, hard):
    videos, queries, of = hard
    for query, found in zip(queries, exact_top_k(queries, Gallery.of_samples(videos), curve=of), strict=True):
        assert found.certificate.num_bounded > 2900
        assert found.certificate.num_scored < 100
        check(loop, found, query, videos, of, 10)


def test_codes_that_are_not_kept_change_nothing(monkeypatch, hard):
    videos, queries, of = hard
    kept = exact_top_k(queries, Gallery.of_samples(videos), curve=of)
    monkeypatch.setattr(sample_codes, "CODES_KEPT", 0)
    for one, other in zip(kept, exact_top_k(queries, Gallery.of_samples(videos), curve=of), strict=True):
        assert torch.equal(one.rows, other.rows)
        assert torch.equal(one.scores, other.scores)


def test_only_allowed_videos_are_found_from_both_sides(loop, hard):
    videos, queries, of = hard
    allowed = torch.arange(len(videos)) % 2 == 1
    gallery = Gallery.of_samples(videos)
    again = exact_top_k(queries, gallery, curve=of, allowed=allowed)
    for query, found in zip(queries, again, strict=True):
        assert 1400 < found.certificate.num_bounded < 1500
        _, order = loop.ranking(query, videos[allowed], of)
        assert found.rows.tolist() == allowed.nonzero().squeeze(1)[order[:10]].tolist()
