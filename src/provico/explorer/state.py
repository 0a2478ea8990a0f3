"""What the routes share, and how they come by it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
from fastapi import Depends, Query, Request
from numpy.typing import NDArray

from provico.explorer.collection import Collection, IndexView
from provico.explorer.curation import Curation, Duplicates
from provico.explorer.grouping import Grouping
from provico.explorer.judging import Judging
from provico.explorer.lanes import Lane
from provico.explorer.problems import Problem
from provico.explorer.schemas import Card, ErrorBody
from provico.explorer.settings import MAX_CONNECTIONS, MEGABYTE, ExplorerSettings
from provico.explorer.uploads import Uploads
from provico.explorer.workers import CUT_WORKERS, EMBED_WORKERS, FRAME_WORKERS, PREVIEW_WORKERS, Workers
from provico.files import Signature
from provico.locations import current_index, home_of
from provico.search.follow import changing_names, names_state_of, unsettled
from provico.workspace.actions import ON_A_STORE, ActionLog
from provico.workspace.status import Status

ANSWERS_KEPT_BYTES = 64 * MEGABYTE
FRAMES_KEPT_BYTES = 64 * MEGABYTE


class Kept:
    """The bytes that were asked for last, up to a size; for any thread."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._num_bytes = max_bytes, 0
        self._values: OrderedDict[Hashable, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> bytes | None:
        """What is kept under a key."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: Hashable, value: bytes) -> None:
        """Keep a value; what was not asked for for the longest time has to go."""
        with self._lock:
            self._num_bytes += len(value) - len(self._values.pop(key, b""))
            self._values[key] = value
            while self._num_bytes > self._max_bytes:
                _, gone = self._values.popitem(last=False)
                self._num_bytes -= len(gone)


class Explorer:
    """All that lives as long as the server does."""

    def __init__(self, settings: ExplorerSettings) -> None:
        self.settings = settings
        workspace = settings.workspace
        self.collection = Collection(settings.index, settings.also, may_be_empty=workspace is not None)
        self.curation = Curation(settings.curation_folder)
        inside = settings.index / "index" if workspace else current_index(settings.index) or settings.index
        self.duplicates = Duplicates(inside)
        self.grouping = Grouping(self.curation, self.duplicates, settings.words)
        if workspace is None:
            self.actions = ActionLog(home_of(inside), root=None)
        else:
            self.actions = ActionLog(home_of(inside), root=workspace.root, why_not=ON_A_STORE)
        self.kept_first_view: tuple[str, str] | None = None
        """The first view that was kept last."""
        self._judging: Judging | None = None
        self._is_all_shown = False
        """Whether the index was looked at since the work ended."""
        self._present: tuple[object, NDArray[np.bool_]] | None = None
        self.workers = Workers(settings)
        self.answers, self.frames = Kept(ANSWERS_KEPT_BYTES), Kept(FRAMES_KEPT_BYTES)
        self.uploads = Uploads()
        # More threads than cores would only make each search slower.
        self.searches = Lane("searches", num_threads=os.cpu_count() or 1, max_waiting=MAX_CONNECTIONS)
        self.embeddings = Lane("embeddings", num_threads=EMBED_WORKERS, max_waiting=settings.max_uploads)
        self.pictures = Lane("pictures", num_threads=FRAME_WORKERS, max_waiting=MAX_CONNECTIONS // 2)
        self.cuts = Lane("parts to cut out", num_threads=CUT_WORKERS, max_waiting=8)
        self.previews = Lane("previews", num_threads=PREVIEW_WORKERS, max_waiting=MAX_CONNECTIONS // 2)

    @property
    def judging(self) -> Judging:
        """The judgements of the current index."""
        view = self.collection.view
        if self._judging is None or self._judging.index != view.index.path:
            self._judging = Judging(view)
        return self._judging

    def present(self, view: IndexView) -> NDArray[np.bool_]:
        """Which videos are not in the trash."""
        key = view.key, self.actions.signature
        if self._present is None or self._present[0] != key:
            gone = self.actions.gone()
            self._present = key, np.fromiter((name not in gone for name in view.ids), bool, len(view))
        return self._present[1]

    def work_status(self) -> Status:
        """What is done for the collection; what is said to be done is shown."""
        worker = self.settings.worker
        if worker is None:
            return Status()
        status = worker.status()
        if status.is_working:
            self._is_all_shown = False
        elif not self._is_all_shown:
            with suppress(Problem):
                self.collection.newest(now=True)
            self._is_all_shown = True
        return status

    @property
    def kept_state(self) -> tuple[object, object]:
        """Another one whenever duplicates or actions are others."""
        return self.duplicates.signature, self.actions.signature

    async def newest_view(self) -> IndexView:
        """The newest version of the index; it may have to be loaded, for which nobody else waits."""
        return await asyncio.get_running_loop().run_in_executor(None, self.collection.newest)

    def close(self) -> None:
        """End what was started: nothing more begins, and who waits for a child is told that it ends."""
        lanes = (self.searches, self.embeddings, self.pictures, self.previews, self.cuts)
        for lane in lanes:
            lane.refuse()
        self.workers.close()
        if self.settings.worker is not None:
            self.settings.worker.close()
        for lane in lanes:
            lane.close()
        self.uploads.close()

    @contextmanager
    def about(self, names: Iterable[str]) -> Iterator[IndexView]:
        """While something is said of videos, no video gets another name; the newest version.

        Of an opened folder, what is said is said of the file that was read, not of another in its place. What
        was said of a file that was moved goes with it as soon as that is known (`search/follow.py`).
        """
        workspace = self.settings.workspace
        if workspace is None:
            view = self.collection.view
            for name in names:
                view.number(name)
            yield view
            return
        with changing_names(self.collection.view.index.path, is_shared=True):
            view = self.collection.view
            if view.names_state != names_state_of(view.index.path):
                view = self.collection.newest(now=True)
            numbers = [view.number(name) for name in dict.fromkeys(names)]
            paths = view.index.loaded.read(("path",), numbers)["path"]
            changing = unsettled(view.index.path)
            for number, path in zip(numbers, paths, strict=True):
                if Signature.of(Path(path)) != view.files[number] or view.ids[number] in changing:
                    raise Problem(
                        409,
                        "moved",
                        f"{view.ids[number]} was moved or changed since it was read.",
                        "Try again once it has been read again: resume the work, or open with --watch.",
                    )
            yield view

    def cards(self, view: IndexView, indices: list[int]) -> list[Card]:
        """Videos in a list."""
        buckets, tags = self.curation.buckets(view), self.actions.read().tags
        cards = [view.card(index, buckets[index]) for index in indices]
        for card in cards:
            card.tags = tags.get(card.id, [])
        return cards


def _explorer(request: Request) -> Explorer:
    return cast(Explorer, request.app.state.explorer)


State = Annotated[Explorer, Depends(_explorer)]
VideoId = Annotated[str, Query(description="The id of a video of the index.", max_length=4096)]

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": description}
    for status, description in {
        401: "A token is needed.",
        403: "A wrong host name, a request from another site, or something that is not served here.",
        409: "No video has been read yet, it was changed elsewhere, or this collection cannot do that.",
        422: "The request is not valid.",
        500: "The server failed.",
        503: "The server is too busy, or the index can no longer be read.",
    }.items()
}
"""What every route may answer."""
BODY_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": description}
    for status, description in {
        400: "The body cannot be read at all.",
        408: "The body took too long to arrive.",
        413: "The body is too large.",
    }.items()
}
"""What every route that takes a body may answer besides."""
NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": ErrorBody, "description": "There is none."}}
DISK_FULL: dict[int | str, dict[str, Any]] = {
    507: {"model": ErrorBody, "description": "The disk is full; the message says what is kept."}
}
"""What a route may answer that writes something."""
