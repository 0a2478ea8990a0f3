"""Does a guarantee from judgements hold on real errors, how much is answered, and is the probability right?

    provico pretrain FEATURES.npz --subset train --out RUN
    provico embed FEATURES.npz --checkpoint RUN --out NAME.parquet
    python benchmarks/trust_guarantee.py NAME.parquet:RUN ... --out benchmarks/results/trust_guarantee.json

Every labelled video is a query among the videos of other recordings; labels play the one who judges. In each
resplit two thirds of the recordings, drawn at random, are there to be judged, and the last third is held out.

- `lot`: n queries are drawn by lot, one of each recording; all that there are if fewer.
- `select`: a quarter of the n are what `select` proposes, in two rounds; then the others are drawn by lot
  above the floor that these suggest. 20 splits, each with 50 draws.

`violated` is the share of resplits in which the answered queries of the whole set are wrong more often than
`max_error`: by recording, which is what is promised, and by query. `seen_held_out` is the share in which this
is so among the held-out recordings alone, whose number is small, so that chance is part of it; `seen_by_luck`
is that share for as many recordings drawn from the whole set, judged ones among them, at the same thresholds.
`coverage` is the mean share of held-out queries that are answered, resplits in which nothing can be promised
included.

`calibration_error`: 200 hits, drawn at random from the ten best of all queries, are judged, and the beta
map is judged on the other hits of the same collection; or both on hits of different recordings, a half each.
`by_chance` is the error of a map that is right, on as many hits.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from provico import open_encoder, read_embeddings
from provico.errors import ConfigError
from provico.evaluation.embedded_search import Sampling, SearchedEmbeddings
from provico.probability import expected_calibration_error
from provico.probability.calibration import fit_beta
from provico.search.confidence import NUM_HITS, QueryFacts, Signals, recording_of
from provico.search.judgements import VERDICTS, Judgement, Pair
from provico.search.lots import Drawn, Lot, draw_lot
from provico.search.population import Population
from provico.search.select import propose

NUMBERS = (30, 100, 300)
MAX_ERRORS = (0.1, 0.2, 0.3)
NUM_SPLITS, DRAWS_OF_A_SPLIT = 20, 50


@dataclasses.dataclass(frozen=True)
class Hits:
    """The ten best hits of every query."""

    score: torch.Tensor
    right: torch.Tensor
    recording: np.ndarray


def opened(embeddings: Path, run: Path) -> tuple[Population, Hits]:
    videos, curve = read_embeddings(embeddings), open_encoder(run).match_curve().fixed()
    found = SearchedEmbeddings(videos, curve, Sampling(10)).best(videos, k=NUM_HITS, exclude_same="group")
    unsure = videos.videos.uncertainty.tolist()
    recordings = [recording_of(group, name) for group, name in zip(videos.groups, videos.ids, strict=True)]
    hits = [int(one.rows[0]) for one in found]
    evidence = [
        QueryFacts(one.scores, [recordings[row] for row in one.rows.tolist()], unsure[row], unsure[hits[row]])
        for row, one in enumerate(found)
    ]
    right = [
        [videos.labels[hit] == label for hit in one.rows.tolist()]
        for label, one in zip(videos.labels, found, strict=True)
    ]
    numbers = np.unique(np.array(recordings), return_inverse=True)[1]
    known = Hits(torch.stack([one.scores for one in found]), torch.tensor(right), numbers)
    population = Population(
        ids=videos.ids,
        recordings=tuple(recordings),
        hits=tuple(videos.ids[hit] for hit in hits),
        signals=Signals.of(evidence, videos.videos.moment_matched.mean),
        labels=tuple((videos.labels[row], videos.labels[hit]) for row, hit in enumerate(hits)),
        num_videos=len(videos),
    )
    return population, known


class Errors:
    """The outcomes of a set, and the error rates of answers."""

    def __init__(self, population: Population) -> None:
        self.population = population
        self.wrong = ~population.is_right.numpy()
        self.recording = np.unique(np.array(population.recordings), return_inverse=True)[1]

    def split(self, rng: np.random.Generator) -> tuple[Population, np.ndarray]:
        """Two thirds of the recordings, and the rows of the others."""
        order = rng.permutation(self.recording.max() + 1)
        is_held = np.isin(self.recording, order[: len(order) // 3])
        return self.population.some(torch.from_numpy(np.flatnonzero(~is_held))), np.flatnonzero(is_held)

    def of(self, answered: np.ndarray, rows: np.ndarray | None = None) -> tuple[float, float]:
        """By recording and by query."""
        rows = np.arange(len(self.wrong)) if rows is None else rows
        kept = rows[answered[rows]]
        if not len(kept):
            return 0.0, 0.0
        number = np.bincount(self.recording[kept])
        wrong = np.bincount(self.recording[kept], self.wrong[kept])
        return float((wrong[number > 0] / number[number > 0]).mean()), float(self.wrong[kept].mean())

    def judged(self, queries: list[str]) -> dict[Pair, Judgement]:
        """What labels say of these."""
        found = {}
        for row in self.population.rows_of(queries):
            pair = (self.population.ids[row], self.population.hits[row])
            found[pair] = Judgement(query=pair[0], hit=pair[1], verdict=VERDICTS[int(self.wrong[row])])
        return found


@dataclasses.dataclass
class Tally:
    """What came of resplits."""

    rows: list[tuple[float, ...]] = dataclasses.field(default_factory=list)
    rng: np.random.Generator = dataclasses.field(default_factory=lambda: np.random.default_rng(3))

    def add(self, errors: Errors, lot: Lot | None, max_error: float, held: np.ndarray) -> None:
        """Hold one promise against the truth."""
        judged = {} if lot is None else errors.judged([one.query for one in lot.drawn])
        control = None if lot is None else lot.control(judged, max_error=max_error)
        if lot is None or control is None:
            self.rows.append((0.0,) * 6)
            return
        answered = (lot.confidence(errors.population.signals) >= control.threshold).numpy()
        by_recording, by_query = errors.of(answered)
        seen, _ = errors.of(answered, held)
        luck, _ = errors.of(answered, errors.split(self.rng)[1])
        self.rows.append((by_recording, by_query, seen, float(answered[held].mean()), 1.0, luck))

    def summary(self, max_error: float) -> dict[str, float]:
        """Shares of resplits."""
        table = np.array(self.rows)
        return {
            "resplits": len(table),
            "violated": float((table[:, 0] > max_error).mean()),
            "violated_by_query": float((table[:, 1] > max_error).mean()),
            "seen_held_out": float((table[:, 2] > max_error).mean()),
            "seen_by_luck": float((table[:, 5] > max_error).mean()),
            "coverage": round(float(table[:, 3].mean()), 4),
            "something_promised": float(table[:, 4].mean()),
        }


def by_lot(errors: Errors) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    tallies = {(num, max_error): Tally() for num in NUMBERS for max_error in MAX_ERRORS}
    for _ in range(NUM_SPLITS * DRAWS_OF_A_SPLIT):
        part, held = errors.split(rng)
        whole = draw_lot(part, {}, (), num=max(NUMBERS), max_error=0.9, seed=int(rng.integers(2**31)))
        for (num, max_error), tally in tallies.items():
            tally.add(errors, dataclasses.replace(whole, drawn=whole.drawn[:num]), max_error, held)
    return {f"{num} at {one}": tally.summary(one) for (num, one), tally in tallies.items()}


def by_select(errors: Errors) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    tallies = {(num, max_error): Tally() for num in NUMBERS for max_error in MAX_ERRORS}
    for _ in range(NUM_SPLITS):
        part, held = errors.split(rng)
        proposals = {}
        for (num, max_error), tally in tallies.items():
            if num not in proposals:
                judged: dict[Pair, Judgement] = {}
                for _ in range(2):
                    some = propose(part, judged, num=num // 8, seed=int(rng.integers(2**31)))
                    judged |= errors.judged([one.query for one in some])
                proposals[num] = judged
            judged = proposals[num]
            try:
                lot = draw_lot(part, judged, (), num=num - len(judged), max_error=max_error, seed=0)
            except ConfigError:
                lot = None
            for _ in range(DRAWS_OF_A_SPLIT):
                again = None if lot is None else drawn_anew(lot, part, judged, rng)
                tally.add(errors, again, max_error, held)
    return {f"{num} at {one}": tally.summary(one) for (num, one), tally in tallies.items()}


def drawn_anew(lot: Lot, part: Population, judged: dict[Pair, Judgement], rng: np.random.Generator) -> Lot:
    """A lot of the same queries, drawn with other luck."""
    values = lot.confidence(part.signals).tolist()
    taken = {part.recordings[row] for row in part.rows_of([query for query, _ in judged])}
    first: dict[str, int] = {}
    for row in rng.permutation(len(values)).tolist():
        if values[row] >= lot.thresholds[-1] and part.recordings[row] not in taken:
            first.setdefault(part.recordings[row], row)
    rows = rng.permutation(list(first.values()))[: len(lot.drawn)].tolist()
    drawn = tuple(
        Drawn(query=part.ids[row], hit=part.hits[row], recording=part.recordings[row], confidence=values[row])
        for row in rows
    )
    return dataclasses.replace(lot, drawn=drawn)


def calibration(hits: Hits, num_judged: int = 200, num_resplits: int = 200) -> dict[str, float]:
    """Of the ten best hits of each query: of the same collection, and of recordings that nobody judged."""
    rng = np.random.default_rng(2)
    rows = np.repeat(np.arange(len(hits.recording)), hits.right.shape[1])
    score, right = hits.score.flatten(), hits.right.flatten()
    found: dict[str, list[float]] = {}
    for _ in range(num_resplits):
        order = rng.permutation(hits.recording.max() + 1)
        is_ours = np.isin(hits.recording, order[: len(order) // 2])[rows]
        for name, ours, theirs in (
            ("same_collection", np.ones(len(rows), bool), np.ones(len(rows), bool)),
            ("other_recordings", is_ours, ~is_ours),
        ):
            judged = rng.permutation(np.flatnonzero(ours))[:num_judged]
            rest = torch.from_numpy(np.setdiff1d(np.flatnonzero(theirs), judged))
            probability = fit_beta(score[judged], right[judged])(score[rest]).sigmoid()
            luck = torch.from_numpy(rng.random(len(rest))) < probability
            before = expected_calibration_error(score[rest].exp(), right[rest])
            found.setdefault("match_probability", []).append(before)
            found.setdefault(name, []).append(expected_calibration_error(probability, right[rest]))
            found.setdefault("by_chance", []).append(expected_calibration_error(probability, luck))
    return {name: round(float(np.mean(values)), 4) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="+", metavar="EMBEDDINGS:RUN")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    if arguments.out and arguments.out.exists():
        results = json.loads(arguments.out.read_text(encoding="utf-8"))
    for one in arguments.sets:
        embeddings, run = map(Path, one.split(":"))
        population, hits = opened(embeddings, run)
        errors = Errors(population)
        results[embeddings.stem] = {
            "queries": len(errors.wrong),
            "recordings": int(errors.recording.max()) + 1,
            "wrong": round(float(errors.wrong.mean()), 4),
            "calibration_error": calibration(hits),
            "lot": by_lot(errors),
            "select": by_select(errors),
        }
        print(json.dumps({embeddings.stem: results[embeddings.stem]}, indent=1), flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
