"""One version of the index, as the pages want it, with the axes of its maps, and the step to the next.

A view never changes: what a request has begun with one version it ends with that version. When the index
grows, a new view takes its place between two requests.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np
from numpy.typing import NDArray

from provico.errors import VideoIndexError, did_you_mean
from provico.explorer.problems import Problem
from provico.explorer.schemas import Card
from provico.files import Signature
from provico.locations import current_index
from provico.search.answer import Unreached
from provico.search.index import Index
from provico.search.parts import PartedIndex, open_indexes
from provico.search.store.video_store import Rows
from provico.wording import share_below

Array = NDArray[np.float64]
log = logging.getLogger("provico.explorer")

NUM_AXES = 3


@dataclass(frozen=True)
class Axes:
    """The directions in which points differ most, about their mean."""

    mean: Array
    directions: Array
    """Rows of length one, at right angles: "axes dim"."""
    explained: Array
    """The share of the variance along each."""

    def project(self, points: Array) -> Array:
        """Coordinates of points "*points dim" on the axes."""
        return (points - self.mean) @ self.directions.T

    def spread(self, variances: Array) -> Array:
        """Standard deviation along each axis of diagonal Gaussians "*points dim"."""
        return np.sqrt(variances @ np.square(self.directions).T)


def principal_axes(points: Array, num_axes: int = NUM_AXES) -> Axes:
    """Principal components of points "points dim"; axes in which nothing differs are zero.

    A direction and its opposite are equally good: the one whose largest entry is positive is taken, so that a
    map does not flip between two versions of an index.
    """
    num_points, dim = points.shape
    mean = points.mean(axis=0) if num_points else np.zeros(dim)
    centred = points - mean
    covariance = centred.T @ centred / max(1, num_points)
    values, vectors = np.linalg.eigh(covariance)
    order = np.argsort(-values, kind="stable")[:num_axes]
    values, directions = np.maximum(values[order], 0.0), vectors[:, order].T
    largest = np.abs(directions).argmax(axis=1)
    directions = directions * np.sign(directions[np.arange(len(directions)), largest])[:, None]
    total = float(np.trace(covariance))
    # Below the rounding of the decomposition there is no direction, only noise.
    directions[values <= 1e-12 * total] = 0.0
    missing = num_axes - len(directions)
    return Axes(
        mean,
        np.pad(directions, ((0, missing), (0, 0))),
        np.pad(values / total if total > 0 else np.zeros_like(values), (0, missing)),
    )


def short_name(part: Unreached) -> str:
    """What a page says of a part of a collection: no path, no user."""
    return urlsplit(part.name).hostname or PurePath(part.name).name


SECONDS_BETWEEN_LOOKS = 1.0
"""How often at most the index is asked whether it has changed."""
LOADING_SHARE = 10.0
"""At most one part in so many of the time goes into loading newer versions."""
UNUSUAL_NEIGHBOUR = 3
"""A video is unusual if even the so many nearest others are far away."""
NUM_COMPARED = 5000
"""With so many others, at most, videos are compared to see which are unusual."""
MAX_POINTS = 20_000
"""How many videos a map shows; of more, every second, third, ... is taken."""
NUMBERS = ("duration_seconds", "uncertainty", "disagreement")
"""What videos can be sorted by, besides their ids."""


class IndexView:
    """The videos of one version, numbered in the order of their ids."""

    def __init__(self, index: Index | PartedIndex, calibration_key: Signature) -> None:
        self.index, self.calibration_key = index, calibration_key
        loaded = index.loaded
        self.ids = loaded.ids
        self.words = loaded.words
        rows = loaded.store.read((*NUMBERS, "num_bytes", "modified_ns"))
        self.numbers: dict[str, NDArray[np.float64]] = {name: rows[name].astype(float) for name in NUMBERS}
        self.files = [*map(Signature, rows["num_bytes"].tolist(), rows["modified_ns"].tolist())]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def version(self) -> int:
        """Of the index."""
        return self.index.version

    @property
    def key(self) -> tuple[str, int]:
        """Another one for another version, also if another index has taken the place of the first."""
        return self.index.path.name, self.index.version

    @cached_property
    def percentiles(self) -> NDArray[np.float64]:
        """Of each video, the share of the collection of which the encoder is surer."""
        return share_below(self.numbers["uncertainty"], of=self._ordered)

    def percentile(self, uncertainty: float) -> float:
        """The share of the collection of which the encoder is surer than this."""
        return float(share_below(uncertainty, of=self._ordered))

    @cached_property
    def _ordered(self) -> NDArray[np.float64]:
        return np.sort(self.numbers["uncertainty"])

    @cached_property
    def distances(self) -> NDArray[np.float64]:
        """How far each video is from the nearest others: what is far from all is unusual."""
        means = self.index.loaded.videos.mean.numpy().astype(np.float32)
        others = means[:: max(1, -(-len(means) // NUM_COMPARED))]
        squares = np.square(others).sum(axis=1)
        found = np.zeros(len(means))
        place = min(UNUSUAL_NEIGHBOUR, len(others) - 1)  # the nearest of all is the video itself
        for first in range(0, len(means) if place > 0 else 0, 1024):
            part = means[first : first + 1024]
            squared = np.square(part).sum(axis=1)[:, None] + squares - 2 * part @ others.T
            found[first : first + 1024] = np.partition(squared, place, axis=1)[:, place]
        return np.sqrt(np.maximum(found, 0.0))

    @property
    def unreached(self) -> tuple[str, ...]:
        """The names, without places, of those parts of the collection that cannot be asked."""
        return () if isinstance(self.index, Index) else tuple(short_name(one) for one in self.index.unreached)

    @property
    def calibration(self) -> dict[str, Any] | None:
        """What calibrated probabilities rest on; None if there are none."""
        calibration = self.index.calibration
        return None if calibration is None else calibration.summary()

    def number(self, video_id: str) -> int:
        """The number of a video; a problem that names the nearest if there is none."""
        number = self.index.loaded.row_of_id.get(video_id)
        if number is None:
            is_quick = len(video_id) < 200 and len(self) < MAX_POINTS
            listed = "GET /api/videos lists all of them."
            raise Problem(
                404,
                "no_video",
                f"The collection has no video {video_id[:200]!r}.",
                did_you_mean(video_id, self.ids if is_quick else (), otherwise=listed),
            )
        return number

    def read(self, number: int, *names: str) -> Rows:
        """Columns of one video."""
        try:
            rows = self.index.loaded.store.read(names, [number])
        except VideoIndexError as error:
            log.error("A row cannot be read: %s", error)
            hint = "The server's log says what is wrong; GET /api/stats says what of the index is left."
            raise Problem(503, "index_unreadable", "The index cannot be read any more.", hint) from error
        return {name: values[0] for name, values in rows.items()}

    def card(self, number: int, bucket: str | None) -> Card:
        """A video in a list."""
        name = self.ids[number]
        # Another file under the same name must not be shown with the picture of the one before.
        query = urlencode({"id": name, "v": f"{self.files[number].modified_ns:x}"})
        return Card(
            id=name,
            label=self.words["label"][number],
            group=self.words["group"][number],
            subset=self.words["subset"][number],
            duration_seconds=float(self.numbers["duration_seconds"][number]),
            uncertainty=float(self.numbers["uncertainty"][number]),
            uncertainty_percentile=float(self.percentiles[number]),
            disagreement=float(self.numbers["disagreement"][number]),
            bucket=bucket,
            thumbnail=f"/media/thumbnail?{query}",
            preview=f"/media/preview?{query}",
        )

    @cached_property
    def roots(self) -> frozenset[Path]:
        """The folders that were indexed: an id is the path of a video below one of them.

        A video outside of all folders has its whole path for an id, and stands for no folder.
        """
        paths = self.index.loaded.store.read(("path",))["path"]
        endings = zip(paths, (f"/{name}" for name in self.ids), strict=True)
        return frozenset(Path(path.removesuffix(name)) for path, name in endings if path.endswith(name)) - {
            Path("/"),
            Path(),
        }

    @cached_property
    def folded(self) -> list[str]:
        """What a search for text looks into."""
        labels = self.words["label"]
        return [f"{name} {labels[number] or ''}".casefold() for number, name in enumerate(self.ids)]

    def counts(self, word: str) -> list[tuple[str, int]]:
        """How many videos have each label, group or subset."""
        return sorted(Counter(one for one in self.words[word] if one is not None).items())

    def order(self, column: str, *, descending: bool) -> NDArray[np.int64]:
        """All numbers, sorted by a column; of equal ones the id that comes first is first."""
        if column == "id":
            numbers = np.arange(len(self))
            return numbers[::-1] if descending else numbers
        values = self.numbers[column]
        return np.argsort(-values if descending else values, kind="stable")

    @cached_property
    def shown(self) -> NDArray[np.int64]:
        """The videos that a map shows."""
        step = max(1, -(-len(self) // MAX_POINTS))
        return np.arange(0, len(self), step)

    @cached_property
    def axes(self) -> Axes:
        """The axes of the map."""
        return principal_axes(self.index.loaded.videos.mean.numpy()[self.shown].astype(float))


class Collection:
    """The newest view of an index that may be changing, of the current index of a collection, or of several.

    Args:
        path: an index, or the folder of a collection.
        also: other indexes, which are shown as one with it.
        may_be_empty: whether there may be no index yet, since somebody is about to make it.
    """

    def __init__(self, path: Path, also: Sequence[str] = (), *, may_be_empty: bool = False) -> None:
        self._path = path
        self._names: tuple[Path | str, ...] = (path, *also)
        self._lock = threading.Lock()
        self._view: IndexView | None = None
        if not may_be_empty or current_index(path) is not None:
            self._view = self._opened()
        self._look_at = 0.0
        self._trouble: str | None = None

    @property
    def view(self) -> IndexView:
        """The newest version; a problem if nothing was read yet."""
        return self.newest()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was read yet."""
        with suppress(Problem):
            self.newest()
        return self._view is None

    def newest(self) -> IndexView:
        """The newest version; seldom asks the disk whether there is a newer one."""
        if time.monotonic() > self._look_at and self._lock.acquire(blocking=False):
            began = time.monotonic()
            try:
                self._refresh()
            finally:
                # A large index that grows would be loaded again and again.
                now = time.monotonic()
                self._look_at = now + max(SECONDS_BETWEEN_LOOKS, LOADING_SHARE * (now - began))
                self._lock.release()
        if self._view is None:
            raise Problem(409, "not_yet", "No video has been read yet.", "They appear here as they are read.")
        return self._view

    @property
    def trouble(self) -> str | None:
        """Why what is shown is not what the index says now, for people; None if it is."""
        lost = () if self._view is None else self._view.unreached
        if lost and self._trouble is None:
            return f"Parts of the collection cannot be reached: {', '.join(lost)}. Trying again."
        return self._trouble

    def _opened(self) -> IndexView:
        index = open_indexes(self._names)
        return IndexView(index, Signature.of(index.path / "calibration.json"))

    def _refresh(self) -> None:
        current = current_index(self._path)
        if current is None and len(self._names) == 1:
            if self._view is None:
                return
            self._trouble = (
                "The index was removed or moved. The page shows what was loaded before. Restore it, or "
                "start `provico serve` with another one."
            )
            return
        try:
            if self._view is None or not self._is_newest(self._view, current):
                self._view = self._opened()
            self._trouble = None
        except VideoIndexError as error:
            log.error("The index cannot be read again: %s", error)
            self._trouble = (
                "The index, or its calibration, was changed and cannot be read. The page shows what was "
                "loaded before. The server's log has the cause."
            )

    @staticmethod
    def _is_newest(view: IndexView, current: Path | None) -> bool:
        if current is None or isinstance(view.index, PartedIndex):
            return view.index.is_newest
        is_same = view.index.path == current
        calibration = Signature.of(current / "calibration.json")
        return is_same and view.calibration_key == calibration and view.index.is_newest
