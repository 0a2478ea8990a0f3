"""What the page knows of judgements: those that hold, and what to judge first."""

from __future__ import annotations

import threading

from provico.errors import ProvicoError
from provico.explorer.collection import IndexView
from provico.explorer.problems import Problem
from provico.files import Signature
from provico.search.guarantee import LEAST_PAIRS
from provico.search.index import Index
from provico.search.judgements import Judgement, JudgementLog, Judgements, Pair
from provico.search.lots import LotFile, open_queries
from provico.search.population import Population
from provico.search.select import Selected, propose

CONSIDERED = 300
"""So many videos, at most, are asked for to find what to judge first."""
CALIBRATE_EVERY = 10
"""Probabilities are calibrated again after this many judgements."""


class Judging:
    """The judgements of the index that is served; for any thread."""

    def __init__(self, view: IndexView) -> None:
        self.index = view.index.path
        self.log = JudgementLog(self.index)
        self._lots = LotFile(self.index)
        self._lock = threading.Lock()
        self._population: tuple[int, Population] | None = None

    @property
    def state(self) -> tuple[Signature, tuple[Signature, Signature]]:
        """Another one whenever a promise may be another one."""
        return Signature.of(self.log.path), self._lots.signatures

    def judge(self, view: IndexView, judgement: Judgement, seen: int | None) -> Judgements:
        """Keep a judgement; it is on the disk when this returns."""
        if not isinstance(view.index, Index):
            raise Problem(
                409,
                "several_indexes",
                "Judgements apply to one index.",
                "Serve that one by itself to judge its hits.",
            )
        known = self.log.record([judgement], find=view.number, seen_revision=seen)
        self._calibrate(view.index, known)
        return known

    def undo(self, seen: int | None) -> Pair | None:
        """Take back the last judgement; what it was about."""
        return self.log.undo(seen_revision=seen)

    def first(self, view: IndexView, num: int) -> list[Selected]:
        """What was drawn by lot and is open, or else what teaches the most."""
        if not isinstance(view.index, Index):
            return []
        judged = self.log.read().current
        lots = self._lots.read()
        drawn = [one for one in open_queries(lots, judged) if one.query in view.index]
        if drawn:
            return [Selected(query=one.query, hit=one.hit, is_drawn=True) for one in drawn[:num]]
        taken = {one.query for lot in lots if lot.origin == "lot" for one in lot.drawn}
        return propose(self._of(view.index), judged, num=num, taken=taken)

    def _of(self, index: Index) -> Population:
        with self._lock:
            if self._population is None or self._population[0] != index.version:
                found = Population.of(index.loaded, num_queries=CONSIDERED, seed=index.settings.seed)
                self._population = index.version, found
            return self._population[1]

    @staticmethod
    def _calibrate(index: Index, known: Judgements) -> None:
        num = len(known.current)
        if num < LEAST_PAIRS or num % CALIBRATE_EVERY:
            return
        try:
            index.calibrate(source="judgements")
        except (ProvicoError, OSError):
            # Too few of a kind, or somebody adds videos, or the disk is full: the next ones may do.
            return
