"""The index of videos.

    index = Index.create("index", encoder)            or Index.open("index")
    index.add(open_catalog("videos"))                 only new and changed videos are embedded
    index.search("cooking/3.mp4").hits                or a file, or ("cooking/3.mp4", 10.0, 20.0)

Any number of processes may read an index while one adds to it. A reader sees the version of the index at
opening; `refresh` moves to the newest.

searchable.py has the search. With `Index.open("index", in_engine=True)`, an index in PostgreSQL is ranked
there (served.py): nothing is loaded, and memory is needed only for videos near the query. Answers are the
same. `PartedIndex` (parts.py) searches several indexes as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path

import torch

from provico.data.catalog import Catalog
from provico.data.library import Library
from provico.defaults import CALIBRATION_QUERIES, MAX_CHANCE, NUM_SAMPLES, TEST_CLIPS
from provico.embedding.file import EmbeddingHeader
from provico.errors import ConfigError
from provico.locations import current_index
from provico.models.backbones.registry import FEATURES
from provico.models.backbones.text_tower import words_dim
from provico.models.encoder import Encoder
from provico.probability.calibration import Calibration
from provico.processes import ALONE, Processes
from provico.progress import Progress, silent
from provico.search.add import AddReport, add_videos
from provico.search.calibrate import SourceChoice, calibrate
from provico.search.chance import Chance
from provico.search.guarantee import Promise, calibrate_by_judgements, promise
from provico.search.judgements import Judgement, JudgementLog
from provico.search.loaded import LoadedVideos
from provico.search.lots import LotFile, label_lot
from provico.search.query import Filter, no_such_video
from provico.search.searchable import RankedVideos, Searchable
from provico.search.select import Selected, select
from provico.search.served import ServedVideos
from provico.search.store.folder import IndexFolder, IndexSettings, StorePlace
from provico.search.words import WordAnswer, WordIndex, WordQuery


class Index(Searchable):
    """An index of videos, from `Index.create` or `Index.open`."""

    def __init__(self, folder: IndexFolder, *, in_engine: bool = False, allow_import: bool = False) -> None:
        self.settings: IndexSettings = folder.read_settings()
        self._folder, self._in_engine, self._allow_import = folder, in_engine, allow_import
        self._newest_videos = self._newest()
        self.calibration: Calibration | None = folder.read_calibration()
        self._chance: Chance | None = None
        self._words: tuple[int, WordIndex] | None = None

    @classmethod
    def create(
        cls,
        path: Path | str,
        encoder: Encoder,
        *,
        num_clips: int = TEST_CLIPS,
        short_side: int | None = None,
        num_samples: int = NUM_SAMPLES,
        seed: int = 0,
        store: str | None = None,
    ) -> Index:
        """Create an empty index with a copy of the encoder.

        num_clips: evenly spaced clips of each video.
        short_side: pixels of the shorter side of a frame before the crop; fits the encoder if not given.
        num_samples, seed: the match probability compares K samples of each video, which follow from its id.
        store: address of the engine that stores the rows, such as postgresql://host/database or
            s3://bucket/folder; in the folder of the index if not given.
        """
        if encoder.config.backbone == FEATURES:
            raise ConfigError(
                "An index needs videos, but the encoder was trained on stored features and cannot embed "
                "them. Use `provico embed` on a file of features."
            )
        settings = IndexSettings(
            embedding=EmbeddingHeader.of(encoder, num_clips=num_clips, short_side=short_side),
            num_samples=num_samples,
            seed=seed,
            place=StorePlace.new(store),
            words_dim=words_dim(encoder.backbone),
        )
        folder = IndexFolder(Path(path))
        folder.create(settings, encoder)
        index = cls(folder)
        index.__dict__["encoder"] = encoder
        return index

    @classmethod
    def open(cls, path: Path | str, *, in_engine: bool = False, allow_import: bool = False) -> Index:
        """Open an existing index, or the current index of a folder that `provico open` has opened.

        in_engine: let the server that stores the rows rank them, instead of loading them; `match` only.
        allow_import: allow the encoder to import a network by name, which runs its code.
        """
        folder = IndexFolder(current_index(Path(path)) or Path(path))
        return cls(folder, in_engine=in_engine, allow_import=allow_import)

    @property
    def path(self) -> Path:
        """The folder of the index."""
        return self._folder.path

    @property
    def version(self) -> int:
        """The version being read; it increases with every change."""
        return self._videos.store.version

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all videos, in order."""
        return self._videos.store.ids

    @cached_property
    def encoder(self) -> Encoder:
        """The encoder of all videos, opened on first use."""
        return self._open_encoder()

    @property
    def encoder_folder(self) -> Path:
        """The folder of the encoder."""
        return self._folder.encoder

    @property
    def preview_folders(self) -> tuple[Path, ...]:
        """The folders that may hold previews."""
        return (self._previews,)

    @property
    def loaded(self) -> LoadedVideos:
        """The version being read, in memory; an index that is searched in its engine is loaded for this."""
        if isinstance(self._videos, LoadedVideos):
            return self._videos
        return LoadedVideos(self._videos.store, self.settings)

    @property
    def is_newest(self) -> bool:
        """Whether the version being read is the newest; only ids are loaded to find out."""
        with closing(self._folder.open_store(self.settings)) as store:
            return store.version == self.version

    def refresh(self) -> bool:
        """Move to the newest version and calibration. Returns whether there was a newer version."""
        self.calibration = self._folder.read_calibration()
        if self.is_newest:
            return False
        self._newest_videos = self._newest()
        return True

    def add(
        self,
        catalog: Catalog,
        *,
        encoder: Encoder | None = None,
        prune: bool = False,
        num_workers: int = 0,
        device: torch.device | str | None = None,
        library: Library | None = None,
        progress: Progress = silent,
        processes: Processes = ALONE,
    ) -> AddReport:
        """Add videos, or update them. Unchanged videos are left alone.

        The call may be killed at any time: videos that `progress` has reported are in the index, and the same
        call resumes.

        encoder: must be the encoder of the index, which is used if none is given.
        prune: remove indexed videos that are not in the catalog and whose files are gone or belong to another
            part of the data set.
        processes: the processes of torchrun share the work; all of them must call this.
        Other options: see `embedding.driver.embed_batches`.
        """
        if encoder is not None:
            self.check_encoder(encoder)
        report = add_videos(
            self._folder,
            self.settings,
            encoder or self.encoder,
            catalog,
            prune=prune,
            num_workers=num_workers,
            device=device,
            library=library,
            progress=progress,
            processes=processes,
        )
        self.refresh()
        return report

    def check_encoder(
        self, encoder: Encoder, *, num_clips: int | None = None, short_side: int | None = None
    ) -> None:
        """Raise an error if this encoder and these clips differ from those of the index."""
        mine = self.settings.embedding
        given = EmbeddingHeader.of(
            encoder,
            num_clips=mine.num_clips if num_clips is None else num_clips,
            short_side=mine.short_side if short_side is None else short_side,
        )
        given.check_same(mine, of=self.path)

    def remove(self, ids: Sequence[str]) -> None:
        """Remove all of these videos from the index, or none. Their files are not touched."""
        with self._folder.changing(self.settings) as store:
            known = set(store.ids)
            for name in ids:
                if name not in known:
                    raise no_such_video(name, len(known), store.ids)
            store.remove(ids)
        self.refresh()

    @property
    def chance(self) -> Chance:
        """Scores of unrelated videos: those stored with the index, or else measured now."""
        if self._chance is None or self._chance.version != self.version:
            kept = Chance.read(self._folder.chance, self.settings)
            if kept is None or kept.version != self.version:
                kept = Chance.measured(self._videos, self.version)
            self._chance = kept
        return self._chance

    def keep_chance(self) -> None:
        """Store the scores of unrelated videos with the index, so that no search has to measure them."""
        kept = Chance.read(self._folder.chance, self.settings)
        if kept is None or kept.version != self.version:
            chance = self.chance
            with self._folder.writing():
                chance.write(self._folder.chance)

    def calibrate(
        self, *, source: SourceChoice = "auto", k: int = 10, num_queries: int = CALIBRATION_QUERIES
    ) -> Calibration:
        """Measure how often hits are right, and store the result with the index. Rankings do not change.

        source: `judgements` are those of users; `labels` counts a hit as right if it has the query's label;
            `auto` uses judgements if there are enough. Labels also give a guarantee.
        k: hits per query.
        num_queries: at most this many videos of the index are used as queries, chosen by the seed.
        """
        videos, seed = self.loaded, self.settings.seed
        found = calibrate_by_judgements(videos, self.judgements.read().current, source=source)
        if found is None:
            found = calibrate(videos, k=k, num_queries=num_queries, seed=seed)
        if found.source == "labels":
            LotFile(self.path).add(label_lot(videos, num_queries=num_queries))
        self._folder.write_calibration(found)
        self.calibration = found
        return found

    @property
    def judgements(self) -> JudgementLog:
        """The judgements of hits by users."""
        return JudgementLog(self.path)

    def judge(self, judgements: Iterable[Judgement]) -> None:
        """Store all of these judgements, or none, for `calibrate`."""
        self.judgements.record(judgements, find=self._videos.find_id)

    def select(
        self,
        *,
        num: int = 50,
        by_lot: bool = False,
        max_error: float = 0.1,
        num_queries: int = CALIBRATION_QUERIES,
        progress: Progress = silent,
    ) -> list[Selected]:
        """Choose hits to judge.

        by_lot: draw queries at random, for the guarantee `max_error`, and store the draw with the index.
            Otherwise, the most informative queries.
        """
        return select(self.path, self.loaded, num, by_lot, max_error, num_queries, progress)

    def search_words(
        self,
        *texts: str,
        like: Sequence[str] = (),
        unlike: Sequence[str] = (),
        k: int = 10,
        max_chance: float | None = MAX_CHANCE,
        filter: Filter | None = None,
    ) -> WordAnswer:
        """Find the k best videos for words; the encoder needs a network with a text tower.

        like, unlike: ids of indexed videos that hits should resemble or not; anything else counts as text.
        """
        words = self.words
        parts = [
            WordQuery(word, weight, is_video=word in self)
            for weight, words in ((1.0, texts), (1.0, like), (-1.0, unlike))
            for word in words
        ]
        if not any(part.weight > 0 for part in parts):
            raise ConfigError("There is nothing to search for. Give a text, or --like an indexed video.")
        return words.search(parts, k=k, max_chance=max_chance, filter=filter)

    @property
    def words(self) -> WordIndex:
        """The videos in the text space; an error if the encoder has no text tower."""
        if self._words is None or self._words[0] != self.version:
            self._words = self.version, WordIndex(self.loaded, self.path, self._open_encoder)
        return self._words[1]

    def promise(self, max_error: float) -> Promise:
        """The queries that can be answered so that at most `max_error` of the answers are wrong."""
        return promise(self.path, max_error=max_error, num_videos=len(self))

    def _open_encoder(self) -> Encoder:
        return self._folder.open_encoder(self.settings, allow_import=self._allow_import)

    @property
    def _videos(self) -> LoadedVideos | ServedVideos:
        return self._newest_videos

    @property
    def _previews(self) -> Path:
        return self._folder.previews

    def _chance_of(self, videos: RankedVideos) -> Chance:
        return self.chance

    def _newest(self) -> LoadedVideos | ServedVideos:
        if not self._in_engine:
            return LoadedVideos(self._folder.open_store(self.settings), self.settings)
        place = self.settings.place
        if not place.is_server:
            raise ConfigError(
                f"The rows of {self.path} are not in PostgreSQL, so they cannot be searched there. Leave "
                "out --in-engine, or make an index with --store postgresql://user@host/database."
            )
        return ServedVideos(place.open_server(self.settings.columns), self.settings)
