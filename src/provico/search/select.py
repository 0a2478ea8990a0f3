"""What to judge first: where the outcome is least known, and not twice the same."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from provico.errors import ConfigError
from provico.probability.calibration import fit_platt
from provico.progress import Progress, silent
from provico.search.confidence import LEAST_TAUGHT, kernel_width
from provico.search.judgements import Judgement, JudgementLog, Pair
from provico.search.loaded import LoadedVideos
from provico.search.lots import LotFile, draw_lot
from provico.search.population import Population

TEACHING_SHARE = 1 / 3
"""So many of the recordings, at most, are judged to teach; the others are left for lots."""


@dataclass(frozen=True, kw_only=True)
class Selected:
    """A query to judge, by its best hit of another recording."""

    query: str
    hit: str
    is_drawn: bool
    """Whether it was drawn by lot, so that its judgement counts for a guarantee."""


def propose(
    population: Population,
    judged: Mapping[Pair, Judgement],
    *,
    num: int,
    taken: Collection[str] = (),
    seed: int = 0,
) -> list[Selected]:
    """Queries whose judgements teach the most: drawn with probabilities of uncertainty times diversity.

    Uncertainty is p (1 - p), where p is how probably the hit of a query is right as far as judgements tell.
    Diversity is how little a query resembles those that were judged or proposed before. Each is of another
    recording, until a third of the recordings teaches; then more of these are proposed, so that two thirds
    are left to be drawn by lot. (Always taking the largest product taught less: it begins with outliers.)

    taken: queries that were drawn by lot, whose recordings are left out.
    """
    if num < 1:
        raise ConfigError(f"--num is {num}, but it must be at least 1.")
    rows, _ = population.judged(judged)
    directions = population.signals.directions
    width = kernel_width(directions)
    novelty = torch.ones(len(directions), dtype=torch.float64)
    for row in rows.tolist():
        novelty = torch.minimum(novelty, _novelty(directions, row, width))
    recordings = np.unique(np.array(population.recordings), return_inverse=True)[1]
    teaching = {int(recordings[row]) for row in rows.tolist()}
    closed = {int(recordings[row]) for row in population.rows_of(taken)} - teaching
    is_left = ~np.isin(recordings, [*closed])
    is_left[population.rows_of(query for query, _ in judged)] = False
    most = max(LEAST_TAUGHT, int(TEACHING_SHARE * (recordings.max() + 1)))
    uncertainty = _uncertainty(population, judged)
    generator = torch.Generator().manual_seed(seed + len(judged))
    chosen: list[int] = []
    while len(chosen) < num:
        is_taught = np.isin(recordings, [*teaching])
        is_open = torch.from_numpy(is_left & (is_taught if len(teaching) >= most else ~is_taught))
        if not bool(is_open.any()):
            break
        # The least novelty lets copies follow in the end.
        worth = (uncertainty * novelty.clamp(min=1e-6)).masked_fill(~is_open, 0)
        row = int(torch.multinomial(worth, 1, generator=generator))
        chosen.append(row)
        novelty = torch.minimum(novelty, _novelty(directions, row, width))
        teaching.add(int(recordings[row]))
        is_left[row] = False
    return [Selected(query=population.ids[row], hit=population.hits[row], is_drawn=False) for row in chosen]


def _novelty(directions: Float[Tensor, "queries dim"], row: int, width: float) -> Float[Tensor, "queries"]:
    return 1 - ((directions @ directions[row] - 1) / width).exp().clamp(max=1)


def select(
    index: Path,
    videos: LoadedVideos,
    num: int,
    by_lot: bool,
    max_error: float,
    num_queries: int,
    progress: Progress = silent,
) -> list[Selected]:
    """What to judge first in an index; see `Index.select`."""
    judged, lots = JudgementLog(index).read().current, LotFile(index)
    before, seed = lots.read(), videos.settings.seed
    asked = {query for query, _ in judged} | {one.query for lot in before for one in lot.drawn}
    population = Population.of(videos, num_queries=num_queries, seed=seed, always=asked, progress=progress)
    if not by_lot:
        drawn = {one.query for lot in before for one in lot.drawn if lot.origin == "lot"}
        return propose(population, judged, num=num, taken=drawn, seed=seed)
    lot = draw_lot(population, judged, before, num=num, max_error=max_error, seed=seed)
    lots.add(lot)
    return [Selected(query=one.query, hit=one.hit, is_drawn=True) for one in lot.drawn]


def _uncertainty(population: Population, judged: Mapping[Pair, Judgement]) -> Float[Tensor, "queries"]:
    """p (1 - p) of each query; alike for all before right and wrong ones are known."""
    rows, is_right = population.judged(judged)
    if not 0 < int(is_right.sum()) < len(is_right):
        return torch.ones(len(population.ids), dtype=torch.float64)
    confidence, judged_values = population.taught_by_rows(rows, is_right)
    slope, intercept = fit_platt(judged_values, is_right)
    probability = torch.sigmoid(slope * confidence(population.signals) + intercept)
    return probability * (1 - probability)
