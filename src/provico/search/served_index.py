"""An index in PostgreSQL that is searched there: the same answers, and nothing of it is loaded first.

    ServedIndex.open("index").search("cooking/3.mp4").hits

`Index` is faster where the collection fits into memory, has more metrics, and adds videos. This one starts at
once and needs memory for what is near the query only.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from provico.data.library import Library
from provico.errors import ConfigError
from provico.models.encoder import Encoder
from provico.probability.calibration import Calibration
from provico.progress import Progress, silent
from provico.search.answer import answer_all, check_probability
from provico.search.hits import Answer, Exclusion
from provico.search.query import Asked, Query, ask
from provico.search.served import ServedVideos
from provico.search.snapshot import Filter
from provico.search.store.folder import IndexFolder, IndexSettings


class ServedIndex:
    """An index whose rows are in a server; `open` gives one."""

    def __init__(self, folder: IndexFolder, *, allow_import: bool = False) -> None:
        self.settings: IndexSettings = folder.read_settings()
        self._folder, self._allow_import = folder, allow_import
        if not self.settings.place.is_server:
            raise ConfigError(
                f"The rows of {folder.path} are not in PostgreSQL, so they cannot be searched there. Leave "
                "out --in-engine, or make an index with --store postgresql://user@host/database."
            )
        self.calibration: Calibration | None = folder.read_calibration()
        self._videos = self._newest()

    @classmethod
    def open(cls, path: Path | str, *, allow_import: bool = False) -> ServedIndex:
        """An index that is there.

        allow_import: let its encoder import a network by name, whose code is then run.
        """
        return cls(IndexFolder(Path(path)), allow_import=allow_import)

    @property
    def version(self) -> int:
        """The version that is read; it grows with every change."""
        return self._videos.store.version

    def __len__(self) -> int:
        return len(self._videos)

    def __contains__(self, video_id: str) -> bool:
        return self._videos.look_up(video_id) is not None

    @cached_property
    def encoder(self) -> Encoder:
        """The encoder of all its videos, opened when first needed."""
        return Encoder.from_pretrained(self._folder.encoder, allow_import=self._allow_import)

    def refresh(self) -> bool:
        """Go on to the newest version and calibration; whether there was a newer version."""
        self.calibration = self._folder.read_calibration()
        newest = self._newest()
        is_newer = newest.store.version != self.version
        if is_newer:
            self._videos = newest
        return is_newer

    def search(
        self,
        query: Query | Asked,
        *,
        k: int = 10,
        min_probability: float | None = None,
        filter: Filter | None = None,
        exclude_same: Exclusion = "video",
        library: Library | None = None,
    ) -> Answer:
        """The k best videos for a query by match probability; see `Index.search`."""
        (only,) = self.search_many(
            [query],
            k=k,
            min_probability=min_probability,
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
        min_probability: float | None = None,
        filter: Filter | None = None,
        exclude_same: Exclusion = "video",
        library: Library | None = None,
        progress: Progress = silent,
    ) -> list[Answer]:
        """The same for several queries, one after the other."""
        if metric != "match":
            raise ConfigError(
                f"The metric is {metric!r}, but a server ranks by match only. Leave out --in-engine."
            )
        check_probability(min_probability)
        videos, library = self._videos, library or Library()
        asked, ranked = [], []
        for number, query in enumerate(queries, start=1):
            one = query if isinstance(query, Asked) else ask(query, videos, lambda: self.encoder, library)
            asked.append(one)
            ranked.append(videos.rank(one, k=k, filter=filter or Filter(), exclude_same=exclude_same))
            progress(number, len(queries))
        return answer_all(
            asked,
            ranked,
            videos,
            metric=metric,
            min_probability=min_probability,
            previews=self._folder.previews,
            calibration=self.calibration,
        )

    def _newest(self) -> ServedVideos:
        return ServedVideos(self.settings.place.open_server(self.settings.columns), self.settings)
