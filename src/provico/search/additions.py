"""Bringing an index up to date with a catalog: only what is new or has changed is computed.

Rows are committed some at a time, after their previews are on disk, and only then reported as done: whatever
kills the process, what was reported stays, and the same call goes on from there.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from provico.data.catalog import Catalog, Video
from provico.data.frame_index import FrameIndex
from provico.data.library import Library
from provico.errors import ChangedVideoError, VideoError, VideoIndexError
from provico.evaluation.embedding import EmbeddedBatch, check_finite, embed_batches
from provico.evaluation.embedding_file import columns_of
from provico.evaluation.embedding_parts import Signature
from provico.evaluation.retrieval import seeded_samples
from provico.features import VIDEOS_AT_ONCE, check_any
from provico.models.encoder import Encoder
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture
from provico.progress import Progress, silent
from provico.search.clouds import Spread, describe
from provico.search.folder import IndexFolder, IndexSettings
from provico.search.hits import AddReport
from provico.search.previews import make_previews, preview_name
from provico.search.store import BLOBS, TEXT, Rows, VideoStore

VIDEOS_A_COMMIT = 64
"""How many videos are committed together, if they come quickly."""
SECONDS_A_COMMIT = 20.0
"""After so long they are committed even if they are few."""
ROWS_AT_ONCE = 256
"""How many rows are rewritten together when only words of them have changed."""

_WORDS = ("path", "label", "group", "subset")  # what the data say, which can change without the file


@dataclass(frozen=True)
class _Wanted:
    """A video of the catalog, and the file as it was before anything was read."""

    video: Video
    file: Signature

    @property
    def words(self) -> Rows:
        """What the data say of it, as `columns_of` writes it down."""
        video = self.video
        path = str(video.path).encode(errors="backslashreplace").decode()
        return {"path": path, "label": video.label, "group": video.group, "subset": video.subset}


@dataclass(frozen=True)
class _Known:
    """A row of the index."""

    number: int
    file: Signature
    preview: str
    words: Rows

    @property
    def is_gone(self) -> bool:
        """Whether its file no longer exists; unknown for a name that could not be written down as text."""
        path = self.words["path"]
        return "\\udc" not in path and not Path(path).exists()


def add_videos(
    folder: IndexFolder,
    settings: IndexSettings,
    encoder: Encoder,
    catalog: Catalog,
    *,
    prune: bool = False,
    batch_size: int = VIDEOS_AT_ONCE,
    num_workers: int = 0,
    device: torch.device | str | None = None,
    library: Library | None = None,
    progress: Progress = silent,
) -> AddReport:
    """Add a catalog to an index; see `Index.add`."""
    library = library or Library()
    if parts := [video.id for video in catalog if video.span is not None]:
        raise VideoIndexError(
            f"An index holds whole files, but {len(parts)} of {len(catalog)} videos are only a part of one, "
            f"such as {parts[0]}. Give whole files; --span searches for a part of one."
        )
    with folder.writing():
        store = folder.open_store(settings)
        known = _known(store)
        folder.remove_orphans({row.preview for row in known.values()})
        wanted = [_Wanted(video, Signature.of(video.path)) for video in catalog]
        _check_same_files(wanted, known)
        todo = [one for one in wanted if not _is_unchanged(one, known)]
        relabelled = [
            one for one in wanted if _is_unchanged(one, known) and known[one.video.id].words != one.words
        ]
        _relabel(store, settings, relabelled, known)
        writer = _Writer(folder, store, settings, library, num_threads=max(1, num_workers))
        batches = embed_batches(
            encoder,
            dataclasses.replace(catalog, videos=tuple(one.video for one in todo)),
            num_clips=settings.embedding.num_clips,
            short_side=settings.embedding.short_side,
            batch_size=batch_size,
            num_workers=num_workers,
            device=device,
            max_broken_share=1.0,
            library=library,
        )
        writer.take_all(batches, todo, progress)
        # What the index says of a file that has changed and can no longer be read is no longer true.
        store.remove([name for name in writer.failed if name in known])
        names = {one.video.id for one in wanted}
        vanished = sorted(name for name, row in known.items() if name not in names and row.is_gone)
        if prune:
            store.remove(vanished)
        if todo or relabelled or (prune and vanished):
            store.tidy()
        num_videos = len(folder.open_store(settings).ids)
    check_any(len(wanted) - len(writer.failed), catalog, writer.failed)
    num_changed = sum(one.video.id in known and one.video.id not in writer.failed for one in todo)
    return AddReport(
        path=folder.path,
        num_videos=num_videos,
        num_added=len(todo) - num_changed - len(writer.failed),
        num_changed=num_changed,
        num_relabelled=len(relabelled),
        num_unchanged=len(wanted) - len(todo) - len(relabelled),
        vanished=tuple(vanished),
        num_removed=len(vanished) if prune else 0,
        failed=tuple(writer.failed.items()),
    )


def _known(store: VideoStore) -> dict[str, _Known]:
    rows = store.read(("num_bytes", "modified_ns", "preview", *_WORDS))
    files = map(Signature, rows["num_bytes"].tolist(), rows["modified_ns"].tolist())
    return {
        name: _Known(number, file, rows["preview"][number], {word: rows[word][number] for word in _WORDS})
        for number, (name, file) in enumerate(zip(store.ids, files, strict=True))
    }


def _is_unchanged(one: _Wanted, known: dict[str, _Known]) -> bool:
    return one.video.id in known and known[one.video.id].file == one.file


def _check_same_files(wanted: Sequence[_Wanted], known: dict[str, _Known]) -> None:
    """Ids are relative to the root of their catalog, so those of two folders can be the same."""
    for one in wanted:
        row = known.get(one.video.id)
        if row is None or row.words["path"] == one.words["path"]:
            continue
        paths = Path(row.words["path"]), one.video.path
        if all(path.exists() for path in paths) and not paths[0].samefile(paths[1]):
            raise VideoIndexError(
                f"{one.video.id} is in the index already as {row.words['path']}, which is another file than "
                f"{one.video.path}. Give a folder above both of them as DATA, or use one index for each."
            )


def _relabel(
    store: VideoStore, settings: IndexSettings, videos: Sequence[_Wanted], known: dict[str, _Known]
) -> None:
    """Write the words of some rows anew; what is computed of them stays."""
    names = [*TEXT, *settings.columns, *BLOBS]
    for first in range(0, len(videos), ROWS_AT_ONCE):
        part = videos[first : first + ROWS_AT_ONCE]
        rows = store.read(names, [known[one.video.id].number for one in part])
        store.write(rows | {word: [one.words[word] for one in part] for word in _WORDS})


@dataclass
class _Writer:
    """Videos that are embedded and wait to be committed."""

    folder: IndexFolder
    store: VideoStore
    settings: IndexSettings
    library: Library
    num_threads: int
    failed: dict[str, str] = field(default_factory=dict)
    _waiting: list[tuple[_Wanted, Rows]] = field(default_factory=list)

    def take_all(self, batches: Iterator[EmbeddedBatch], todo: Sequence[_Wanted], progress: Progress) -> None:
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

    def _take(self, batch: EmbeddedBatch, todo: Sequence[_Wanted]) -> None:
        done = [todo[number] for number in batch.numbers]
        check_finite([one.video.id for one in done], batch.clips)
        self.failed |= {todo[number].video.id: reason for number, reason in batch.failed}
        for place, one in enumerate(done):
            row = {
                "num_bytes": one.file.num_bytes,
                "modified_ns": one.file.modified_ns,
                "start_seconds": batch.clip_seconds[place, :, 0].numpy(),
                "end_seconds": batch.clip_seconds[place, :, 1].numpy(),
                "clip_mean": batch.clips.mean[place].numpy(),
                "clip_log_var": batch.clips.log_var[place].numpy(),
            }
            self._waiting.append((one, row))

    def _commit(self) -> int:
        """Previews first, then the rows that name them; how many videos are committed."""
        waiting, self._waiting = self._waiting, []
        with ThreadPoolExecutor(self.num_threads) as pool:
            looks = [pool.submit(self._look, one, self._recall(one)) for one, _ in waiting]
        good = []
        for (one, row), look in zip(waiting, looks, strict=True):
            try:
                good.append((one.video, row | look.result()))
            except VideoError as error:
                self.failed[one.video.id] = error.reason
            except OSError as error:
                raise VideoIndexError(
                    f"Previews cannot be written to {self.folder.previews} ({error}). What was committed is "
                    "kept: make room, then start again."
                ) from error
        if good:
            listed = ("preview", *BLOBS)
            rows: Rows = {name: [row[name] for _, row in good] for name in good[0][1]}
            rows |= {name: np.stack(values) for name, values in rows.items() if name not in listed}
            rows = columns_of([video for video, _ in good], rows)
            self.store.write(rows | sample_columns(rows, self.settings))
        return len(good)

    def _recall(self, one: _Wanted) -> FrameIndex | None:
        """The frames that the clips were taken from; asked for in the thread that the library belongs to."""
        try:
            known = self.library.recall(one.video.path)
        except VideoError:
            return None
        return known if isinstance(known, FrameIndex) else None

    def _look(self, one: _Wanted, index: FrameIndex | None) -> Rows:
        """What is seen of the file besides its clips."""
        if index is None:
            raise ChangedVideoError(one.video.path, "it has changed while it was read. Add it again.")
        preview = preview_name(one.video.id, *one.file)
        thumbnail = make_previews(one.video.path, self.folder.previews / preview, index=index)
        return {"preview": preview, "thumbnail": thumbnail, "duration_seconds": index.duration_seconds}


def sample_columns(rows: Rows, settings: IndexSettings) -> Rows:
    """What exact search must know of the samples of each video to start."""
    clips = Gaussian(torch.from_numpy(rows["clip_mean"]), torch.from_numpy(rows["clip_log_var"]))
    samples = seeded_samples(
        rows["id"], Mixture(clips), num_samples=settings.num_samples, seed=settings.seed, stream="gallery"
    )
    mean, spread = describe(samples)
    numbers = [getattr(spread, part.name) for part in dataclasses.fields(Spread)]
    return {"sample_mean": mean.numpy(), "sample_spread": torch.stack(numbers, dim=1).numpy()}
