"""How sure a search is of its best hit: a few named signals of a query, and one number made of them.

Every signal is larger where the best hit is more likely to be right. Without judgements the confidence is
the log match probability alone. With some, it is a logistic regression on all signals whose weights are not
negative, so that no signal counts against itself. To add a signal, add a function to `SIGNALS`.

One signal comes from judgements: how often hits of queries that show something similar were right
(`judged_nearby`). An encoder that confuses two actions does so again and again, at close range, which the
match probability cannot tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from provico.search.exact.found import TopK
from provico.search.query import Asked, IndexedVideos, recording_of

NUM_HITS = 10
"""So many hits of a query are looked at."""
LEAST_TAUGHT, LEAST_OF_A_KIND = 10, 3
"""Judgements, and right and wrong ones among them, below which signals are not weighed."""
NEARBY = "judged_nearby"
BANDWIDTH = 0.25
"""Queries are nearby if their cosines differ from one by about so many deviations of all cosines."""

START = {"log_match": 0.5}
"""Weights before anything is judged; others are 0."""
PRIOR_STRENGTH = 30.0
"""How many judgements it takes, about, to move a weight by one."""
_STEPS = 300


@dataclass(frozen=True, eq=False)
class QueryFacts:
    """What a ranking knows of a query."""

    scores: Float[Tensor, "found"]
    """Log match probabilities, the best first."""
    recordings: Sequence[str]
    """Of the hits."""
    query_uncertainty: float
    hit_uncertainty: float
    """Of the best hit."""


def _margin(of: QueryFacts) -> float:
    """How far the best of another recording is behind; the last of those looked at if there is none."""
    others = [score for score, one in zip(of.scores, of.recordings, strict=True) if one != of.recordings[0]]
    return float(of.scores[0] - (others[0] if others else of.scores[-1]))


SIGNALS: dict[str, Callable[[QueryFacts], float]] = {
    "log_match": lambda of: float(of.scores[0]),
    "margin": _margin,
    "query_certainty": lambda of: -math.log(max(of.query_uncertainty, 1e-30)),
    "hit_certainty": lambda of: -math.log(max(of.hit_uncertainty, 1e-30)),
}
"""Each signal by its name, besides `judged_nearby`."""
_NAMES = (*SIGNALS, NEARBY)


@dataclass(frozen=True, eq=False)
class Signals:
    """What is known of queries before anybody judges them."""

    values: Float[Tensor, "queries signals"]
    """One column for each of `SIGNALS`; minus infinity where a query found nothing."""
    directions: Float[Tensor, "queries dim"]
    """Of their means, of length one."""

    def __getitem__(self, rows: Tensor) -> Signals:
        return Signals(self.values[rows], self.directions[rows])

    @classmethod
    def of(cls, evidence: Sequence[QueryFacts | None], means: Float[Tensor, "queries dim"]) -> Signals:
        """None where a query found nothing."""
        nothing = [-math.inf] * len(SIGNALS)
        values = [
            nothing if one is None else [signal(one) for signal in SIGNALS.values()] for one in evidence
        ]
        table = torch.tensor(values, dtype=torch.float64).view(len(evidence), len(SIGNALS))
        return cls(table, F.normalize(means.double(), dim=1))


def signals_of(asked: Sequence[Asked], ranked: Sequence[TopK], videos: IndexedVideos) -> Signals:
    """The signals of queries that have been ranked by match probability, other recordings only."""
    rows = sorted({row for found in ranked for row in found.rows[:NUM_HITS].tolist()})
    known = videos.read(("id", "group", "uncertainty"), rows)
    place = {row: number for number, row in enumerate(rows)}
    evidence: list[QueryFacts | None] = []
    for one, found in zip(asked, ranked, strict=True):
        hits = [place[row] for row in found.rows[:NUM_HITS].tolist()]
        if not hits:
            evidence.append(None)
            continue
        evidence.append(
            QueryFacts(
                scores=found.scores[:NUM_HITS].double(),
                recordings=[recording_of(known["group"][hit], known["id"][hit]) for hit in hits],
                query_uncertainty=float(one.mixture.uncertainty),
                hit_uncertainty=float(known["uncertainty"][hits[0]]),
            )
        )
    return Signals.of(evidence, torch.cat([one.mixture.mean for one in asked]))


def kernel_width(directions: Float[Tensor, "queries dim"]) -> float:
    """By so much the cosine of two queries may be less than one before they resemble each other little."""
    return max(BANDWIDTH * float(_cosines(directions).std(correction=0)), 1e-6)


def _cosines(directions: Float[Tensor, "queries dim"]) -> Float[Tensor, "pairs"]:
    """Of some hundreds of the queries, which are enough to tell how they are spread."""
    some = directions[:: max(1, len(directions) // 500)]
    return (some @ some.T)[*torch.triu_indices(len(some), len(some), offset=1)]


@dataclass(frozen=True)
class Memory:
    """Judged queries, and how near another must be to resemble them."""

    directions: tuple[tuple[float, ...], ...]
    is_right: tuple[bool, ...]
    width: float
    """Of the kernel, in units of the cosine."""
    prior_weight: float
    """Weight of the share that is right of all of them, which holds where none is near."""

    @classmethod
    def of(
        cls,
        all_directions: Float[Tensor, "queries dim"],
        judged: Float[Tensor, "judged dim"],
        is_right: Bool[Tensor, "judged"],
    ) -> Memory:
        """What was judged among queries whose directions give the units."""
        width = kernel_width(all_directions)
        prior_weight = math.exp((float(_cosines(all_directions).quantile(0.95)) - 1) / width)
        rounded = tuple(tuple(round(value, 5) for value in row) for row in judged.tolist())
        return cls(rounded, tuple(is_right.tolist()), width, prior_weight)

    def log_odds(
        self, directions: Float[Tensor, "queries dim"], left_out: Bool[Tensor, "queries judged"] | None = None
    ) -> Float[Tensor, "queries"]:
        """Log odds of being right, from what was judged nearby; without some, such as the query itself."""
        is_right = torch.tensor(self.is_right, dtype=torch.float64)
        kernel = ((directions @ torch.tensor(self.directions, dtype=torch.float64).T - 1) / self.width).exp()
        if left_out is not None:
            kernel = kernel.masked_fill(left_out, 0)
        share = (is_right.sum() + 1) / (len(is_right) + 2)
        right = kernel @ is_right + self.prior_weight * share
        wrong = kernel @ (1 - is_right) + self.prior_weight * (1 - share)
        return right.log() - wrong.log()


@dataclass(frozen=True)
class Confidence:
    """A weighted sum of signals, each in units of its own spread over the queries of an index."""

    weights: Mapping[str, float]
    centres: Mapping[str, float]
    scales: Mapping[str, float]
    memory: Memory | None = None

    @classmethod
    def untaught(cls, signals: Signals) -> Confidence:
        """The log match probability alone, in units that these queries give."""
        return cls._of(signals.values, torch.tensor([name == "log_match" for name in SIGNALS]).double())

    @classmethod
    def taught(
        cls, signals: Signals, judged: Signals, is_right: Bool[Tensor, "judged"], recordings: Sequence[str]
    ) -> tuple[Confidence, Float[Tensor, "judged"]]:
        """Weighed so that what was judged is most probable, if enough was judged; else untaught.

        Beside it, the confidence of each judged query without what its own recording taught about it: only
        that can be compared with the confidence of others.

        signals: of all queries, which give the units.
        recordings: of the judged queries.
        """
        num_right = int(is_right.sum())
        if len(is_right) < LEAST_TAUGHT or min(num_right, len(is_right) - num_right) < LEAST_OF_A_KIND:
            untaught = cls.untaught(signals)
            return untaught, untaught(judged)
        memory = Memory.of(signals.directions, judged.directions, is_right)
        is_same = torch.tensor([[one == other for other in recordings] for one in recordings])
        nearby = memory.log_odds(judged.directions, is_same)
        inputs = torch.cat([judged.values, nearby.unsqueeze(1)], dim=1)
        everywhere = torch.cat([signals.values, memory.log_odds(signals.directions).unsqueeze(1)], dim=1)
        units = cls._of(everywhere, torch.zeros(len(_NAMES)), memory)
        # What was judged nearby is in units of log odds, and as such has the weight one.
        start = {**START, NEARBY: units.scales[NEARBY]}
        prior = torch.tensor([start.get(name, 0.0) for name in _NAMES], dtype=torch.float64)
        weights = _nonnegative_logistic(units._standard(inputs), is_right, prior)
        return cls._of(everywhere, weights, memory), units._standard(inputs) @ weights

    @classmethod
    def _of(cls, signals: Tensor, weights: Tensor, memory: Memory | None = None) -> Confidence:
        kept = signals[signals.isfinite().all(dim=1)]
        centres, scales = kept.mean(dim=0), kept.std(dim=0, correction=0)
        scales = torch.where(scales > 0, scales, torch.ones_like(scales))
        named = [
            dict(zip(_NAMES[: len(weights)], some.tolist(), strict=True))
            for some in (weights, centres, scales)
        ]
        return cls(named[0], named[1], named[2], memory)

    def _standard(self, signals: Float[Tensor, "queries signals"]) -> Float[Tensor, "queries signals"]:
        centres, scales = (
            torch.tensor([*some.values()], dtype=torch.float64) for some in (self.centres, self.scales)
        )
        return (signals - centres) / scales

    def __call__(self, signals: Signals) -> Float[Tensor, "queries"]:
        """The confidence of some queries, of which larger is surer."""
        values = signals.values
        if self.memory is not None:
            nearby = self.memory.log_odds(signals.directions)
            values = torch.cat([values, nearby.unsqueeze(1)], dim=1)
        weights = torch.tensor([*self.weights.values()], dtype=torch.float64)
        found = self._standard(values)[:, weights > 0] @ weights[weights > 0]
        return found.masked_fill(~signals.values.isfinite().all(dim=1), -math.inf)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Confidence:
        """What `to_dict` gave; raises KeyError or TypeError for anything else, and for unknown signals."""
        known = None if values["memory"] is None else dict(values["memory"])
        memory = None
        if known is not None:
            directions = tuple(map(tuple, known.pop("directions")))
            memory = Memory(directions=directions, is_right=tuple(known.pop("is_right")), **known)
        found = cls(values["weights"], values["centres"], values["scales"], memory)
        names = SIGNALS if memory is None else _NAMES
        for some in (found.weights, found.centres, found.scales):
            if tuple(some) != tuple(names):
                raise KeyError(f"the signals are {', '.join(some)}, not {', '.join(names)}")
        return found


def _nonnegative_logistic(
    inputs: Float[Tensor, "judged signals"],
    is_right: Bool[Tensor, "judged"],
    start: Float[Tensor, "signals"],
) -> Float[Tensor, "signals"]:
    """Weights >= 0 of least cross-entropy, near those of the start as long as little was judged.

    The penalty is that of a normal prior; accelerated projected gradient steps find the minimum.
    """
    target = is_right.double()
    design = torch.cat([inputs, torch.ones(len(inputs), 1, dtype=torch.float64)], dim=1)
    penalty = torch.full((design.shape[1],), PRIOR_STRENGTH / len(target), dtype=torch.float64)
    penalty[-1] = 0
    prior = torch.cat([start, torch.zeros(1, dtype=torch.float64)])
    weights = prior.clone()
    # The curvature of the loss is at most this, so that no step can overshoot.
    largest = float(torch.linalg.matrix_norm(design, 2)) ** 2 / (4 * len(target)) + float(penalty[0])
    ahead, before = weights, weights
    for step in range(_STEPS):
        slope = design.T @ (torch.sigmoid(design @ ahead) - target) / len(target)
        weights = ahead - (slope + penalty * (ahead - prior)) / largest
        weights[:-1] = F.relu(weights[:-1])
        ahead, before = weights + step / (step + 3) * (weights - before), weights
    return weights[:-1]
