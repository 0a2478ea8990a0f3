"""Queries drawn by lot: what a guarantee is tested on.

A guarantee speaks of queries that nobody chose, so it is tested only on queries that were drawn by lot. A
`Lot` is such a draw. It fixes, before anything in it is judged, how confidence is measured, above which
confidence queries were drawn (its floor) and which thresholds will be tested. Each recording is in it once.
What was judged before, chosen in whatever way, may set all of these, but is not part of the test.

- A drawn query that is not judged counts as wrong, so that nobody can leave out the hard ones, and looking
  at the result before all are judged does no harm.
- Every lot is another try. The k-th may fail with probability delta * 0.9 * 0.1^(k - 1), which sums to less
  than delta, so that drawing until it works does no harm either.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from provico.errors import ConfigError, VideoIndexError
from provico.files import Lock, Signature, replace_text, stamp
from provico.locations import home_of
from provico.probability.calibration import fit_platt
from provico.probability.risk_control import (
    DELTA,
    NUM_LEVELS,
    Levels,
    RiskControl,
    binomial_tail,
    control_risk,
    fewest_judgements,
)
from provico.search.confidence import Confidence
from provico.search.judgements import Judgement, Pair
from provico.search.loaded import LoadedVideos
from provico.search.population import Population

NAME = "lots.json"
FIRST_SHARE, NEXT_SHARE = 0.9, 0.1
"""The first lot may use so much of delta, and each further one this share of the one before."""
FEWEST_ABOVE_FLOOR = 0.1
"""A floor leaves at least this share of the queries to be drawn from."""
Origin = Literal["lot", "labels"]


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A query and its best hit of another recording, at the time of the draw."""

    query: str
    hit: str
    recording: str
    """Of the query."""
    confidence: float
    is_right: bool | None = None
    """What labels say; None where judgements are to say it."""


