"""What can be searched: an index (index.py), or several as one (parts.py).

A search is `ask` (query.py), `rank` (loaded.py, which goes through exact/top_k.py) and `answer_all`
(answer.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from provico.data.frames.thumbnail import make_preview
from provico.data.library import Library
from provico.defaults import MAX_CHANCE
from provico.errors import ChangedVideoError
from provico.files import Signature
from provico.models.encoder import Encoder
from provico.probability.calibration import Calibration
from provico.progress import Progress, silent
from provico.search.answer import Answer, HitLimits, answer_all
from provico.search.chance import Chance
from provico.search.confidence import NUM_HITS, signals_of
from provico.search.exact.found import TopK
from provico.search.guarantee import Promise, check_as_judged
from provico.search.loaded import LoadedVideos
from provico.search.query import Asked, Exclusion, Filter, IndexedVideos, Query, ask
from provico.wording import share_below

NUM_DRAWN = 2000
"""Statistics of a collection on servers are those of this many of its videos."""


class RankedVideos(IndexedVideos, Protocol):
    """Videos that can be ranked."""

    def __len__(self) -> int: ...

    def rank(
        self, asked: Sequence[Asked], *, metric: str, k: int, filter: Filter, exclude_same: Exclusion
    ) -> list[TopK]:
        """The k best videos for each query; ties are ordered by id."""
        ...


class Searchable(ABC):
    """One index, or several searched as one."""

    calibration: Calibration | None
    """How often hits are right; None if unknown."""

    def __len__(self) -> int:
        return len(self._videos)

    def __contains__(self, video_id: str) -> bool:
        return self._videos.look_up(video_id) is not None

    def find(self, video_id: str) -> int:
        """The row of a video, for `Asked.row`; an error if it is not indexed."""
        return self._videos.find_id(video_id)

    @property
    @abstractmethod
    def encoder(self) -> Encoder:
        """The encoder of all videos."""

    @property
    @abstractmethod
    def encoder_folder(self) -> Path:
        """The folder of the encoder."""

    @abstractmethod
    def promise(self, max_error: float) -> Promise:
        """The queries that can be answered so that at most `max_error` of the answers are wrong."""

    @property
    @abstractmethod
    def _videos(self) -> RankedVideos:
        """The version being read."""

    @property
    @abstractmethod
    def _previews(self) -> Path:
        """The folder of the previews."""

    @abstractmethod
    def _chance_of(self, videos: RankedVideos) -> Chance:
        """Scores of unrelated videos."""

    def _answered(self, answers: Callable[[RankedVideos], list[Answer]]) -> list[Answer]:
        """The answers for the version being read."""
        return answers(self._videos)

    def search(
        self,
        query: Query | Asked,
        *,
        k: int = 10,
        metric: str = "match",
        max_chance: float | None = MAX_CHANCE,
        min_probability: float | None = None,
        max_error: float | None = None,
        filter: Filter | None = None,
        exclude_same: Exclusion = "video",
        library: Library | None = None,
    ) -> Answer:
        """Find the k best videos for a query.

        query: an id or a file, or (id or file, start_seconds, end_seconds), or an embedded query (`Asked`).
        metric: `match`, the match probability, the only metric of a server; `cosine` of the means; or a name
            of `DISTANCES`, for which smaller is better.
        max_chance: hide hits that more unrelated videos than this are expected to match as well by chance.
            None hides nothing. Nothing is hidden if the index is too small (`Answer.chance` is None).
        min_probability: hide hits that are right less often; needs a calibrated index.
        max_error: answer only queries such that at most this share of the answers is wrong, as far as
            judgements or labels guarantee it (docs/uncertainty.md). Other queries are withheld with a reason.
            Only other recordings are found, as when hits were judged.
        filter: the videos that may be found.
        exclude_same: `video` excludes an indexed query itself, `group` also all videos of its recording, and
            `nothing` excludes nothing.
        library: the cache of facts about video files; the user's own if not given.
        """
        (only,) = self.search_many(
            [query],
            k=k,
            metric=metric,
            max_chance=max_chance,
            min_probability=min_probability,
            max_error=max_error,
            filter=filter,
            exclude_same=exclude_same,
            library=library,
        )
        return only

    def search_many(
        self,
        queries: Sequence[Query | Asked],
        *,
        k: int = 10,
        metric: str = "match",
        max_chance: float | None = MAX_CHANCE,
        min_probability: float | None = None,
        max_error: float | None = None,
        filter: Filter | None = None,
        exclude_same: Exclusion = "video",
        library: Library | None = None,
        progress: Progress = silent,
    ) -> list[Answer]:
        """Answer several queries, which is faster than one at a time; see `search`."""
        limits = HitLimits.checked(max_chance, min_probability, self.calibration)
        kept_promise = None
        if max_error is not None:
            check_as_judged(metric, filter, exclude_same)
            kept_promise, exclude_same = self.promise(max_error), "group"
        library = library or Library()

        def answers(videos: RankedVideos) -> list[Answer]:
            asked = []
            for number, query in enumerate(queries, start=1):
                if not isinstance(query, Asked):
                    query = ask(query, videos, lambda: self.encoder, library)
                asked.append(query)
                progress(number, len(queries))
            looked_at = k if kept_promise is None else max(k, NUM_HITS)
            ranked = videos.rank(
                asked, metric=metric, k=looked_at, filter=filter or Filter(), exclude_same=exclude_same
            )
            found = answer_all(
                asked,
                [one.best(k) for one in ranked],
                videos,
                metric=metric,
                limits=limits,
                calibration=self.calibration,
                chance=self._chance_of(videos),
                previews=self._previews,
            )
            if kept_promise is None:
                return found
            return kept_promise.keep(found, signals_of(asked, ranked, videos))

        return self._answered(answers)

    def share_surer(self, uncertainties: Sequence[float]) -> NDArray[np.float64]:
        """The shares of videos with lower uncertainty, from 0 to 1; on servers, of a random sample."""
        videos = self._videos
        if isinstance(videos, LoadedVideos):
            return share_below(uncertainties, of=videos.uncertainty.numpy())
        drawn = videos.read(("uncertainty",), videos.drawn(NUM_DRAWN))
        return share_below(uncertainties, of=drawn["uncertainty"])

    def thumbnail(self, video_id: str) -> bytes:
        """The middle frame of a video, as JPEG."""
        picture: bytes = self._videos.read(("thumbnail",), [self._videos.find_id(video_id)])["thumbnail"][0]
        return picture

    def preview(self, video_id: str) -> Path:
        """The path of a short H.264 preview of a video, made on first use.

        Raises VideoError if it has not been made and the file has changed since it was indexed.
        """
        found = self._videos.read(
            ("preview", "path", "num_bytes", "modified_ns"), [self._videos.find_id(video_id)]
        )
        name, path, *file = (found[column][0] for column in found)
        preview = self._previews / str(name)
        if not preview.is_file():
            frames = Library().index(path)
            if Signature.of(Path(path)) != Signature(*map(int, file)):
                raise ChangedVideoError(path, "it has changed since it was indexed. Add it again.")
            make_preview(path, preview, index=frames)
        return preview
