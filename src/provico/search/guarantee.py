"""What judgements are good for: calibrated probabilities, and answers with a guarantee.

`promise` finds the confidence above which at most a given share of answers is wrong, from queries that were
drawn by lot and judged (lots.py), or else from labels. A search then withholds the answers below it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from provico.errors import ConfigError
from provico.probability.calibration import Calibration
from provico.probability.risk_control import DELTA, RiskControl, check_max_error, fewest_judgements
from provico.search.answer import Answer
from provico.search.calibrate import ScoredPairs, SourceChoice
from provico.search.confidence import Signals
from provico.search.judgements import Judgement, JudgementLog, Pair
from provico.search.loaded import LoadedVideos
from provico.search.lots import FIRST_SHARE, Lot, LotFile
from provico.search.query import Exclusion, Filter, recording_of

LEAST_PAIRS, LEAST_OF_A_KIND = 30, 5
"""Judgements, and right and wrong ones among them, below which probabilities are not calibrated by them."""
MOST_CHANGED = 0.2
"""A guarantee ends when the index has grown or shrunk by more than this share."""


@dataclass(frozen=True)
class Promise:
    """Which queries are answered, and what of those answers is known."""

    max_error: float
    lot: Lot
    control: RiskControl | None
    """None if there is no confidence at which it can be promised: nothing is answered."""
    error_map: tuple[float, float] | None

    @property
    def coverage(self) -> float:
        """The share of queries that is answered."""
        return 0.0 if self.control is None else self.control.share * self.lot.reach

    def in_words(self) -> str:
        """What is promised, and on what it rests."""
        source = "labels" if self.lot.origin == "labels" else "judgements of randomly drawn queries"
        share = f"{100 * self.max_error:g} %"
        if self.control is None:
            return (
                f"No confidence is known at which at most {share} of the answers are wrong, so that nothing "
                f"is answered ({self.lot.num_recordings} recordings, {source})."
            )
        return (
            f"At most {share} of the answered queries are wrong, with {100 - 100 * DELTA:g} % confidence: "
            f"{self.control.num_wrong} of {self.control.num_recordings} recordings were ({source}). About "
            f"{100 * self.coverage:.0f} % of the queries are answered."
        )

    def withheld(self, signals: Signals) -> list[str | None]:
        """Why each query is not answered; None if it is."""
        values = self.lot.confidence(signals).tolist()
        return [None if self._is_answered(value) else self._reason(value) for value in values]

    def keep(self, answers: Sequence[Answer], signals: Signals) -> list[Answer]:
        """The answers, of which some are withheld."""
        return [
            dataclasses.replace(
                answer,
                max_error=self.max_error,
                withheld=reason,
                hits=answer.hits if reason is None else (),
            )
            for answer, reason in zip(answers, self.withheld(signals), strict=True)
        ]

    def _is_answered(self, confidence: float) -> bool:
        return self.control is not None and confidence >= self.control.threshold

    def _reason(self, confidence: float) -> str:
        if not math.isfinite(confidence):
            return "withheld: there is no video of another recording to compare with"
        allowed = f"at most {100 * self.max_error:g} % are wrong"
        if self.error_map is not None:
            slope, intercept = self.error_map
            rate = float(torch.sigmoid(torch.tensor(-(slope * confidence + intercept))))
            if rate > self.max_error:
                return f"withheld: at this confidence {_one_in(rate)} wrong"
        return f"withheld: too few queries were judged at this confidence to guarantee that {allowed}"


def _one_in(rate: float) -> str:
    if rate > 0.75:
        return "most are"
    return "every second one is" if rate > 0.4 else f"1 in {round(1 / rate)} is"


def promise(index: Path, *, max_error: float, num_videos: int) -> Promise:
    """What the lots and judgements of an index of so many videos promise; see `promise_of`."""
    judged = JudgementLog(index).read().current
    return promise_of(LotFile(index).read(), judged, max_error=max_error, num_videos=num_videos, index=index)


def promise_of(
    lots: Sequence[Lot], judged: Mapping[Pair, Judgement], *, max_error: float, num_videos: int, index: Path
) -> Promise:
    """What can be promised; refused if too little was judged, with what to do about it.

    Of several lots the one that answers most counts; their tries are paid for (lots.py). Labels count where
    nothing was drawn by lot.
    """
    check_max_error(max_error)
    drawn = [lot for lot in lots if lot.origin == "lot"] or [*lots]
    way_out = (
        f"Draw queries with `provico select {index} --by-lot --max-error {max_error:g} --out judge.csv`, "
        f"write right or wrong in each row, and import it with `provico judge {index} judge.csv`; or judge "
        "them on the page of `provico serve`."
    )
    if not drawn:
        raise ConfigError(
            f"{_needs(max_error, DELTA * FIRST_SHARE)}, but there are none. {way_out} Labels of the data "
            "also work (`provico calibrate`)."
        )
    fresh = [lot for lot in drawn if abs(num_videos - lot.num_videos) <= MOST_CHANGED * lot.num_videos]
    if not fresh:
        raise ConfigError(
            f"--max-error {max_error:g} rests on an index of {drawn[-1].num_videos:,} videos, but now it has "
            f"{num_videos:,}, so nothing is known of its answers. {way_out}"
        )
    ready = [lot for lot in fresh if _num_recordings(lot, judged) >= fewest_judgements(max_error, lot.delta)]
    if not ready:
        lot = fresh[-1]
        is_large = lot.num_recordings >= fewest_judgements(max_error, lot.delta)
        raise ConfigError(
            f"{_needs(max_error, lot.delta)}, but there are {_num_recordings(lot, judged)}, of "
            f"{lot.num_recordings} drawn. "
            + ("Judge the others; until then they count as wrong." if is_large else way_out)
        )
    found = [
        Promise(max_error, lot, lot.control(judged, max_error=max_error), lot.error_map(judged))
        for lot in ready
    ]
    return max(found, key=lambda one: one.coverage)


def _needs(max_error: float, delta: float) -> str:
    return (
        f"--max-error {max_error:g} needs judgements of at least {fewest_judgements(max_error, delta)} "
        "randomly drawn queries, each of a different recording"
    )


def _num_recordings(lot: Lot, judged: Mapping[Pair, Judgement]) -> int:
    known = (one for one in lot.drawn if one.is_right is not None or (one.query, one.hit) in judged)
    return len({one.recording for one in known})


def judged_pairs(videos: LoadedVideos, judged: Mapping[Pair, Judgement]) -> ScoredPairs:
    """The judged pairs whose videos are both in an index."""
    known = [
        (query, hit, one)
        for (pair, one) in sorted(judged.items())
        if (query := videos.look_up(pair[0])) is not None and (hit := videos.look_up(pair[1])) is not None
    ]
    rows = torch.tensor([query for query, _, _ in known], dtype=torch.long)
    return ScoredPairs(
        log_probability=videos.log_match_of(rows, torch.tensor([hit for _, hit, _ in known]).long()),
        is_match=torch.tensor([one.is_right for _, _, one in known], dtype=torch.bool),
        groups=tuple(recording_of(videos.words["group"][row], videos.ids[row]) for row in rows.tolist()),
        source="judgements",
        description=f"{len(known)} hits that people judged; a match is a right one",
    )


def calibrate_by_judgements(
    videos: LoadedVideos, judged: Mapping[Pair, Judgement], *, source: SourceChoice
) -> Calibration | None:
    """How often hits are right as people judged them; None if another source is wanted, or better."""
    if source not in ("auto", "judgements"):
        return None
    pairs = judged_pairs(videos, judged)
    if len(pairs.is_match) >= LEAST_PAIRS and pairs.num_of_rarer_kind >= LEAST_OF_A_KIND:
        return pairs.fit()
    if source == "auto":
        return None
    num_right = int(pairs.is_match.sum())
    raise ConfigError(
        f"{num_right} hits of the index are judged right and {len(pairs.is_match) - num_right} wrong, but "
        f"at least {LEAST_PAIRS} judgements with {LEAST_OF_A_KIND} of each kind are needed. `provico select` "
        "says what to judge next."
    )


def check_as_judged(metric: str, filter: Filter | None, exclude_same: Exclusion) -> None:
    """Refuse a guarantee for searches of another kind than those that were judged."""
    wrong = {
        "--metric": metric != "match",
        "a filter (--label, --group, --subset, --max-uncertainty, --min-seconds, --max-seconds)": (
            filter not in (None, Filter())
        ),
        "--exclude-same nothing": exclude_same == "nothing",
    }
    for what, is_given in wrong.items():
        if is_given:
            raise ConfigError(
                f"--max-error applies to searches by match probability among all videos of other recordings, "
                f"because these were judged. Leave out {what}."
            )
