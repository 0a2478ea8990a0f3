"""From embedded videos to rows: committed some at a time."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch

from provico.data.catalog import Video
from provico.data.frames.frame_index import FrameIndex
from provico.data.frames.thumbnail import make_thumbnail
from provico.data.library import Library
from provico.embedding.embeddings import Embeddings
from provico.embedding.file import columns_of, path_text
from provico.errors import ChangedVideoError, VideoError
from provico.files import Signature, content_hash
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture
from provico.probability.seeded_samples import seeded_samples
from provico.progress import Progress
from provico.search.exact.clouds import Spread, describe
from provico.search.store.folder import IndexFolder, IndexSettings
from provico.search.store.previews import preview_name
from provico.search.store.video_store import BLOBS, TEXT, Rows, VideoStore

VIDEOS_A_COMMIT = 64
"""How many videos are committed together, if they come quickly."""
SECONDS_A_COMMIT = 20.0
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
                if len(self._waiting) >= VIDEOS_A_COMMIT or is_late:
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
            listed = (*TEXT, *BLOBS)
            rows: Rows = {name: [row[name] for _, row in good] for name in good[0][1]}
            rows |= {name: np.stack(values) for name, values in rows.items() if name not in listed}
            rows = columns_of([video for video, _ in good], rows)
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


def sample_columns(rows: Rows, settings: IndexSettings) -> Rows:
    """What exact search must know of the samples of each video to start."""
    clips = Gaussian(torch.from_numpy(rows["clip_mean"]), torch.from_numpy(rows["clip_log_var"]))
    samples = seeded_samples(
        rows["id"], Mixture(clips), num_samples=settings.num_samples, seed=settings.seed, stream="gallery"
    )
    mean, spread = describe(samples)
    columns = [getattr(spread, part.name) for part in dataclasses.fields(Spread)]
    return {"sample_mean": mean.numpy(), "sample_spread": torch.stack(columns, dim=1).numpy()}
