"""Proposals for the videos of an index, with a closer analysis of long ones."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from provico.config.data import CurationRules
from provico.curation.folder import CuratedVideo, CurationFolder
from provico.curation.junk import Junk, junk_of, look
from provico.curation.proposals import (
    BUCKETS,
    Clear,
    Doubt,
    clear_segments,
    propose,
    robust_deviations,
)
from provico.curation.seen import SeenVideos
from provico.data.catalog import Catalog, Video
from provico.data.library import Library
from provico.data.scan import BLACK_BRIGHTNESS, FROZEN_MOTION, ScannedVideo, scan
from provico.duplicates.kept import KeptDuplicates
from provico.duplicates.report import DuplicateReport
from provico.embedding.clips import timeline_clips
from provico.embedding.driver import embed_clips
from provico.errors import VideoError
from provico.models.encoder import Encoder
from provico.progress import Progress, silent
from provico.search.index import Index
from provico.search.store.video_store import Rows
from provico.wording import share_below


@dataclass(frozen=True, kw_only=True)
class CurationReport:
    """The result of a curation."""

    folder: Path
    videos: tuple[CuratedVideo, ...]
    """The videos in the order of the catalog, with existing decisions."""

    def count(self) -> dict[str, int]:
        """Number of videos per bucket."""
        found = Counter(video.bucket for video in self.videos)
        return {bucket: found[bucket] for bucket in BUCKETS}

    def summary(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "folder": str(self.folder),
            "buckets": self.count(),
            "videos": [dataclasses.asdict(video) for video in self.videos],
        }


def curate(
    index: Index,
    *,
    out: Path | None = None,
    catalog: Catalog | None = None,
    rules: CurationRules = CurationRules(),
    trims: bool = True,
    num_workers: int = 0,
    device: torch.device | str | None = None,
    library: Library | None = None,
    progress: Progress = silent,
) -> CurationReport:
    """Put each video of an index into a bucket, with a reason, and write the remaining collection.

    Existing decisions are kept. Videos are never modified. Results for unchanged files are reused.

    out: the folder of the curation; the one in the index, which the page shows, if not given.
    catalog: the videos, if unreadable ones may be missing in the index.
    trims: analyse long videos to find the parts worth keeping; slow.
    """
    library = library or Library()
    folder = CurationFolder.of(index.path) if out is None else CurationFolder(out)
    duplicates = KeptDuplicates(index.path).read()
    rows = index.loaded.store.read(("path", "label", "group", "subset", "uncertainty", "disagreement"))
    given = catalog is not None
    if catalog is None:
        catalog = _catalog_of(index, rows)
    scanned = scan(catalog, library=library, num_workers=num_workers or None).videos
    copies = {} if duplicates is None else _copies(duplicates)
    doubts = _doubts(index.ids, rows["uncertainty"], rows["disagreement"])
    row_of = index.loaded.row_of_id
    seen = SeenVideos(folder.path, encoder=index.settings.embedding.encoder_hash)
    closer = _Closer(index, rules, device, library)
    videos = [] if given else _unreadable_before(folder)
    for number, video in enumerate(scanned):
        row = row_of.get(video.id)
        junk, clear = None, None
        if video.status == "readable":
            junk = seen.junk(video, partial(_junk, video, library))
            is_long = video.duration_seconds >= rules.trim_from_seconds and video.start_seconds is None
            if is_long and row is not None and not video.flags and junk is None:
                clear = seen.clear(video, closer if trims else None)
        copy_of = copies.get(video.id)
        if duplicates is None and video.duplicate_of:
            copy_of = f"the same frames as {video.duplicate_of}"
        proposal = propose(video, doubts.get(video.id), clear, rules, junk=junk, copy_of=copy_of)
        videos.append(
            CuratedVideo.of(
                video,
                bucket=proposal.bucket,
                reason=proposal.reason,
                detail=proposal.detail,
                kind=proposal.kind,
                segments=proposal.segments,
                uncertainty=None if row is None else float(rows["uncertainty"][row]),
                disagreement=None if row is None else float(rows["disagreement"][row]),
            )
        )
        progress(number + 1, len(scanned))
    folder.write(videos)
    seen.write()
    return CurationReport(folder=folder.path, videos=folder.current())


def _unreadable_before(folder: CurationFolder) -> list[CuratedVideo]:
    """The existing files that are not in the index because they could not be read."""
    before = folder.proposed if folder.is_written else ()
    return [one for one in before if one.kind == "unreadable" and Path(one.path).exists()]


def _catalog_of(index: Index, rows: Rows) -> Catalog:
    columns = (rows[name] for name in ("path", "label", "group", "subset"))
    words = zip(index.ids, *columns, strict=True)
    videos = tuple(
        Video(Path(path), name, label, group, subset) for name, path, label, group, subset in words
    )
    classes = tuple(sorted({video.label for video in videos if video.label is not None}))
    return Catalog(index.path, "index", videos, classes)


def _copies(duplicates: DuplicateReport) -> dict[str, str]:
    """The reason to drop each of the worse copies, by id."""
    return {
        member.id: f"a copy of {group.keep.id} ({group.edits[member.id]}), which is kept since {group.reason}"
        for group in duplicates.groups
        for member in group.drop
    }


def _doubts(ids: Sequence[str], uncertainty: ArrayLike, disagreement: ArrayLike) -> dict[str, Doubt]:
    """The deviations of each video's uncertainty and disagreement from the median of the collection."""
    if not ids:
        return {}
    smallest = np.finfo(np.float32).tiny
    parts = uncertainty, disagreement
    deviations = (robust_deviations(np.log(np.maximum(np.asarray(part, float), smallest))) for part in parts)
    shares = (share_below(part, of=part) for part in parts)
    columns = (column.tolist() for column in (*deviations, *shares))
    return {name: Doubt(*row) for name, *row in zip(ids, *columns, strict=True)}


