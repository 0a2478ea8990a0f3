"""From embedded videos to rows: committed some at a time."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from provico.data.catalog import Video
from provico.data.frames.frame_index import FrameIndex
from provico.data.frames.thumbnail import make_thumbnail, preview_name
from provico.data.library import Library
from provico.embedding.embeddings import Embeddings, VideoEmbedding
from provico.embedding.file import columns_of, path_text
from provico.errors import ChangedVideoError, VideoError
from provico.files import Signature, content_hash
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture
from provico.progress import Progress
from provico.search.exact.clouds import Spread, describe
from provico.search.query import TIMELINE, gallery_samples
from provico.search.segments import SAMPLE_COLUMNS, segment_name, segment_seconds, segments_of
from provico.search.store.folder import IndexFolder, IndexSettings
from provico.search.store.video_store import BLOBS, TEXT, Rows, VideoStore

VIDEOS_A_COMMIT = 64
"""How many videos are committed together, if they come quickly."""
CLIPS_A_COMMIT = 2**14
"""Of so many clips of long videos they are committed at once: a day of clips takes hundreds of megabytes."""
SECONDS_A_COMMIT = 5.0
"""After so long they are committed even if they are few."""


@dataclass(frozen=True)
class Wanted:
    """A video of the catalog, and the file as it was before anything was read."""

    video: Video
    file: Signature

    @property
    def words(self) -> Rows:
        """What the data say of it, as `columns_of` writes it down."""
        video = self.video
        return {
            "path": path_text(video.path),
            "label": video.label,
            "group": video.group,
            "subset": video.subset,
        }


@dataclass
class RowWriter:
    """Videos that are embedded and wait to be committed."""

    folder: IndexFolder
    store: VideoStore
    settings: IndexSettings
    library: Library
    num_threads: int
    failed: dict[str, str] = field(default_factory=dict)
    _waiting: list[tuple[Wanted, Rows]] = field(default_factory=list)

    def take_all(self, batches: Iterator[Embeddings], todo: Mapping[str, Wanted], progress: Progress) -> None:
        """Commit what comes; reports only what is committed."""
        num_done = 0
        last = time.monotonic()
        try:
            for batch in batches:
                self._take(batch, todo)
                is_late = time.monotonic() - last > SECONDS_A_COMMIT
                num_clips = sum(len(row["timeline_mean"]) for _, row in self._waiting)
                if len(self._waiting) >= VIDEOS_A_COMMIT or num_clips >= CLIPS_A_COMMIT or is_late:
                    num_done += self._commit()
                    last = time.monotonic()
                    progress(num_done, len(todo))
        finally:
            num_done += self._commit()
        if todo:
            progress(len(todo), len(todo))

    def _take(self, batch: Embeddings, todo: Mapping[str, Wanted]) -> None:
        self.failed |= dict(batch.failed)
        clips, seconds = batch.videos.clips, batch.clip_seconds
        assert seconds is not None  # as long as videos are read, not features
        for row, name in enumerate(batch.ids):
            one = todo[name]
            values = {
                "num_bytes": one.file.num_bytes,
                "modified_ns": one.file.modified_ns,
                "start_seconds": seconds[row, :, 0].numpy(),
                "end_seconds": seconds[row, :, 1].numpy(),
                "clip_mean": clips.mean[row].numpy(),
                "clip_log_var": clips.log_var[row].numpy(),
                **({} if batch.words is None else {"clip_words": batch.words[row].half().numpy()}),
                **timeline_columns(None if batch.timelines is None else batch.timelines[row], clips.dim),
            }
            self._waiting.append((one, values))

    def _commit(self) -> int:
        """How many videos are committed."""
        waiting, self._waiting = self._waiting, []
        with ThreadPoolExecutor(self.num_threads) as pool:
            looks = [pool.submit(self._look, one, *self._recall(one)) for one, _ in waiting]
        good = []
        for (one, row), look in zip(waiting, looks, strict=True):
            try:
                good.append((one.video, row | look.result()))
            except VideoError as error:
                self.failed[one.video.id] = error.reason
        if good:
            ragged = (name for name, column in self.settings.columns.items() if column.is_ragged)
            listed = (*TEXT, *BLOBS, *ragged)
            rows: Rows = {name: [row[name] for _, row in good] for name in good[0][1]}
            rows |= {name: np.stack(values) for name, values in rows.items() if name not in listed}
            rows = columns_of([video for video, _ in good], rows)
            rows |= whole_columns(rows)
            with self.folder.committing():
                self.store.write(rows | sample_columns(rows, self.settings))
        return len(good)

    def _recall(self, one: Wanted) -> tuple[FrameIndex | None, bytes | None]:
        """The frames that the clips were taken from, and the thumbnail if it is known.

        They are asked for in the thread that the library belongs to.
        """
        try:
            known = self.library.recall(one.video.path)
            thumbnail = self.library.thumbnail(one.video.path)
        except VideoError:
            return None, None
        return (known if isinstance(known, FrameIndex) else None), thumbnail

    def _look(self, one: Wanted, index: FrameIndex | None, thumbnail: bytes | None) -> Rows:
        """What is seen of the file besides its clips."""
        if index is None:
            raise ChangedVideoError(one.video.path, "it has changed while it was read. Add it again.")
        thumbnail = thumbnail or make_thumbnail(one.video.path, index=index)
        content = content_hash(one.video.path)
        if Signature.of(one.video.path) != one.file:
            raise ChangedVideoError(one.video.path, "it has changed while it was read. Add it again.")
        return {
            "preview": preview_name(one.video.id, *one.file),
            "thumbnail": thumbnail,
            "content_hash": content,
            "duration_seconds": index.duration_seconds,
        }


def timeline_columns(timeline: VideoEmbedding | None, dim: int) -> Rows:
    """All clips of a long video; nothing for one that has no timeline."""
    if timeline is None:
        nothing = np.empty((0, dim), np.float32)
        return dict(zip(TIMELINE, (np.empty((0, 2)), nothing, nothing), strict=True))
    clips = timeline.gaussians
    values = (timeline.clip_seconds.numpy(), clips.mean.numpy(), clips.log_var.numpy())
    return dict(zip(TIMELINE, values, strict=True))


def whole_columns(rows: Rows) -> Rows:
    """What is said of whole videos, of long ones by all their clips."""
    names = ("uncertainty", "disagreement", "mean", "log_var")
    found = {name: rows[name].copy() for name in names}
    for row, mean in enumerate(rows["timeline_mean"]):
        if len(mean):
            video = Mixture(Gaussian.from_numpy(mean, rows["timeline_log_var"][row]))
            matched = video.moment_matched
            values = (video.uncertainty, video.disagreement, matched.mean, matched.log_var)
            for name, value in zip(names, values, strict=True):
                found[name][row] = value.numpy()
    return found


def sample_columns(rows: Rows, settings: IndexSettings) -> Rows:
    """What exact search must know of the samples of each video, and of each segment, to start."""
    dim = rows["mean"].shape[1]
    nothing: Rows = {name: [one] * len(rows["id"]) for name, one in timeline_columns(None, dim).items()}
    rows = nothing | rows
    samples = gallery_samples(rows["id"], Gaussian.from_numpy(rows["mean"], rows["log_var"]), settings)
    mean, spread = describe(samples)
    found: Rows = {"sample_mean": mean.numpy(), "sample_spread": _spread_columns(spread)}
    parts = [
        _segment_samples(name, seconds, means, log_vars, settings)
        for name, seconds, means, log_vars in zip(
            rows["id"], *(rows[column] for column in TIMELINE), strict=True
        )
    ]
    columns = zip(*parts, strict=True)
    return rows | found | dict(zip(SAMPLE_COLUMNS, map(list, columns), strict=True))


def _segment_samples(
    video_id: str,
    seconds: NDArray[np.float64],
    mean: NDArray[np.float32],
    log_var: NDArray[np.float32],
    settings: IndexSettings,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if not len(seconds):
        return np.empty((0, mean.shape[1])), np.empty((0, len(dataclasses.fields(Spread))))
    times = segment_seconds(seconds)
    middles = np.empty((len(times), mean.shape[1]))
    spreads = np.empty((len(times), len(dataclasses.fields(Spread))))
    for some, segments in segments_of(Gaussian.from_numpy(mean, log_var)):
        names = [segment_name(video_id, *span) for span in times[some].tolist()]
        middle, spread = describe(gallery_samples(names, segments, settings))
        middles[some], spreads[some] = middle.numpy(), _spread_columns(spread)
    return middles, spreads


def _spread_columns(spread: Spread) -> NDArray[np.float64]:
    columns = [getattr(spread, part.name) for part in dataclasses.fields(Spread)]
    found: NDArray[np.float64] = torch.stack(columns, dim=1).numpy()
    return found
