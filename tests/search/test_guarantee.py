"""A guarantee on simulated queries with known errors, however what was judged before was chosen."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import binom

from provico.errors import ConfigError, VideoIndexError
from provico.probability.calibration import fit_platt
from provico.probability.risk_control import DELTA, fewest_judgements
from provico.search.confidence import SIGNALS, Confidence, Signals
from provico.search.guarantee import Promise, promise_of
from provico.search.judgements import VERDICTS, Judgement, Pair
from provico.search.lots import Lot, LotFile, draw_lot, lot_of_labels, open_queries
from provico.search.population import Population
from provico.search.select import propose

TRIALS = 40


def simulated(
    seed: int, *, num_recordings: int = 300, most_clips: int = 3, hard_share: float = 0.4
) -> Population:
    """Recordings whose clips err together; some directions are hard, and a low match errs more often.

    Labels say which hits are right: the errors of the whole population are known.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most_clips + 1, num_recordings)
    kind = rng.integers(0, 10, num_recordings)
    centres = rng.normal(size=(10, 8))
    log_match = -rng.exponential(1.0, num_recordings)
    rate = np.where(kind < 10 * hard_share, 0.5, 0.01) + 0.04 * np.clip(-log_match - 1, 0, 2)
    is_wrong = rng.random(num_recordings) < rate
    member = np.repeat(np.arange(num_recordings), sizes)
    means = centres[kind[member]] + 0.3 * rng.normal(size=(len(member), 8))
    values = rng.normal(size=(len(member), len(SIGNALS)))
    values[:, 0] = log_match[member]
    return Population(
        ids=tuple(f"{number}.mp4" for number in range(len(member))),
        recordings=tuple(f"group {one}" for one in member),
        hits=tuple(f"hit {number}" for number in range(len(member))),
        signals=Signals(torch.from_numpy(values), F.normalize(torch.from_numpy(means).double(), dim=1)),
        labels=tuple(("right", "wrong" if is_wrong[one] else "right") for one in member),
        num_videos=len(member),
    )


def judged_rows(population: Population, queries: list[str]) -> dict[Pair, Judgement]:
    found = {}
    for row in population.rows_of(queries):
        verdict = VERDICTS[not bool(population.is_right[row])]
        one = Judgement(query=population.ids[row], hit=population.hits[row], verdict=verdict)
        found[one.pair] = one
    return found


def error_rate(population: Population, lot: Lot, threshold: float) -> float:
    """Of the answered queries of the whole population, each recording counting once."""
    answered = (lot.confidence(population.signals) >= threshold).tolist()
    outcomes: dict[str, list[bool]] = {}
    for row, is_answered in enumerate(answered):
        if is_answered:
            outcomes.setdefault(population.recordings[row], []).append(not bool(population.is_right[row]))
    return float(np.mean([np.mean(some) for some in outcomes.values()]))