def _junk(video: ScannedVideo, library: Library) -> Junk | None:
    """The kind of junk that a file looks like; None if it is not junk or cannot be read now."""
    try:
        path = Path(video.path)
        looks = look(path, library.index(path))
    except VideoError:
        return None
    return junk_of(looks, duration_seconds=video.duration_seconds)


class _Closer:
    """Analyses long videos; the encoder is opened for the first one."""

    def __init__(
        self, index: Index, rules: CurationRules, device: torch.device | str | None, library: Library
    ) -> None:
        self._index, self._rules, self._device, self._library = index, rules, device, library

    @cached_property
    def _usual(self) -> NDArray[np.float64]:
        clips = self._index.loaded.store.read(("clip_log_var",))["clip_log_var"]
        usual: NDArray[np.float64] = np.asarray(clips, np.float64).mean(axis=2).ravel()
        return usual

    def __call__(self, video: ScannedVideo) -> Clear | None:
        """The clear parts of a video."""
        return _clear_parts(
            self._index.encoder,
            video,
            self._usual,
            self._rules,
            short_side=self._index.settings.embedding.short_side,
            device=self._device,
            library=self._library,
        )


def _clear_parts(
    encoder: Encoder,
    video: ScannedVideo,
    usual: NDArray[np.float64],
    rules: CurationRules,
    *,
    short_side: int | None,
    device: torch.device | str | None,
    library: Library,
) -> Clear | None:
    """The parts of a long video with at most the usual uncertainty; None if unknown."""
    faults: list[str] = []
    try:
        clips = timeline_clips(
            encoder.config,
            Path(video.path),
            step_seconds=rules.step_seconds,
            short_side=short_side,
            library=library,
        )
        found = embed_clips(
            encoder,
            clips,
            device=device,
            look=lambda pixels: faults.extend(map(_visible_fault, pixels.float())),
        )
    except VideoError:
        return None
    doubt = robust_deviations(found.gaussians.log_uncertainty.double().numpy(), of=usual)
    wrong = [
        fault or ("hard to make out" if is_unsure else "")
        for fault, is_unsure in zip(faults, doubt > rules.max_deviations, strict=True)
    ]
    segments = clear_segments(
        found.clips.seconds[:, 0].tolist(),
        found.clips.seconds[:, 1].tolist(),
        [not fault for fault in wrong],
        duration_seconds=video.duration_seconds,
        min_seconds=rules.min_segment_seconds,
    )
    return Clear(segments=segments, why=_in_words(wrong), detail=_counted(wrong))


def _visible_fault(pixels: torch.Tensor) -> str:
    """The visible fault of a clip "time height width 3"; empty if there is none."""
    if float(pixels.mean(dim=(1, 2, 3)).max()) < BLACK_BRIGHTNESS:
        return "black"
    if len(pixels) > 1 and float(pixels.mean(dim=3).diff(dim=0).abs().mean(dim=(1, 2)).max()) < FROZEN_MOTION:
        return "without motion"
    return ""


def _in_words(wrong: Sequence[str]) -> str:
    faults = [fault for fault, _ in Counter(fault for fault in wrong if fault).most_common()]
    return " or ".join(faults) if len(faults) < 3 else f"{', '.join(faults[:-1])} or {faults[-1]}"


def _counted(wrong: Sequence[str]) -> str:
    count = Counter(fault for fault in wrong if fault)
    return ", ".join(f"{number} of {len(wrong)} clips {fault}" for fault, number in count.most_common())