@dataclass(frozen=True, kw_only=True)
class Lot:
    """One draw, and all that was fixed with it."""

    origin: Origin
    number: int
    """The first is 1."""
    confidence: Confidence
    thresholds: tuple[float, ...]
    """Descending; the last is the floor."""
    shares: tuple[float, ...]
    """Of the queries above the floor, the share above each."""
    reach: float
    """The share of all queries that is above the floor."""
    num_videos: int
    """Of the index, at the time of the draw."""
    drawn: tuple[Drawn, ...]
    time: str
    names_key: str = ""
    """Of the last change of names that it knows of."""

    @property
    def delta(self) -> float:
        """The probability with which a guarantee from this lot may fail."""
        if self.origin == "labels":
            return DELTA
        return DELTA * FIRST_SHARE * NEXT_SHARE ** (self.number - 1)

    @property
    def num_recordings(self) -> int:
        """Independent outcomes."""
        return len({one.recording for one in self.drawn})

    def renamed(self, names: Mapping[str, str], *, key: str) -> Lot:
        """A copy in which videos have other names; itself if it knows of this change already."""
        if self.names_key == key:
            return self
        drawn = (
            dataclasses.replace(one, query=names.get(one.query, one.query), hit=names.get(one.hit, one.hit))
            for one in self.drawn
        )
        return dataclasses.replace(self, drawn=tuple(drawn), names_key=key)

    def is_wrong(self, judged: Mapping[Pair, Judgement]) -> Bool[Tensor, "drawn"]:
        """Which of the drawn queries are wrong, or not judged."""
        return torch.tensor([not self._is_right(one, judged) for one in self.drawn], dtype=torch.bool)

    @staticmethod
    def _is_right(one: Drawn, judged: Mapping[Pair, Judgement]) -> bool:
        if one.is_right is not None:
            return one.is_right
        verdict = judged.get((one.query, one.hit))
        return verdict is not None and verdict.is_right

    def control(self, judged: Mapping[Pair, Judgement], *, max_error: float) -> RiskControl | None:
        """The threshold above which at most `max_error` are wrong; None if nothing can be promised."""
        values = torch.tensor([one.confidence for one in self.drawn], dtype=torch.float64)
        recordings = [one.recording for one in self.drawn]
        levels = Levels(torch.tensor(self.thresholds).double(), torch.tensor(self.shares).double())
        return control_risk(
            values, self.is_wrong(judged), recordings, levels=levels, max_error=max_error, delta=self.delta
        )

    def error_map(self, judged: Mapping[Pair, Judgement]) -> tuple[float, float] | None:
        """Slope and intercept of the logit of being right on confidence; None before both kinds are known."""
        known = [one for one in self.drawn if one.is_right is not None or (one.query, one.hit) in judged]
        is_right = torch.tensor([self._is_right(one, judged) for one in known], dtype=torch.bool)
        if not 0 < int(is_right.sum()) < len(known):
            return None
        return fit_platt(torch.tensor([one.confidence for one in known], dtype=torch.float64), is_right)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return dataclasses.asdict(self) | {"confidence": self.confidence.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Lot:
        """What `to_dict` gave; raises KeyError or TypeError for anything else."""
        known = dict(values)
        return cls(
            confidence=Confidence.from_dict(known.pop("confidence")),
            drawn=tuple(Drawn(**one) for one in known.pop("drawn")),
            thresholds=tuple(known.pop("thresholds")),
            shares=tuple(known.pop("shares")),
            **known,
        )


def draw_lot(
    population: Population,
    judged: Mapping[Pair, Judgement],
    before: Sequence[Lot],
    *,
    num: int,
    max_error: float,
    seed: int,
) -> Lot:
    """Draw queries whose judgements will say what can be promised.

    population: all queries that could be asked, without outcomes.
    judged: what was judged so far; it sets the confidence and the floor, and is not drawn again.
    before: the lots drawn so far; what is left open in them is not drawn again.
    num: recordings to draw; all there are if fewer.
    """
    number = 1 + sum(lot.origin == "lot" for lot in before)
    delta = DELTA * FIRST_SHARE * NEXT_SHARE ** (number - 1)
    taken = {query for query, _ in judged} | {one.query for lot in before for one in lot.drawn}
    taken_recordings = {population.recordings[row] for row in population.rows_of(taken)}
    free = torch.tensor([one not in taken_recordings for one in population.recordings], dtype=torch.bool)
    confidence, floor = taught_by(population, judged, free, num=num, max_error=max_error, delta=delta)
    values = confidence(population.signals)
    eligible = (free & (values >= floor)).nonzero().flatten().tolist()
    rows = _one_per_recording(population, eligible, num, seed + number)
    needed = fewest_judgements(max_error, delta)
    if len(rows) < needed:
        raise ConfigError(
            f"{len(rows)} recordings would be drawn, but at least {needed} must be judged for --max-error "
            f"{max_error:g}. Ask for more (--num), allow more errors (--max-error), or add videos of other "
            "recordings."
        )
    # A floor that judgements chose is the one threshold that is tested; without them, many are walked down.
    num_levels = 1 if floor > float(values.min()) else NUM_LEVELS
    levels = Levels.of(values[values >= floor], num_levels=num_levels)
    return Lot(
        origin="lot",
        number=number,
        confidence=confidence,
        thresholds=tuple(levels.thresholds.tolist()),
        shares=tuple(levels.shares.tolist()),
        reach=float((values >= floor).double().mean()),
        num_videos=population.num_videos,
        drawn=tuple(_drawn(population, row, float(values[row])) for row in rows),
        time=stamp(),
    )


def label_lot(videos: LoadedVideos, *, num_queries: int) -> Lot:
    """A lot of labelled videos, at most so many, as queries."""
    seed = videos.settings.seed
    return lot_of_labels(Population.of(videos, num_queries=num_queries, seed=seed, is_labelled=True))


def lot_of_labels(population: Population) -> Lot:
    """A third of the recordings, drawn by lot, teaches, and the others are the test."""
    order = {name: number for number, name in enumerate(sorted(set(population.recordings)))}
    chosen = torch.randperm(len(order), generator=torch.Generator().manual_seed(0))
    teaches = torch.tensor([int(chosen[order[one]]) % 3 == 0 for one in population.recordings])
    rows = teaches.nonzero().flatten()
    confidence, _ = population.taught_by_rows(rows, population.is_right[rows])
    values = confidence(population.signals)
    levels = Levels.of(values)
    tested = (~teaches).nonzero().flatten().tolist()
    return Lot(
        origin="labels",
        number=1,
        confidence=confidence,
        thresholds=tuple(levels.thresholds.tolist()),
        shares=tuple(levels.shares.tolist()),
        reach=1.0,
        num_videos=population.num_videos,
        drawn=tuple(
            dataclasses.replace(
                _drawn(population, row, float(values[row])), is_right=bool(population.is_right[row])
            )
            for row in tested
        ),
        time=stamp(),
    )


def taught_by(
    population: Population,
    judged: Mapping[Pair, Judgement],
    free: Bool[Tensor, "queries"],
    *,
    num: int,
    max_error: float,
    delta: float,
) -> tuple[Confidence, float]:
    """How to measure confidence, and the floor, from what was judged so far.

    The floor is where the most queries can be expected to be answered: the share of queries above it, times
    the probability that `num` draws above it pass the test, if errors are as frequent as judgements suggest.
    """
    rows, is_right = population.judged(judged)
    confidence, judged_values = population.taught_by_rows(rows, is_right)
    values = confidence(population.signals)
    lowest = float(values.min())
    if not 0 < int(is_right.sum()) < len(is_right):
        return confidence, lowest
    slope, intercept = fit_platt(judged_values, is_right)
    ordered = values.sort(descending=True).values
    errors = torch.sigmoid(-(slope * ordered + intercept)).cumsum(0) / torch.arange(1, len(ordered) + 1)
    best, floor = 0.0, lowest
    recording = np.unique(np.array(population.recordings), return_inverse=True)[1]
    for step in range(1, 21):
        place = -(-len(ordered) * step // 20) - 1
        if (place + 1) / len(ordered) < FEWEST_ABOVE_FLOOR:
            continue
        left = len(np.unique(recording[(free & (values >= ordered[place])).numpy()]))
        expected = step * _passes(min(num, left), float(errors[place]), max_error, delta)
        if expected > best:
            best, floor = expected, float(ordered[place])
    return confidence, floor


def _passes(num: int, rate: float, max_error: float, delta: float) -> float:
    """The probability that so many draws at this error rate pass the test."""
    most = -1
    while most < num and binomial_tail(most + 1, num, max_error) <= delta:
        most += 1
    return 0.0 if most < 0 else binomial_tail(most, num, min(max(rate, 1e-9), 1 - 1e-9))


def _one_per_recording(population: Population, eligible: Sequence[int], num: int, seed: int) -> list[int]:
    """One row of each of `num` recordings, both drawn by lot."""
    generator = torch.Generator().manual_seed(seed)
    shuffled = [eligible[place] for place in torch.randperm(len(eligible), generator=generator).tolist()]
    first = {population.recordings[row]: row for row in reversed(shuffled)}
    names = sorted(first)
    chosen = torch.randperm(len(names), generator=generator)[:num].tolist()
    return [first[names[place]] for place in chosen]


def _drawn(population: Population, row: int, confidence: float) -> Drawn:
    return Drawn(
        query=population.ids[row],
        hit=population.hits[row],
        recording=population.recordings[row],
        confidence=confidence,
    )


class LotFile:
    """The lots of an index. What was drawn by lot is kept with its collection, if it is of one."""

    def __init__(self, index: Path) -> None:
        self.path, self._of_labels = home_of(index) / NAME, index / NAME

    @property
    def signatures(self) -> tuple[Signature, Signature]:
        """Others for other lots."""
        return Signature.of(self.path), Signature.of(self._of_labels)

    def read(self) -> tuple[Lot, ...]:
        """All lots, the oldest first."""
        if self._of_labels == self.path:
            return _read(self.path)
        return (*_read(self.path), *_read(self._of_labels))

    def add(self, lot: Lot) -> None:
        """Keep a lot; one of labels takes the place of an older one."""
        path = self._of_labels if lot.origin == "labels" else self.path
        with Lock(path.with_name(f".{NAME}.lock"), of="handle") as lock:
            lock.take()
            kept = [one for one in _read(path) if (one.origin, lot.origin) != ("labels", "labels")]
            if any(one.origin == "lot" and one.number == lot.number for one in kept) and lot.origin == "lot":
                raise VideoIndexError("Another process has drawn queries in the meantime. Judge those first.")
            _write(path, [*kept, lot])

    def rename(self, names: Mapping[str, str], *, key: str) -> None:
        """Call the videos that were drawn what they are called now."""
        for path in {self.path, self._of_labels}:
            if path.is_file():
                with Lock(path.with_name(f".{NAME}.lock"), of="handle") as lock:
                    lock.take()
                    _write(path, [one.renamed(names, key=key) for one in _read(path)])


def _write(path: Path, lots: Sequence[Lot]) -> None:
    replace_text(path, json.dumps([one.to_dict() for one in lots], indent=1, ensure_ascii=True) + "\n")


def _read(path: Path) -> tuple[Lot, ...]:
    try:
        return tuple(map(Lot.from_dict, json.loads(path.read_text(encoding="utf-8"))))
    except FileNotFoundError:
        return ()
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise VideoIndexError(
            f"{path} was damaged ({error}). Remove it, and draw again with `provico select "
            f"{path.parent} --by-lot`."
        ) from error


def open_queries(lots: Sequence[Lot], judged: Mapping[Pair, Judgement]) -> list[Drawn]:
    """What was drawn by lot and is not judged, the newest lot first."""
    newest = reversed([lot for lot in lots if lot.origin == "lot"])
    return [one for lot in newest for one in lot.drawn if (one.query, one.hit) not in judged]
