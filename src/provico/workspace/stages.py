"""The work for a collection, one stage after the other. Each goes on where it was when it was killed.

The first videos are embedded by an encoder that was made of those few, so that there is something to see
within seconds. When all are read, an encoder is made of all of them, and an index with it takes the place of
the first; frames are not decoded again for that.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from provico.curation.job import curate
from provico.curation.junk import JUNK, counted_kind
from provico.data.catalog import Catalog
from provico.data.library import Library
from provico.duplicates import find_duplicates
from provico.duplicates.kept import KeptDuplicates
from provico.errors import CatalogError, ConfigError, ProvicoError, VideoIndexError
from provico.files import replace_text
from provico.models.encoder import Encoder
from provico.models.saved import open_encoder, plain_encoder
from provico.progress import Progress, silent
from provico.search.follow import remember
from provico.search.index import Index
from provico.search.open_or_create import remove_if_empty
from provico.training.start import untrained_encoder
from provico.wording import counted
from provico.workspace.folder import Workspace
from provico.workspace.status import StatusWriter
from provico.workspace.store import NOT_READ_NAME, write_not_read

BACKBONE = "efficientnet_motion"
"""The network that looks at videos if no other one is named."""
NUM_FIRST = 12
"""Videos that are shown first."""
GROWTH = 1.5
"""When there are so many times the videos that an encoder was made of, another one is made."""
NUM_CLIPS = 10


@dataclass
class Work:
    """What the stages need."""

    workspace: Workspace
    status: StatusWriter
    library: Library
    device: torch.device | str | None = None
    num_workers: int = 0
    allow_import: bool = False

    def bring_up_to_date(self) -> None:
        """All that has to be done for the videos as they are now."""
        for catalog in self._catalogs():
            index = self._read(catalog)
        if self._version_of(index) != self._done:
            self._propose(index, catalog, trims=False)
        index = self._fit(index, catalog)
        with contextlib.suppress(ConfigError):  # too few videos
            index.keep_chance()
        if self._version_of(index) != self._done:
            self._find_duplicates(index)
            self._propose(index, catalog, trims=True)
            replace_text(self._done_path, self._version_of(index))
        self.status.skip_rest()

    # --- the stages -----------------------------------------------------------------------------------------

    def _catalogs(self) -> Iterator[Catalog]:
        """The videos; of an object store, more and more of them."""
        store, is_any = self.workspace.store, False
        if store is None:
            yield self._list()
            return
        stage = self.status.begin("fetch")
        for not_read in store.fetch(self.status.progress(stage)):
            write_not_read(self.workspace.path / NOT_READ_NAME, not_read)
            said = f"{len(not_read):,} not read, listed in {NOT_READ_NAME}" if not_read else "all of them"
            self.status.end(stage, said)
            if any(path.is_file() for path in self.workspace.copies.rglob("*")):
                is_any = True
                yield self._list()
            stage = self.status.begin("fetch")
        self.status.end(stage, said)
        if not is_any:
            why = not_read[0]
            raise CatalogError(f"No video of {store.address} could be copied. {why.name}: {why.reason}.")

    def _list(self) -> Catalog:
        stage = self.status.begin("list")
        catalog = self.workspace.catalog()
        self.status.end(stage, counted(len(catalog), "video"))
        return catalog

    def _read(self, catalog: Catalog) -> Index:
        """The index with all videos in it that can be read."""
        stage = self.status.begin("read")
        stage.total = len(catalog)
        self.status.write()
        path = self.workspace.index
        if path is None:
            num_before = 0
            index = self._first_index(catalog, self.status.progress(stage))
        else:
            index = Index.open(path, allow_import=self.allow_import)
            num_before = len(index)

        def progress(done: int, total: int, note: str = "") -> None:
            self.status.advance(stage, min(len(catalog), len(catalog) - total + done), len(catalog))

        try:
            report = index.add(
                catalog,
                prune=True,
                num_workers=self.num_workers,
                device=self.device,
                library=self.library,
                progress=progress,
            )
        except ProvicoError:
            remove_if_empty(index)
            raise
        self.status.status.num_failed = len(report.failed)
        new, num_failed = len(index) - num_before, len(report.failed)
        said = [counted(len(index), "video")]
        said += [f"{new:,} of them new"] * (0 < new < len(index))
        said += [f"{num_failed:,} cannot be read"] * bool(num_failed)
        self.status.end(stage, ", ".join(said))
        return index

    def _first_index(self, catalog: Catalog, progress: Progress) -> Index:
        """An index for the first videos, which are spread over the collection."""
        step = max(1, len(catalog) // NUM_FIRST)
        few = catalog.subset(range(0, len(catalog), step)[:NUM_FIRST])

        def of_all(done: int, total: int, note: str = "") -> None:
            progress(done, len(catalog))

        encoder, num_fitted = self._encoder_of(few, is_first=True, progress=of_all)
        index = self._new_index(encoder)
        with contextlib.suppress(ProvicoError):  # none of them can be read; perhaps others can
            index.add(few, num_workers=self.num_workers, device=self.device, library=self.library)
        self.take_over(index, fitted_on=num_fitted, is_learnt=False, measured=None)
        return index

    def _new_index(self, encoder: Encoder) -> Index:
        settings = self.workspace.settings
        if (replaced := settings.current or settings.former) is not None:
            with contextlib.suppress(VideoIndexError):  # of another version, or damaged
                remember(self.workspace.path / replaced)
        return Index.create(self.workspace.next_index(), encoder, num_clips=NUM_CLIPS)

    def _encoder_of(
        self, catalog: Catalog, *, is_first: bool = False, progress: Progress = silent
    ) -> tuple[Encoder, int]:
        """The encoder that was named, or one made of these videos; and of how many it was made."""
        settings = self.workspace.settings
        if settings.checkpoint is not None:
            return open_encoder(settings.checkpoint, allow_import=self.allow_import), 0
        backbone = settings.backbone or BACKBONE
        try:
            encoder = untrained_encoder(
                backbone,
                catalog,
                num_clips=NUM_CLIPS,
                num_workers=self.num_workers,
                device=self.device,
                max_broken_share=1.0,
                num_looks=0 if is_first else None,
                library=self.library,
                progress=progress,
            )
        except ConfigError:
            if len(catalog) > 2 * NUM_FIRST:
                raise
            return plain_encoder(backbone), 0  # of a single video there are no axes
        return encoder, 0 if is_first else len(catalog)

    def _fit(self, index: Index, catalog: Catalog) -> Index:
        """The index with an encoder that knows all of the collection, if this one knows too little of it."""
        settings = self.workspace.settings
        has_own = settings.checkpoint is not None or settings.is_learnt
        if has_own or len(index) < 2 or len(index) < GROWTH * settings.fitted_on:
            return index
        stage = self.status.begin("fit")
        known = catalog.subset([row for row, video in enumerate(catalog) if video.id in index])

        def looking(done: int, total: int, note: str = "") -> None:
            self.status.advance(stage, done, total + len(known))  # the second half is the index

        def building(done: int, total: int, note: str = "") -> None:
            self.status.advance(stage, len(known) + done, len(known) + total)

        encoder, num_fitted = self._encoder_of(known, progress=looking)
        if not num_fitted:
            self.status.end(stage)
            return index
        fitted = self.build(index, encoder, known, progress=building)
        self.take_over(fitted, fitted_on=num_fitted)
        self.status.end(stage)
        return fitted

    def take_over(self, index: Index, **values: object) -> None:
        """Let an index be the current one."""
        self.workspace.change(current=index.path.name, former=None, **values)

    def build(
        self, index: Index, encoder: Encoder, catalog: Catalog, *, progress: Progress = silent
    ) -> Index:
        """An index of the same videos with another encoder."""
        following = self._new_index(encoder)
        following.add(
            catalog,
            num_workers=self.num_workers,
            device=self.device,
            library=self.library,
            progress=progress,
        )
        with contextlib.suppress(OSError):  # they are made again when they are wanted
            shutil.copytree(
                index.path / "previews",
                following.path / "previews",
                copy_function=os.link,
                dirs_exist_ok=True,
            )
        with contextlib.suppress(ConfigError):
            following.keep_chance()
        with contextlib.suppress(ConfigError):
            following.calibrate()
        return following

    def _propose(self, index: Index, catalog: Catalog, *, trims: bool) -> None:
        stage = self.status.begin("trim" if trims else "propose")
        try:
            report = curate(
                index,
                catalog=catalog,
                trims=trims,
                device=self.device,
                library=self.library,
                progress=self.status.progress(stage),
            )
        except ProvicoError as error:
            self.status.fail(stage, str(error))
            return
        found = Counter(video.kind for video in report.videos)
        kinds = ", ".join(counted_kind(kind, found[kind]) for kind in JUNK if found[kind])
        self.status.end(stage, "" if trims else kinds or "none found")

    def _find_duplicates(self, index: Index) -> None:
        stage = self.status.begin("duplicates")
        kept = KeptDuplicates(index.path)
        try:
            report = find_duplicates(index, library=self.library, progress=self.status.progress(stage))
        except ProvicoError as error:
            self.status.fail(stage, str(error))
            return
        kept.write(report)
        copies = counted(report.num_droppable, "copy", "copies")
        self.status.end(stage, f"{copies} in {counted(len(report.groups), 'group')}")

    # --- what was done already ------------------------------------------------------------------------------

    @property
    def _done_path(self) -> Path:
        return self.workspace.path / "done.txt"

    @staticmethod
    def _version_of(index: Index) -> str:
        return f"{index.path.name} {index.version}"

    @property
    def _done(self) -> str:
        """The version of the index for which all was done."""
        try:
            return self._done_path.read_text(encoding="utf-8")
        except (OSError, ValueError):
            return ""
