"""A collection of videos to what should become of each: scan, embed, look closer at long ones, propose."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from provico.config.data import CurationRules
from provico.curation.folder import CuratedVideo, CurationFolder
from provico.curation.proposals import (
    BUCKETS,
    Clear,
    Doubt,
    clear_segments,
    propose,
    robust_deviations,
)
from provico.data.catalog import Catalog
from provico.data.library import Library
from provico.data.scan import BLACK_BRIGHTNESS, FROZEN_MOTION, ScannedVideo, scan
from provico.defaults import TEST_CLIPS
from provico.embedding.clips import timeline_clips
from provico.embedding.driver import embed, embed_clips
from provico.embedding.embeddings import Embeddings
from provico.errors import VideoError
from provico.models.encoder import Encoder
from provico.progress import Progress, silent


@dataclass(frozen=True, kw_only=True)
class CurationReport:
    """What came of curating a collection."""

    folder: Path
    videos: tuple[CuratedVideo, ...]
    """In the order of the catalog, with the decisions that were there already."""

    def count(self) -> dict[str, int]:
        """How many videos each bucket has."""
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
    catalog: Catalog,
    encoder: Encoder,
    *,
    out: Path,
    rules: CurationRules = CurationRules(),
    num_clips: int = TEST_CLIPS,
    short_side: int | None = None,
    num_workers: int = 0,
    device: torch.device | str | None = None,
    library: Library | None = None,
    progress: Progress = silent,
) -> CurationReport:
    """Put each video into a bucket, with a reason, and write the collection that is left.

    Decisions that were made in `out` before hold. Nothing but `out` is written; videos are never touched.

    Options are those of `embed`.
    """
    library = library or Library()
    scanned = scan(catalog, library=library, num_workers=num_workers or None, progress=progress).videos
    readable = [number for number, video in enumerate(scanned) if video.status == "readable"]
    found = embed(
        encoder,
        catalog.subset(readable),
        num_clips=num_clips,
        short_side=short_side,
        num_workers=num_workers,
        device=device,
        max_broken_share=1.0,
        library=library,
        progress=progress,
    )
    doubts = _doubts(found)
    statistics = {
        name: dict(zip(found.ids, getattr(found.videos, name).tolist(), strict=True))
        for name in ("uncertainty", "disagreement")
    }
    usual = found.videos.clips.log_uncertainty.double().numpy().ravel()
    videos = []
    for number, video in enumerate(scanned):
        clear = None
        is_long = video.duration_seconds >= rules.trim_from_seconds
        if is_long and video.id in doubts and not video.flags and video.start_seconds is None:
            clear = _clear_parts(
                encoder, video, usual, rules, short_side=short_side, device=device, library=library
            )
        proposal = propose(video, doubts.get(video.id), clear, rules)
        videos.append(
            CuratedVideo.of(
                video,
                bucket=proposal.bucket,
                reason=proposal.reason,
                segments=proposal.segments,
                **{name: values.get(video.id) for name, values in statistics.items()},
            )
        )
        progress(number + 1, len(scanned))
    folder = CurationFolder(out)
    folder.write(videos)
    return CurationReport(folder=out, videos=folder.current())


def _doubts(found: Embeddings) -> dict[str, Doubt]:
    """How far the uncertainty and the disagreement of each video lie above the median of the collection."""
    videos = found.videos
    uncertainty, disagreement = (
        robust_deviations(part.double().clamp_min(torch.finfo(torch.float32).tiny).log().numpy())
        for part in (videos.uncertainty, videos.disagreement)
    )
    both = zip(found.ids, uncertainty.tolist(), disagreement.tolist(), strict=True)
    return {name: Doubt(uncertainty=first, disagreement=second) for name, first, second in both}


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
    """What of a long video shows something that the encoder is as sure of as usual; None if unknown."""
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
        fault or ("uncertain" if is_unsure else "")
        for fault, is_unsure in zip(faults, doubt > rules.max_deviations, strict=True)
    ]
    segments = clear_segments(
        [clip.start_seconds for clip in found.clips],
        [clip.end_seconds for clip in found.clips],
        [not fault for fault in wrong],
        duration_seconds=video.duration_seconds,
        min_seconds=rules.min_segment_seconds,
    )
    return Clear(segments=segments, why=_said(wrong))


def _visible_fault(pixels: torch.Tensor) -> str:
    """What is wrong with the picture of a clip "time height width 3", or nothing."""
    if float(pixels.mean(dim=(1, 2, 3)).max()) < BLACK_BRIGHTNESS:
        return "black"
    if len(pixels) > 1 and float(pixels.mean(dim=3).diff(dim=0).abs().mean(dim=(1, 2)).max()) < FROZEN_MOTION:
        return "without motion"
    return ""


def _said(wrong: Sequence[str]) -> str:
    count = Counter(fault for fault in wrong if fault)
    return ", ".join(f"{number} of {len(wrong)} clips {fault}" for fault, number in count.most_common())
