"""A catalog of videos to their distributions, as every protocol of evaluation needs them.

Each video is seen through evenly spaced clips and their centre crops, so nothing here is random. A video that
cannot be read is never replaced by another one: it is left out, named, and counted beside every metric.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from provico.data.catalog import Catalog, Video
from provico.data.clips import Clip
from provico.data.library import Library
from provico.defaults import MAX_BROKEN_SHARE, TEST_CLIPS
from provico.embedding.features import VIDEOS_AT_ONCE, check_any, feature_batches
from provico.errors import ConfigError, WeightsError
from provico.models.encoder import Encoder
from provico.models.inference import evaluating, in_parts
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture
from provico.progress import Progress, silent

FEATURES_AT_ONCE = 2**14
"""How many stored feature vectors go through the heads together."""

_NUM_NAMED = 3  # failed videos that a line names


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Videos as distributions, with what is known of each; in the order of their catalog, on the CPU."""

    ids: tuple[str, ...]
    videos: Mixture
    """float32 clip Gaussians "videos clips dim"."""
    labels: tuple[str | None, ...]
    """Class names, not numbers: those of two catalogs need not agree."""
    groups: tuple[str | None, ...]
    """Videos of one group were cut from one recording and are not independent; None where unknown."""
    failed: tuple[tuple[str, str], ...] = ()
    """Ids of the videos that could not be read, with the reasons. They are in none of the above."""
    clip_seconds: Float[Tensor, "videos clips 2"] | None = None
    """When each clip starts and ends; None where only features were given."""

    def __post_init__(self) -> None:
        clips = self.videos.clips
        if clips.mean.ndim != 3:
            raise ValueError(
                f"The clip means have shape {tuple(clips.mean.shape)}, not (videos, clips, dim)."
            )
        counts = {len(self.ids), len(clips.mean), len(self.labels), len(self.groups)}
        if len(counts) > 1:
            raise ValueError("There must be one id, distribution, label and group for each video.")
        if self.clip_seconds is not None and self.clip_seconds.shape != (*clips.mean.shape[:2], 2):
            raise ValueError("There must be a start and an end for each clip.")
        check_finite(self.ids, clips)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def failure_line(self) -> str:
        """What belongs beside every number that is computed from these: "1 of 90 videos failed: a.avi"."""
        line = f"{len(self.failed)} of {len(self) + len(self.failed)} videos failed"
        named = [name for name, _ in self.failed[:_NUM_NAMED]]
        more = ["..."] if len(self.failed) > _NUM_NAMED else []
        return f"{line}: {', '.join(named + more)}" if named else line


def check_finite(ids: Sequence[str], clips: Gaussian) -> None:
    """Refuse nan and infinity: they would sort before all else, and find a video that is nowhere."""
    finite = (clips.mean.isfinite() & clips.log_var.isfinite()).flatten(1).all(dim=1)
    if not bool(finite.all()):
        first = ids[int(finite.int().argmin())]
        raise WeightsError(
            f"The encoder gives numbers that are not finite for {int((~finite).sum())} of {len(ids)} "
            f"videos, the first of them {first}. Its training has diverged: use an earlier checkpoint."
        )


@dataclass(frozen=True, eq=False)
class EmbeddedBatch:
    """Some videos of a catalog as distributions, in no particular order."""

    numbers: tuple[int, ...]
    """Into the catalog."""
    clips: Gaussian
    """float32 "videos clips dim", on the CPU."""
    clip_seconds: Float[Tensor, "videos clips 2"]
    """When each clip starts and ends."""
    failed: tuple[tuple[int, str], ...] = ()
    """Numbers of the videos that could not be read, with the reasons."""