def drawn_lot(
    population: Population, seed: int, *, num: int, num_taught: int, max_error: float = 0.1
) -> tuple[Lot, dict[Pair, Judgement]]:
    judged: dict[Pair, Judgement] = {}
    while len(judged) < num_taught:
        some = propose(population, judged, num=min(num_taught // 2, num_taught - len(judged)))
        judged |= judged_rows(population, [one.query for one in some])
    lot = draw_lot(population, judged, (), num=num, max_error=max_error, seed=seed)
    return lot, judged | judged_rows(population, [one.query for one in lot.drawn])


@pytest.mark.parametrize("num_taught", [0, 40], ids=["by lot alone", "after active judgements"])
def test_the_promise_holds_also_where_select_chose_what_was_judged_first(num_taught: int) -> None:
    broken, coverage = 0, []
    for seed in range(TRIALS):
        population = simulated(seed % 10, num_recordings=200)
        lot, judged = drawn_lot(population, seed, num=80, num_taught=num_taught)
        control = lot.control(judged, max_error=0.1)
        coverage.append(0.0 if control is None else control.share * lot.reach)
        broken += control is not None and error_rate(population, lot, control.threshold) > 0.1
    assert broken <= binom.isf(1e-3, TRIALS, DELTA)
    if num_taught:
        assert np.mean(coverage) > 0.1  # what was learnt tells which half can be answered


def test_a_test_on_what_select_chose_would_promise_too_much() -> None:
    """Why lots are drawn: judged queries that were chosen for their confidence say nothing of the others."""
    population = simulated(0, hard_share=1.0)
    easy = [population.ids[row] for row in range(len(population.ids)) if bool(population.is_right[row])][:200]
    judged = judged_rows(population, easy)
    lot = draw_lot(population, {}, (), num=80, max_error=0.1, seed=0)
    assert lot.control(judged, max_error=0.1) is None
    assert (
        sum((one.query, one.hit) in judged for one in lot.drawn) < 80
    )  # a lot cannot be replaced by what was chosen


def test_a_query_that_is_not_judged_counts_as_wrong() -> None:
    population = simulated(1, hard_share=0.0)
    lot, judged = drawn_lot(population, 0, num=80, num_taught=0, max_error=0.2)
    whole = lot.control(judged, max_error=0.2)
    assert whole is not None
    some: dict[Pair, Judgement] = {}
    shares = []
    for pair, one in judged.items():
        some[pair] = one
        found = lot.control(some, max_error=0.2)
        shares.append(0.0 if found is None else found.share)
    assert shares[0] == 0
    assert shares[-1] == whole.share
    assert max(shares) <= max(whole.share, shares[-1]) + 1e-12


def test_labels_and_judgements_that_agree_give_the_same() -> None:
    population = simulated(2, hard_share=0.1)
    lot = lot_of_labels(population)
    judged = judged_rows(population, [one.query for one in lot.drawn])
    by_hand = dataclasses.replace(
        lot, drawn=tuple(dataclasses.replace(one, is_right=None) for one in lot.drawn)
    )
    for max_error in (0.05, 0.1, 0.2, 0.5):
        assert lot.control({}, max_error=max_error) == by_hand.control(judged, max_error=max_error)
    assert lot.error_map({}) == by_hand.error_map(judged)


def test_recordings_that_teach_are_not_tested_and_none_is_drawn_twice() -> None:
    population = simulated(3)
    lot, judged = drawn_lot(population, 0, num=60, num_taught=40)
    names = dict(zip(population.ids, population.recordings, strict=True))
    drawn = [one.recording for one in lot.drawn]
    taught = {names[query] for query, _ in judged} - set(drawn)
    assert len(set(drawn)) == len(drawn) > 30
    assert len(taught) == 40
    second = draw_lot(population, judged, (lot,), num=60, max_error=0.2, seed=0)
    assert not {one.recording for one in second.drawn} & ({*drawn} | taught)
    assert second.number == 2
    assert lot.delta + second.delta < DELTA


def test_all_drawn_are_at_or_above_the_floor() -> None:
    population = simulated(4)
    lot, _ = drawn_lot(population, 0, num=60, num_taught=40)
    assert min(one.confidence for one in lot.drawn) >= lot.thresholds[-1]
    assert lot.shares[-1] == 1
    assert 0 < lot.reach <= 1


def promised(lots: list[Lot], judged: Mapping[Pair, Judgement], max_error: float, num: int) -> Promise:
    return promise_of(lots, judged, max_error=max_error, num_videos=num, index=Path("index"))


def test_a_promise_without_judgements_is_refused_with_how_many_are_needed() -> None:
    population = simulated(5)
    num = population.num_videos
    fewest = fewest_judgements(0.1, DELTA * 0.9)
    with pytest.raises(
        ConfigError, match=rf"at least {fewest} .*there are none.*provico select.*provico judge"
    ):
        promised([], {}, 0.1, num)
    lot, judged = drawn_lot(population, 0, num=60, num_taught=0)
    some = dict(list(judged.items())[:10])
    with pytest.raises(ConfigError, match=rf"at least {fewest} .*there are 10, of 60 drawn.*count as wrong"):
        promised([lot], some, 0.1, num)
    with pytest.raises(ConfigError, match=r"--max-error is 1\.5"):
        promised([lot], judged, 1.5, num)
    with pytest.raises(ConfigError, match=f"index of {num:,} videos, but now it has {2 * num:,}"):
        promised([lot], judged, 0.1, 2 * num)
    assert promised([lot], judged, 0.1, num + 1).max_error == 0.1


def test_reasons_name_the_share_that_is_wrong() -> None:
    population = simulated(6)
    lot, judged = drawn_lot(population, 0, num=80, num_taught=40)
    kept = promised([lot], judged, 0.1, population.num_videos)
    reasons = kept.withheld(population.signals)
    is_answered = [reason is None for reason in reasons]
    assert np.mean(is_answered) == pytest.approx(kept.coverage, abs=0.02)
    said = {reason for reason in reasons if reason is not None}
    assert said
    assert all(reason.startswith("withheld: ") and "at this confidence" in reason for reason in said)
    assert "with 95 % confidence" in kept.in_words() or kept.control is None
    nothing = Signals(torch.full((1, len(SIGNALS)), -torch.inf).double(), population.signals.directions[:1])
    assert kept.withheld(nothing) == ["withheld: there is no video of another recording to compare with"]


def test_nothing_is_answered_where_nothing_can_be_promised() -> None:
    population = simulated(7, hard_share=1.0)
    lot, judged = drawn_lot(population, 0, num=80, num_taught=0)
    kept = promised([lot], judged, 0.05, population.num_videos)
    assert kept.coverage == 0
    assert None not in kept.withheld(population.signals)
    assert "nothing is answered" in kept.in_words()


def test_lots_are_read_as_they_were_written(tmp_path: Path) -> None:
    population = simulated(8)
    lot, judged = drawn_lot(population, 0, num=60, num_taught=40)
    file = LotFile(tmp_path)
    assert file.read() == ()
    file.add(lot)
    labels = lot_of_labels(population)
    file.add(lot_of_labels(population))
    file.add(labels)  # in place of the older one
    found = file.read()
    assert found == (lot, labels)
    assert found[0].control(judged, max_error=0.2) == lot.control(judged, max_error=0.2)
    assert open_queries(found, {}) == [*lot.drawn]
    assert open_queries(found, judged) == []
    with pytest.raises(VideoIndexError, match="has drawn queries"):
        file.add(lot)
    file.path.write_text("[{}]")
    with pytest.raises(VideoIndexError, match=r"damaged.*provico select"):
        file.read()


def test_confidence_without_judgements_is_the_order_of_match_probabilities() -> None:
    signals = simulated(9).signals
    order = Confidence.untaught(signals)(signals).argsort()
    assert torch.equal(signals.values[:, 0][order], signals.values[:, 0].sort().values)


def test_no_signal_counts_against_itself_and_judgements_teach() -> None:
    population = simulated(10)
    rows = torch.arange(0, len(population.ids), 4)
    taught, _ = population.taught_by_rows(rows, population.is_right[rows])
    assert all(weight >= 0 for weight in taught.weights.values())
    rest = torch.tensor([row for row in range(len(population.ids)) if row % 4])
    signals, is_right = population.signals[rest], population.is_right[rest]

    def auroc(values: torch.Tensor) -> float:
        right, wrong = values[is_right], values[~is_right]
        return float((right[:, None] > wrong[None]).double().mean())

    assert auroc(taught(signals)) > auroc(Confidence.untaught(signals)(signals)) + 0.1


def test_select_leaves_two_thirds_of_the_recordings_for_lots() -> None:
    population = simulated(11)
    names = dict(zip(population.ids, population.recordings, strict=True))
    first = propose(population, {}, num=30)
    judged = judged_rows(population, [one.query for one in first])
    second = propose(population, judged, num=30)
    assert len({names[one.query] for one in (*first, *second)}) == 60  # each of another recording
    everything = propose(population, judged, num=10**6)
    assert len({one.query for one in everything}) == len(everything)
    teaching = {names[one.query] for one in (*first, *everything)}
    assert len(teaching) == 100  # of 300, all of whose queries are proposed in the end
    assert {one.query for one in (*first, *everything)} == {
        name for name, recording in names.items() if recording in teaching
    }
    with pytest.raises(ConfigError, match="--num is 0"):
        propose(population, {}, num=0)


def test_select_proposes_nothing_of_recordings_that_were_drawn() -> None:
    population = simulated(11)
    lot, judged = drawn_lot(population, 0, num=60, num_taught=20)
    names = dict(zip(population.ids, population.recordings, strict=True))
    drawn = {one.query for one in lot.drawn}
    taught = {pair: one for pair, one in judged.items() if pair[0] not in drawn}
    found = propose(population, taught, num=10**6, taken=drawn)
    assert found
    assert not {names[one.query] for one in found} & {one.recording for one in lot.drawn}


def test_select_prefers_what_is_unsure_and_new() -> None:
    population = simulated(12)
    judged = judged_rows(population, [one.query for one in propose(population, {}, num=60)])
    rows, is_right = population.judged(judged)
    confidence, values = population.taught_by_rows(rows, is_right)
    slope, intercept = fit_platt(values, is_right)
    probability = torch.sigmoid(slope * confidence(population.signals) + intercept)
    unsure = probability * (1 - probability)
    found = [one.query for seed in range(20) for one in propose(population, judged, num=10, seed=seed)]
    assert float(unsure[population.rows_of(found)].mean()) > 1.1 * float(unsure.mean())
    copies = dataclasses.replace(
        population, recordings=tuple(f"video {name}" for name in population.ids), labels=population.labels
    )
    directions = copies.signals.directions.clone()
    directions[: len(directions) // 2] = directions[0]  # half of all videos show the same
    copies = dataclasses.replace(copies, signals=Signals(copies.signals.values, directions))
    proposed = copies.rows_of([one.query for one in propose(copies, {}, num=50)])
    assert sum(row < len(directions) // 2 for row in proposed) <= 1
