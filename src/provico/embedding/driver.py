"""From pixels to Gaussians: all embedding of videos goes through this module.

    files -> clips -> backbone -> features -> heads -> Gaussian of each clip -> mixture of each video

`embed` and `embed_batches` take a catalog, `embed_video` a file, `embed_clips` given clips of a file,
`embed_pixels` and `embed_features` pixels and features from elsewhere. Clips of a catalog are evenly spaced
centre crops, so nothing here is random. An unreadable video is never replaced: it is skipped, named, and
counted beside every metric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from provico.data.catalog import Catalog, Video
from provico.data.clips import Clips, overview_of
from provico.data.layouts.video_files import is_picture_name
from provico.data.library import Library
from provico.data.loader import check_share
from provico.defaults import MAX_BROKEN_SHARE, TEST_CLIPS
from provico.embedding.clips import FileClips, clip_settings
from provico.embedding.embeddings import Embeddings, VideoEmbedding
from provico.embedding.features import check_any, feature_batches, is_cached, network_features, reasons
from provico.embedding.long_videos import LongVideos
from provico.errors import ConfigError, VideoError
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
    library = library or Library()
    long: list[Video] | None = [] if timelines else None
    broken: dict[str, VideoError] = {}
    dim = words_dim(encoder.backbone)
    with evaluating(encoder, device) as place:
        for found in feature_batches(
            encoder,
            catalog,
            num_clips=num_clips,
            short_side=short_side,
            num_workers=num_workers,
            max_broken_share=max_broken_share,
            library=library,
            long=long,
        ):
            broken |= found.broken
            groups = [video.group for video in found.catalog]
            yield Embeddings.of(
                found.catalog.videos,
                _of_videos(encoder, found.features, place, groups),
                failed=found.failed,
                clip_seconds=_seconds(found.clips or (), num_clips),
                words=None if dim is None else tuple(words_of(found.features, dim)),
            )
        reader = _long_videos(encoder, num_clips, short_side, is_cached(encoder), library)
        for video in long or ():
            try:
                timeline = _timeline(reader, video, place)
            except VideoError as error:
                broken[video.id] = error
                nothing = torch.empty(0, num_clips, encoder.config.dim)
                failed = tuple(reasons({video.id: error}).items())
                times = _seconds((), num_clips)
                yield Embeddings.of((), Gaussian(nothing, nothing), failed=failed, clip_seconds=times)
            else:
                yield Embeddings.of(
                    [video],
                    _of_videos(encoder, timeline.shown[None], place, [video.group]),
                    clip_seconds=timeline.shown_seconds[None],
                    timelines=(timeline.whole,),
                    words=None if timeline.words is None else (timeline.words,),
                )
        check_share([*broken.values()], len(catalog), max_broken_share)


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
    path, library = Path(path), library or Library()
    is_picture = is_picture_name(path.name)
    if is_picture and not encoder.sees_pictures:
        raise ConfigError(
            f"{path.name} is a single picture, but the encoder is on {encoder.config.backbone}, which sees "
            f"what moves in {encoder.config.input.num_frames} frames. Give a video, or a part of one with "
            "--span."
        )
    video = Video(path, path.name, span=span)
    long: list[Video] | None = [] if timelines else None
    with evaluating(encoder, device) as place:
        batches = list(
            feature_batches(
                encoder,
                Catalog(path.parent, "folder", (video,)),
                num_clips=num_clips,
                short_side=short_side,
                max_broken_share=1.0,
                remember=None if span is None else False,
                library=library,
                long=long,
            )
        )
        for error in (error for found in batches for error in found.broken.values()):
            raise error
        if long:
            remember = span is None and is_cached(encoder)
            return _timeline(
                _long_videos(encoder, num_clips, short_side, remember, library), video, place
            ).whole
        (found,) = (found for found in batches if len(found.catalog))
        assert found.clips is not None  # always known for videos, unlike features
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


def _long_videos(
    encoder: Encoder, num_clips: int, short_side: int | None, remember: bool, library: Library
) -> LongVideos:
    settings = clip_settings(encoder.config, num_clips=num_clips, short_side=short_side)
    return LongVideos(encoder, settings, library, remember)


@dataclass(frozen=True)
class _Timeline:
    """A long video with one clip per second."""

    whole: VideoEmbedding
    shown: Float[Tensor, "clips feature"]
    """The features of the evenly spaced clips by which other videos are represented."""
    shown_seconds: Float[Tensor, "clips 2"]
    words: Float[Tensor, "clips words"] | None


def _timeline(reader: LongVideos, video: Video, device: torch.device) -> _Timeline:
    """Each clip of a long video, treated as a video: clips minutes away are unrelated.

    Of the features of a clip, only what is kept of them stays in memory.
    """
    encoder, clips = reader.encoder, reader.clips(video)
    shown = np.arange(len(clips))[overview_of(len(clips), reader.settings.num_clips)]
    mean, log_var = (torch.empty(len(clips), encoder.config.dim) for _ in range(2))
    dim = words_dim(encoder.backbone)
    words = None if dim is None else torch.empty(len(clips), dim, dtype=torch.float16)
    overview, first = [], 0
    for features in reader.features(video, clips):
        part = slice(first, first + len(features))
        found = _of_videos(encoder, features.unsqueeze(1), device, [video.group] * len(features))
        mean[part], log_var[part] = found.mean[:, 0], found.log_var[:, 0]
        if words is not None and dim is not None:
            words[part] = words_of(features, dim).half()
        overview.append(features[shown[(shown >= part.start) & (shown < part.stop)] - first])
        first = part.stop
    whole = VideoEmbedding(clips, Mixture(Gaussian(mean, log_var)))
    return _Timeline(whole, torch.cat(overview), whole.clip_seconds[shown], words)


def _seconds(videos: Sequence[Clips], num_clips: int) -> Float[Tensor, "videos clips 2"]:
    times = [clips.seconds for clips in videos]
    return torch.from_numpy(np.stack(times) if times else np.empty((0, num_clips, 2)))