def embed(
    encoder: Encoder,
    catalog: Catalog,
    *,
    num_clips: int = TEST_CLIPS,
    batch_size: int = VIDEOS_AT_ONCE,
    num_workers: int = 0,
    device: torch.device | str | None = None,
    short_side: int | None = None,
    max_broken_share: float = MAX_BROKEN_SHARE,
    library: Library | None = None,
    progress: Progress = silent,
) -> Embeddings:
    """The distributions of all videos of a catalog, in its order; options are those of `embed_batches`."""
    batches: list[EmbeddedBatch] = []
    num_done = 0
    for batch in embed_batches(
        encoder,
        catalog,
        num_clips=num_clips,
        batch_size=batch_size,
        num_workers=num_workers,
        device=device,
        short_side=short_side,
        max_broken_share=max_broken_share,
        library=library,
    ):
        batches.append(batch)
        num_done += len(batch.numbers) + len(batch.failed)
        progress(num_done, len(catalog))
    numbers = torch.tensor([number for batch in batches for number in batch.numbers], dtype=torch.int64)
    failed = [(catalog[number].id, reason) for batch in batches for number, reason in batch.failed]
    check_any(len(numbers), catalog, dict(failed))
    numbers, order = numbers.sort()
    clips = Gaussian(
        torch.cat([batch.clips.mean for batch in batches])[order],
        torch.cat([batch.clips.log_var for batch in batches])[order],
    )
    seconds = torch.cat([batch.clip_seconds for batch in batches])[order]
    videos = [catalog[number] for number in numbers.tolist()]
    return _embeddings(videos, clips, tuple(failed), clip_seconds=seconds)


def embed_batches(
    encoder: Encoder,
    catalog: Catalog,
    *,
    num_clips: int = TEST_CLIPS,
    batch_size: int = VIDEOS_AT_ONCE,
    num_workers: int = 0,
    device: torch.device | str | None = None,
    short_side: int | None = None,
    max_broken_share: float = MAX_BROKEN_SHARE,
    library: Library | None = None,
) -> Iterator[EmbeddedBatch]:
    """The distributions of a catalog's videos as they are computed, in memory that does not grow.

    Features of a frozen network are remembered. The encoder is in evaluation mode until the last batch was
    taken.

    num_clips: evenly spaced clips of each video; the paper takes ten.
    batch_size: videos that one worker reads together; it changes no result.
    num_workers: processes that read ahead.
    device: where the network runs; where it is, if not given.
    short_side: pixels of the shorter side of a frame before the centre crop; fits the encoder if not given.
    max_broken_share: more unreadable videos than this share end it with an error.
    """
    with evaluating(encoder, device) as place:
        for found in feature_batches(
            encoder,
            catalog,
            num_clips=num_clips,
            short_side=short_side,
            batch_size=batch_size,
            num_workers=num_workers,
            max_broken_share=max_broken_share,
            library=library,
        ):
            clips = _of_features(encoder, found.features, place)
            yield EmbeddedBatch(found.numbers, clips, _seconds(found.clips, num_clips), found.broken)


def embed_features(
    encoder: Encoder,
    features: Float[Tensor, "videos clips feature"],
    catalog: Catalog,
    *,
    device: torch.device | str | None = None,
    failed: tuple[tuple[str, str], ...] = (),
) -> Embeddings:
    """The distributions of videos whose features are stored, one row for each video of the catalog.

    failed: the videos that have no features because they could not be read, with the reasons.
    """
    if features.ndim != 3 or len(features) != len(catalog) or features.numel() == 0:
        raise ConfigError(
            f"The features have shape {tuple(features.shape)} and the catalog has {len(catalog)} videos, but "
            "(videos, clips, feature) with one row for each video is needed. "
            "FeatureFile.of gives the rows for the ids of a catalog."
        )
    with evaluating(encoder, device) as place:
        clips = _of_features(encoder, features, place)
    return _embeddings(catalog.videos, clips, failed)


def _of_features(encoder: Encoder, features: Tensor, device: torch.device) -> Gaussian:
    """What the heads make of features, as float32 "videos clips dim"."""
    clips = in_parts(encoder.head, features.flatten(0, 1), size=FEATURES_AT_ONCE, device=device)
    shape = (*features.shape[:2], clips.dim)
    return Gaussian(clips.mean.float().view(shape), clips.log_var.float().view(shape))


def _seconds(videos: Sequence[Sequence[Clip]], num_clips: int) -> Float[Tensor, "videos clips 2"]:
    times = [[(clip.start_seconds, clip.end_seconds) for clip in clips] for clips in videos]
    return torch.tensor(times, dtype=torch.float64).view(len(videos), num_clips, 2)


def _embeddings(
    videos: Sequence[Video],
    clips: Gaussian,
    failed: tuple[tuple[str, str], ...],
    *,
    clip_seconds: Tensor | None = None,
) -> Embeddings:
    return Embeddings(
        ids=tuple(video.id for video in videos),
        videos=Mixture(clips),
        labels=tuple(video.label for video in videos),
        groups=tuple(video.group for video in videos),
        failed=failed,
        clip_seconds=clip_seconds,
    )
