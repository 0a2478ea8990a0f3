"""Scores against the definition, and what they claim about their own errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from provico.probability import MatchCurve, log_match_probability, log_match_scores
from provico.search import exact_log_probabilities
from provico.search.exact.scoring import screen


def curve(a: float, b: float, sigmoid_scale: float = 1.0) -> MatchCurve:
    return MatchCurve(
        torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64), sigmoid_scale
    )


CURVES = [curve(0.96, 13.2), curve(5.0, 5.0), curve(15.0, 15.0, 2.0), curve(40.0, -3.0)]


def draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("of", CURVES)
def test_many_queries_at_once_agree_with_the_matching_module(loop, of, monkeypatch):
    monkeypatch.setattr("provico.probability.match_scores.QUERIES_AT_ONCE", 2)
    monkeypatch.setattr("provico.probability.match_scores.VIDEOS_AT_ONCE", 3)
    queries, gallery = draw(0, 5, 4, 16), draw(1, 8, 6, 16) + 3
    scores = log_match_scores(queries, gallery, curve=of)
    expected = log_match_probability(queries.double(), gallery.double(), curve=of)
    assert scores.dtype == torch.float32
    assert torch.allclose(scores.double(), expected, rtol=2e-6, atol=2e-5)
    reference = np.stack([loop.scores(query, gallery, of) for query in queries])
    assert torch.allclose(expected, torch.from_numpy(reference), rtol=1e-9, atol=1e-12)


def test_what_is_ranked_is_exact_and_the_rest_may_be_too_small_to_tell(loop):
    of = curve(40.0, 1.0)
    near, far = draw(1, 3, 2, 4), draw(2, 6, 2, 4) + 10
    queries, gallery = draw(0, 2, 2, 4), torch.cat([near, far])
    exact = torch.from_numpy(np.stack([loop.scores(query, gallery, of) for query in queries])).float()
    for num_ranked in range(1, 10):
        scores = log_match_scores(queries, gallery, curve=of, num_ranked=num_ranked)
        best = exact.argsort(dim=1, descending=True)[:, :num_ranked]
        torch.testing.assert_close(scores.gather(1, best), exact.gather(1, best), rtol=1e-4, atol=1e-4)
        is_given_up = scores == -torch.inf
        assert (exact[is_given_up] < -60).all()
    assert not (scores == -torch.inf).any(), "all were asked for"


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**31),
    of=st.sampled_from(CURVES),
    width=st.sampled_from([0.0, 1e-3, 0.3, 10.0]),
    offset=st.sampled_from([0.0, 100.0]),
    num_samples=st.sampled_from([1, 3, 10]),
)
def test_the_screen_is_no_further_off_than_it_says(loop, seed, of, width, offset, num_samples):
    middles = offset + draw(seed, 7, 1, 8)
    videos = middles + width * draw(seed + 1, 7, num_samples, 8)
    query = offset + width * draw(seed + 2, num_samples, 8)
    videos[0] = query
    score, error = screen(query, videos, curve=of)
    expected = torch.from_numpy(loop.scores(query, videos, of))
    assert ((score - expected).abs() <= error).all()
    assert (error[1:] < 1e-2 * (1 + float(of.sigmoid_scale * of.a) * width)).all()


def test_what_underflows_is_scored_in_log_space(loop):
    query, videos = draw(0, 3, 4), draw(1, 4, 3, 4) + 10
    of = curve(100.0, 1.0)
    expected = torch.from_numpy(loop.scores(query, videos, of))
    assert (expected < -1000).all()
    score, error = screen(query, videos, curve=of)
    assert ((score - expected).abs() <= error).all()
    assert torch.allclose(log_match_scores(query[None], videos, curve=of)[0].double(), expected, rtol=1e-5)


def test_where_float32_overflows_the_screen_says_that_it_knows_nothing():
    score, error = screen(draw(0, 3, 4), 1e14 * draw(1, 2, 3, 4), curve=curve(1e10, 1.0))
    assert not (score + error < math.inf).any() or not error.isfinite().all()


@pytest.mark.parametrize("of", CURVES)
def test_exact_scores_are_those_of_the_definition(loop, of):
    queries, videos = draw(0, 6, 4, 16), draw(1, 6, 5, 16)
    scores = exact_log_probabilities(queries, videos, curve=of)
    for query, video, score in zip(queries, videos, scores, strict=True):
        expected = loop.scores(query, video[None], of)[0]
        assert score.item() == pytest.approx(expected, rel=1e-12)


def test_a_probability_next_to_one_keeps_its_digits():
    """At the distance d with logit x, log p is -exp(-x) to within exp(-2x)."""
    query, video = torch.zeros(1, 1, 1), torch.full((1, 1, 1), 2.0)
    logit = 60 - 3 * math.sqrt(4 + 1e-6)
    score = exact_log_probabilities(query, video, curve=curve(3.0, 60.0)).item()
    assert score == pytest.approx(-math.exp(-logit), rel=1e-12)
