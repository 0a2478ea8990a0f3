"""A catalog to a file of embeddings: what `provico embed` does.

The file appears when all is done, complete; until then what is computed lies in parts beside it. A run that
was killed is simply started again. Videos whose files have not changed are kept, from parts and from an
earlier file alike, so the same command also brings a file up to date with its videos.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from provico.data.catalog import Catalog, Video
from provico.data.library import Library
from provico.defaults import TEST_CLIPS
from provico.embedding.driver import embed_batches
from provico.embedding.embeddings import Embeddings
from provico.embedding.features import VIDEOS_AT_ONCE, check_any
from provico.embedding.file import (
    FORMATS,
    Columns,
    EmbeddingHeader,
    check_suffix,
    columns_of,
    iterate_columns,
    read_columns,
    read_header,
)
from provico.embedding.parts import STORED, EmbeddingParts, open_parts, writing
from provico.embedding.stored import check_features_fit, usable_clips
from provico.errors import EmbeddingFileError
from provico.files import Signature, replacing
from provico.models.encoder import Encoder
from provico.progress import Progress, silent

ROWS_AT_ONCE = 256
"""How many videos are written to the file together."""


@dataclass(frozen=True)
class EmbedReport:
    """What came of it."""

    path: Path
    encoder_hash: str
    num_videos: int
    """Rows of the file."""
    num_computed: int
    """How many of them were computed now; the rest was there before."""
    num_dropped: int
    """Videos of an earlier file that are no longer among the data."""
    failed: tuple[tuple[str, str], ...]
    """Ids of the videos that could not be read, with the reasons."""

    def summary(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self) | {"path": str(self.path), "failed": dict(self.failed)}


def embed_to_file(
    encoder: Encoder,
    catalog: Catalog,
    out: Path | str,
    *,
    num_clips: int = TEST_CLIPS,
    short_side: int | None = None,
    batch_size: int = VIDEOS_AT_ONCE,
    num_workers: int = 0,
    device: torch.device | str | None = None,
    library: Library | None = None,
    progress: Progress = silent,
) -> EmbedReport:
    """Write the distributions of a catalog's videos, or bring such a file up to date.

    A video that cannot be read is left out, counted and named in the file. Options: see `embed_batches`.
    """
    out = Path(out)
    check_suffix(out)
    check_features_fit(encoder, catalog)
    num_clips = usable_clips(catalog, num_clips)
    header = EmbeddingHeader.of(encoder, num_clips=num_clips, short_side=short_side)
    if out.exists():
        header.check_same(read_header(out), of=out)
    # Before anything is read: a file that changes meanwhile is then seen to have changed.
    wanted = [_Wanted(video, Signature.of(video.path)) for video in catalog]
    with open_parts(out, header) as parts:
        num_dropped = _take_over(out, parts, wanted)
        todo = {one.id: one for one in wanted if not one.is_in(parts)}
        batches = embed_batches(
            encoder,
            replace(catalog, videos=tuple(one.video for one in todo.values())),
            num_clips=num_clips,
            short_side=short_side,
            batch_size=batch_size,
            num_workers=num_workers,
            device=device,
            max_broken_share=1.0,
            library=library,
        )
        failed = _compute(batches, todo, parts, progress)
        num_ready = len(wanted) - len(todo)
        check_any(num_ready + len(todo) - len(failed), catalog, dict(failed))
        header = replace(header, failed=failed)
        num_videos = _write(out, header, parts, [one for one in wanted if one.is_in(parts)])
    return EmbedReport(out, header.encoder_hash, num_videos, num_videos - num_ready, num_dropped, failed)


@dataclass(frozen=True)
class _Wanted:
    """A video that the file is to have a row for."""

    video: Video
    file: Signature

    @property
    def id(self) -> str:
        return self.video.id

    def is_in(self, parts: EmbeddingParts) -> bool:
        return parts.signature(self.id) == self.file


def _take_over(out: Path, parts: EmbeddingParts, wanted: Sequence[_Wanted]) -> int:
    """Take the rows of an earlier file that are still true; how many of its videos are no longer wanted."""
    if not out.exists():
        return 0
    files = {one.id: one.file for one in wanted}
    names = read_columns(out, ("id",))["id"]
    num_dropped = sum(name not in files for name in names)
    if num_dropped == len(names):
        raise EmbeddingFileError(
            f"{out} holds {len(names)} other videos, not one of them among these {len(files)}, and would be "
            "overwritten. Choose another --out, or remove it first."
        )
    for rows in iterate_columns(out, STORED):
        found = map(Signature, rows["num_bytes"].tolist(), rows["modified_ns"].tolist())
        kept = [
            row
            for row, (name, file) in enumerate(zip(rows["id"], found, strict=True))
            if files.get(name) == file != parts.signature(name)
        ]
        parts.add({column: np.asarray(values)[kept] for column, values in rows.items()})
    parts.write()
    return num_dropped


def _compute(
    batches: Iterator[Embeddings], todo: Mapping[str, _Wanted], parts: EmbeddingParts, progress: Progress
) -> tuple[tuple[str, str], ...]:
    """Add what comes to the parts; the videos that could not be read, with the reasons."""
    failed: list[tuple[str, str]] = []
    num_done = 0
    try:
        for batch in batches:
            files = [todo[name].file for name in batch.ids]
            clips, seconds = batch.videos.clips, batch.clip_seconds
            assert seconds is not None  # as long as videos are read, not features
            parts.add(
                {
                    "id": np.array(batch.ids, np.str_),
                    "num_bytes": np.array([file.num_bytes for file in files], np.int64),
                    "modified_ns": np.array([file.modified_ns for file in files], np.int64),
                    "start_seconds": seconds[..., 0].numpy(),
                    "end_seconds": seconds[..., 1].numpy(),
                    "clip_mean": clips.mean.numpy(),
                    "clip_log_var": clips.log_var.numpy(),
                }
            )
            failed += batch.failed
            num_done += len(batch) + len(batch.failed)
            progress(num_done, len(todo))
    finally:
        parts.write()
    return tuple(failed)


def _write(out: Path, header: EmbeddingHeader, parts: EmbeddingParts, videos: Sequence[_Wanted]) -> int:
    """Put the file together from the parts, which are no longer needed then; how many rows it has."""

    def rows() -> Iterator[Columns]:
        for first in range(0, len(videos), ROWS_AT_ONCE):
            chunk = videos[first : first + ROWS_AT_ONCE]
            yield columns_of([one.video for one in chunk], parts.rows([one.id for one in chunk]))

    with writing(out), replacing(out, scratch=parts.folder) as partial:
        FORMATS[out.suffix].write(partial, header.to_json(), rows(), len(videos), parts.folder)
    parts.remove()
    return len(videos)
