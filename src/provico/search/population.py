"""The queries that an index could be asked: some of its own videos, each with its best hit elsewhere.

They have no outcomes. They say how confidence is distributed, and are what `select` chooses from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from provico.errors import ConfigError
from provico.progress import Progress, silent
from provico.search.confidence import NUM_HITS, Confidence, Signals, signals_of
from provico.search.judgements import Judgement, Pair
from provico.search.loaded import LoadedVideos
from provico.search.query import Filter, recording_of

_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class Population:
    """Queries, one a row."""

    ids: tuple[str, ...]
    recordings: tuple[str, ...]
    hits: tuple[str, ...]
    """The best hit of another recording."""
    signals: Signals
    labels: tuple[tuple[str | None, str | None], ...]
    """Of each query and its hit, where known."""
    num_videos: int
    """Of the index."""

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.ids)}

    def rows_of(self, ids: Iterable[str]) -> list[int]:
        """The rows of those of these queries that are here."""
        return [self._row_of[name] for name in ids if name in self._row_of]

    def judged(
        self, judged: Mapping[Pair, Judgement]
    ) -> tuple[Int[Tensor, "judged"], Bool[Tensor, "judged"]]:
        """The rows whose best hit is judged, and whether it is right."""
        found = {
            self._row_of[query]: one.is_right
            for (query, hit), one in judged.items()
            if query in self._row_of and self.hits[self._row_of[query]] == hit
        }
        rows = sorted(found)
        return torch.tensor(rows, dtype=torch.long), torch.tensor([found[row] for row in rows]).bool()

    def taught_by_rows(
        self, rows: Int[Tensor, "judged"], is_right: Bool[Tensor, "judged"]
    ) -> tuple[Confidence, Float[Tensor, "judged"]]:
        """The confidence that follows from the outcomes of some of the queries; see `Confidence.taught`."""
        recordings = [self.recordings[row] for row in rows.tolist()]
        return Confidence.taught(self.signals, self.signals[rows], is_right, recordings)

    @property
    def is_right(self) -> Bool[Tensor, "queries"]:
        """Whether labels agree; only for a population of labelled videos."""
        return torch.tensor([query == hit for query, hit in self.labels], dtype=torch.bool)

    def some(self, rows: Int[Tensor, "some"]) -> Population:
        """Some of the queries."""
        kept = rows.tolist()
        return Population(
            ids=tuple(self.ids[row] for row in kept),
            recordings=tuple(self.recordings[row] for row in kept),
            hits=tuple(self.hits[row] for row in kept),
            signals=self.signals[rows],
            labels=tuple(self.labels[row] for row in kept),
            num_videos=self.num_videos,
        )

    @classmethod
    def of(
        cls,
        videos: LoadedVideos,
        *,
        num_queries: int,
        seed: int,
        is_labelled: bool = False,
        always: Iterable[str] = (),
        progress: Progress = silent,
    ) -> Population:
        """At most so many videos of an index, chosen by the seed, and those in `always`.

        is_labelled: only videos with a label are asked for, and found.
        """
        labels = videos.labels
        allowed = torch.tensor([not is_labelled or label is not None for label in labels], dtype=torch.bool)
        rows = allowed.nonzero().flatten()
        rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:num_queries]]
        extra = [row for name in always if (row := videos.look_up(name)) is not None]
        rows = torch.unique(torch.cat([rows, torch.tensor(extra, dtype=torch.long)]))
        wanted = (
            Filter(labels=sorted({one for one in labels if one is not None})) if is_labelled else Filter()
        )
        signals, hits, kept = [], [], []
        for some in torch.split(rows, _AT_ONCE) if len(rows) else ():
            asked = videos.as_queries(some)
            ranked = videos.rank(asked, metric="match", k=NUM_HITS, filter=wanted, exclude_same="group")
            found = [number for number, one in enumerate(ranked) if len(one.rows)]
            if found:
                signals.append(signals_of([asked[n] for n in found], [ranked[n] for n in found], videos))
            hits += [int(ranked[number].rows[0]) for number in found]
            kept += [int(some[number]) for number in found]
            progress(len(kept), len(rows))
        if not kept:
            raise ConfigError(
                "No video of the index has another recording to be found in. Add videos of at least two."
            )
        return cls(
            ids=tuple(videos.ids[row] for row in kept),
            recordings=tuple(recording_of(videos.words["group"][row], videos.ids[row]) for row in kept),
            hits=tuple(videos.ids[hit] for hit in hits),
            signals=Signals(
                torch.cat([one.values for one in signals]), torch.cat([one.directions for one in signals])
            ),
            labels=tuple((labels[row], labels[hit]) for row, hit in zip(kept, hits, strict=True)),
            num_videos=len(videos),
        )
