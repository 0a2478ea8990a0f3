"""From pixels to Gaussians: all embedding of videos goes through this module.

    files -> clips -> backbone -> features -> heads -> Gaussian of each clip -> mixture of each video

`embed` and `embed_batches` take a catalog, `embed_video` a file, `embed_clips` given clips of a file,
`embed_pixels` and `embed_features` pixels and features from elsewhere. Clips of a catalog are evenly spaced
centre crops, so nothing here is random. An unreadable video is never replaced: it is skipped, named, and
counted beside every metric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from provico.data.catalog import Catalog, Video
from provico.data.clips import Clip, overview_of
from provico.data.layouts.video_files import is_picture_name
from provico.data.library import Library
from provico.defaults import MAX_BROKEN_SHARE, TEST_CLIPS
from provico.embedding.clips import FileClips
from provico.embedding.embeddings import Embeddings, VideoEmbedding
from provico.embedding.features import check_any, feature_batches, network_features
from provico.errors import ConfigError
from provico.models.backbones.text_tower import words_dim, words_of
from provico.models.encoder import Encoder
from provico.models.inference import evaluating
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture
from provico.progress import Progress, silent

FEATURES_AT_ONCE = 2**14
"""Stored feature vectors per forward pass of the heads."""


def embed(
    encoder: Encoder,
    catalog: Catalog,
    *,
    num_clips: int = TEST_CLIPS,
    num_workers: int = 0,
    device: torch.device | str | None = None,
    short_side: int | None = None,
    max_broken_share: float = MAX_BROKEN_SHARE,
    library: Library | None = None,
    progress: Progress = silent,
) -> Embeddings:
    """The distributions of all videos of a catalog, in its order; options are those of `embed_batches`."""
    parts: list[Embeddings] = []
    num_done = 0
    for part in embed_batches(
        encoder,
        catalog,
        num_clips=num_clips,
        num_workers=num_workers,
        device=device,
        short_side=short_side,
        max_broken_share=max_broken_share,
        library=library,
    ):
        parts.append(part)
        num_done += len(part) + len(part.failed)
        progress(num_done, len(catalog))
    failed = tuple(pair for part in parts for pair in part.failed)
    check_any(len(catalog) - len(failed), catalog, dict(failed))
    row_of = {video.id: row for row, video in enumerate(catalog)}
    rows, order = torch.tensor([row_of[name] for part in parts for name in part.ids]).sort()
    clips = Gaussian.joined([part.videos.clips for part in parts])[order]
    seconds = torch.cat([part.clip_seconds for part in parts if part.clip_seconds is not None])[order]
    return Embeddings.of([catalog[row] for row in rows.tolist()], clips, failed=failed, clip_seconds=seconds)


def embed_batches(
    encoder: Encoder,
    catalog: Catalog,
    *,
    num_clips: int = TEST_CLIPS,
    num_workers: int = 0,
    device: torch.device | str | None = None,
    short_side: int | None = None,
    max_broken_share: float = MAX_BROKEN_SHARE,
    library: Library | None = None,
    timelines: bool = False,
) -> Iterator[Embeddings]:
    """The distributions of videos in batches, as they are computed, in bounded memory.

    They come in no particular order. Features of a frozen network are cached. The encoder is in evaluation
    mode until the last batch was consumed.

    num_clips: evenly spaced clips of each video; the paper takes ten.
    num_workers: processes that read ahead.
    device: where the network runs; its current device if not given.
    short_side: pixels of the shorter side of a frame before the centre crop; fits the encoder if not given.
    max_broken_share: raise an error if more than this share of the videos is unreadable.
    timelines: also embed a timeline of long videos, one clip per second.
    """
    with evaluating(encoder, device) as place:
        for found in feature_batches(
            encoder,
            catalog,
            num_clips=num_clips,
            short_side=short_side,
            num_workers=num_workers,
            max_broken_share=max_broken_share,
            library=library,
            timelines=timelines,
        ):
            groups = [video.group for video in found.catalog]
            features, times = found.features, found.clips or ()
            whole, dim = None, words_dim(encoder.backbone)
            words = None if dim is None else tuple(words_of(features, dim))
            if found.is_timeline:
                whole = tuple(
                    _timeline(encoder, of_clips, clips, place, group)
                    for of_clips, clips, group in zip(features, times, groups, strict=True)
                )
                shown = overview_of(features.shape[1], num_clips)
                features, times = features[:, shown], tuple(clips[shown] for clips in times)
            yield Embeddings.of(
                found.catalog.videos,
                _of_videos(encoder, features, place, groups),
                failed=found.failed,
                clip_seconds=_seconds(times, features.shape[1]),
                timelines=whole,
                words=words,
            )


def embed_video(
    encoder: Encoder,
    path: Path | str,
    *,
    span: tuple[float, float] | None = None,
    num_clips: int = TEST_CLIPS,
    short_side: int | None = None,
    device: torch.device | str | None = None,
    library: Library | None = None,
    timelines: bool = False,
) -> VideoEmbedding:
    """The distribution of one file, or of a span of it in seconds; an unreadable file is an error.

    Networks that see each frame by itself also take a single picture, with the usual motion features.

    Features of a frozen network are cached for whole files. Options are those of `embed_batches`; with
    `timelines`, the distribution of a long video is that of its timeline.
    """
    path = Path(path)
    is_picture = is_picture_name(path.name)
    if is_picture and not encoder.sees_pictures:
        raise ConfigError(
            f"{path.name} is a single picture, but the encoder is on {encoder.config.backbone}, which sees "
            f"what moves in {encoder.config.input.num_frames} frames. Give a video, or a part of one with "
            "--span."
        )
    catalog = Catalog(path.parent, "folder", (Video(path, path.name, span=span),))
    with evaluating(encoder, device) as place:
        batches = list(
            feature_batches(
                encoder,
                catalog,
                num_clips=num_clips,
                short_side=short_side,
                max_broken_share=1.0,
                remember=None if span is None else False,
                library=library,
                timelines=timelines,
            )
        )
        for error in (error for found in batches for error in found.broken.values()):
            raise error
        (found,) = (found for found in batches if len(found.catalog))
        assert found.clips is not None  # always known for videos, unlike features
        if found.is_timeline:
            return _timeline(encoder, found.features[0], found.clips[0], place)
        features = encoder.of_picture(found.features) if is_picture else found.features
        clips = _of_videos(encoder, features, place)
    return VideoEmbedding(found.clips[0], Mixture(clips[0]))


def embed_clips(
    encoder: Encoder,
    clips: FileClips,
    *,
    device: torch.device | str | None = None,
    look: Callable[[Tensor], None] = lambda pixels: None,
) -> VideoEmbedding:
    """The distribution of given clips of a file, each treated as a video, in bounded memory.

    look: called with the network's input pixels "clips time height width 3", a few clips at a time.
    """

    def pixels() -> Iterator[Tensor]:
        for part in clips.pixels():
            look(part)
            yield part

    return VideoEmbedding(clips.clips, Mixture(embed_pixels(encoder, pixels(), device=device)))


def embed_pixels(
    encoder: Encoder,
    pixels: Iterable[Tensor],
    *,
    num_clips: int = 1,
    device: torch.device | str | None = None,
) -> Gaussian:
    """p(z|c) "clips dim" of clips given as uint8 "clips time height width 3", a few at a time.

    num_clips: clips per video, in the order of videos. With one, each clip is treated as a video, and memory
        is bounded.
    """
    with evaluating(encoder, device) as place:
        found = network_features(encoder, pixels)
        parts = [
            _of_videos(encoder, features.view(-1, num_clips, features.shape[1]), place)
            for features in (found if num_clips == 1 else [torch.cat(list(found))])
        ]
    whole = Gaussian.joined(parts)
    return Gaussian(whole.mean.flatten(0, 1), whole.log_var.flatten(0, 1))


def embed_features(
    encoder: Encoder,
    features: Float[Tensor, "videos clips feature"],
    catalog: Catalog,
    *,
    failed: tuple[tuple[str, str], ...] = (),
) -> Embeddings:
    """The distributions of videos from stored features, one row for each video of the catalog.

    failed: the videos that have no features because they could not be read, with the reasons.
    """
    if features.ndim != 3 or len(features) != len(catalog) or features.numel() == 0:
        raise ConfigError(
            f"The features have shape {tuple(features.shape)} and the catalog has {len(catalog)} videos, but "
            "(videos, clips, feature) with one row for each video is needed. "
            "FeatureFile.of gives the rows for the ids of a catalog."
        )
    with evaluating(encoder) as place:
        clips = _of_videos(encoder, features, place, [video.group for video in catalog])
    return Embeddings.of(catalog.videos, clips, failed=failed)


@torch.no_grad()
def _of_videos(
    encoder: Encoder,
    features: Float[Tensor, "videos clips feature"],
    device: torch.device,
    recordings: Sequence[str | None] | None = None,
) -> Gaussian:
    """The heads' distributions of features, some videos at a time, in float32 on the CPU."""
    size = max(1, FEATURES_AT_ONCE // features.shape[1])
    parts = []
    for first in range(0, max(1, len(features)), size):
        names = None if recordings is None else recordings[first : first + size]
        clips = encoder.from_features(features[first : first + size].to(device), names).clips
        parts.append(Gaussian(clips.mean.float().cpu(), clips.log_var.float().cpu()))
    return Gaussian.joined(parts)


def _timeline(
    encoder: Encoder,
    features: Float[Tensor, "clips feature"],
    clips: tuple[Clip, ...],
    device: torch.device,
    recording: str | None = None,
) -> VideoEmbedding:
    """Each clip of a long video, treated as a video: clips minutes away are unrelated."""
    found = _of_videos(encoder, features.unsqueeze(1), device, [recording] * len(features))
    return VideoEmbedding(clips, Mixture(found[:, 0]))


def _seconds(videos: Sequence[Sequence[Clip]], num_clips: int) -> Float[Tensor, "videos clips 2"]:
    times = [[(clip.start_seconds, clip.end_seconds) for clip in clips] for clips in videos]
    return torch.tensor(times, dtype=torch.float64).view(len(videos), num_clips, 2)
