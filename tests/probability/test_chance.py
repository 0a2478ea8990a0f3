"""False match rates are uniform where the null is known, safe where matches are mixed in, and monotone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from provico.defaults import LEAST_UNRELATED
from provico.probability.chance import ChanceModel, own_levels, usual_level

NUM = 700
RATES = (0.1, 0.01, 0.001)


def others(num: int) -> Tensor:
    return ~torch.eye(num, dtype=torch.bool)


def simulated(seed: int, *, spread: float = 0.4, num: int = NUM) -> Tensor:
    """Scores of unrelated videos: normal, about the sum of the levels of both sides."""
    generator = torch.Generator().manual_seed(seed)
    level = spread * torch.randn(num, 1, generator=generator, dtype=torch.float64)
    return torch.randn(num, num, generator=generator, dtype=torch.float64) + level + level.T


def rates(scores: Tensor, model: ChanceModel | None = None) -> Tensor:
    is_other = others(len(scores))
    model = model or ChanceModel.fit(scores, is_other)
    assert model is not None
    own = own_levels(scores, is_other)
    return model.false_match_rate(
        scores, own.unsqueeze(1).expand_as(scores), own.unsqueeze(0).expand_as(scores)
    )


def observed(found: Tensor, among: Tensor) -> list[float]:
    """The share of unrelated pairs with at most each rate, as a multiple of it."""
    return [float((found[among] <= rate).double().mean() / rate) for rate in RATES]


def test_rates_are_uniform_where_only_chance_is_at_work() -> None:
    for seed, spread in ((0, 0.0), (1, 0.4)):
        found = observed(rates(simulated(seed, spread=spread)), others(NUM))
        assert found == pytest.approx([1, 1, 1], abs=0.2)


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3])
def test_clear_matches_change_rates_by_less_than_a_factor_of_two(share: float) -> None:
    generator = torch.Generator().manual_seed(2)
    is_match = torch.rand(NUM, NUM, generator=generator) < share
    scores = simulated(3, spread=0.2) + 7 * is_match
    tenth, hundredth, _ = observed(rates(scores), others(NUM) & ~is_match)
    assert 0.5 < tenth < 1.1
    assert 0.5 < hundredth < 1.1


@pytest.mark.parametrize("share", [0.1, 0.3])
@pytest.mark.parametrize("shift", [1.0, 2.0, 3.0, 5.0])
def test_matches_that_hide_in_the_null_only_make_rates_larger(share: float, shift: float) -> None:
    generator = torch.Generator().manual_seed(4)
    is_match = torch.rand(NUM, NUM, generator=generator) < share
    scores = simulated(5, spread=0.2) + shift * is_match
    assert max(observed(rates(scores), others(NUM) & ~is_match)) < 1.1


def test_a_hub_is_no_more_surprising_than_others() -> None:
    """One video scores two spreads higher with all: its pairs must not pass more often than they say."""
    scores = simulated(6, spread=0.2)
    scores[:, 0] += 2
    scores[0] += 2
    found = rates(scores)[1:, 0]
    assert float((found <= 0.01).double().mean()) < 0.03
    # Had it the level of the others, it would be everybody's match.
    own = own_levels(scores, others(NUM))
    model = ChanceModel.fit(scores, others(NUM))
    assert model is not None
    as_others = model.false_match_rate(scores[1:, 0], own[1:], own[1:])
    assert float((as_others <= 0.01).double().mean()) > 0.1


def test_a_query_unlike_everything_is_not_sure() -> None:
    """Its scores lie far below all others, but for one that is an ordinary score of unrelated videos."""
    scores = simulated(7, spread=0.2)
    model = ChanceModel.fit(scores, others(NUM))
    assert model is not None
    own = own_levels(scores, others(NUM))
    odd = scores[:1] - 6
    odd[0, 3] = 0.0
    level = own_levels(odd, torch.ones_like(odd, dtype=torch.bool))
    rate = model.false_match_rate(odd[0], level.expand(NUM), own)
    assert float(rate.min()) > 0.2


@given(st.lists(st.floats(-30, 30), min_size=2, max_size=20), st.floats(-5, 5), st.floats(-5, 5))
def test_a_higher_score_is_never_less_surprising(scores: list[float], own: float, other: float) -> None:
    model = ChanceModel(level=0.3, location=-1.5, scale=0.8, num_videos=99, num_pairs=9702, share_out=0.0)
    ordered = torch.tensor(sorted(scores), dtype=torch.float64)
    found = model.false_match_rate(
        ordered, torch.full_like(ordered, own), torch.full_like(ordered, other)
    ).tolist()
    assert found == sorted(found, reverse=True)
    assert all(0 <= rate <= 1 for rate in found)


def test_levels_leave_out_the_own_recording() -> None:
    scores = torch.arange(200.0).repeat(2, 1)
    is_other = torch.ones(2, 200, dtype=torch.bool)
    is_other[1, 100:] = False
    first, second = own_levels(scores, is_other).tolist()
    assert first == pytest.approx(0.95 * 199, abs=1)
    assert second == pytest.approx(0.95 * 99, abs=1)
    is_other[1, LEAST_UNRELATED - 1 :] = False
    assert own_levels(scores, is_other)[1].isnan()


def test_where_nothing_can_be_said_nothing_is() -> None:
    few = simulated(0, num=LEAST_UNRELATED)
    assert ChanceModel.fit(few, others(len(few))) is None  # each has one less to compare with
    assert ChanceModel.fit(torch.zeros(90, 90), others(90)) is None
    with pytest.raises(ValueError, match="scale positive"):
        ChanceModel(level=0.0, location=0.0, scale=0.0, num_videos=9, num_pairs=9, share_out=0.0)


def test_the_units_of_scores_do_not_matter() -> None:
    scores = simulated(8)
    assert torch.allclose(rates(scores), rates(100 * scores - 7), atol=1e-9)


def test_it_survives_json() -> None:
    model = ChanceModel.fit(simulated(9), others(NUM))
    assert model is not None
    assert ChanceModel.from_dict(model.to_dict()) == model


def test_between_two_kinds_what_is_planted_stands_out_and_chance_is_what_it_says() -> None:
    """Texts with videos: each has a level of its own, and a fifth of the videos may match the text."""
    generator = torch.Generator().manual_seed(0)
    texts, videos = torch.randn(100, 1, generator=generator), torch.randn(300, generator=generator)
    unrelated = texts + videos + torch.randn(100, 300, generator=generator)
    model = ChanceModel.between(unrelated)
    assert model is not None
    asked = 0.3 + videos + torch.randn(300, generator=generator)
    asked[:60] += 9
    rates = model.false_match_rate(
        asked, usual_level(asked, unrelated).expand(300), unrelated.double().quantile(0.95, dim=0)
    )
    assert float(rates[:60].max()) < 1e-3
    assert float((rates[60:] <= 0.01).double().mean()) <= 0.05
    assert ChanceModel.between(torch.ones(5, 5)) is None
