"""From pixels to Gaussians: the one way that whatever embeds a video goes.

    files -> clips -> backbone -> features -> heads -> Gaussian of each clip -> mixture of each video

`embed` and `embed_batches` take a catalog, `embed_video` one file, `embed_clips` given clips of a file,
`embed_pixels` and `embed_features` what others have read. Clips of a catalog are evenly spaced and seen in
their centre crops, so nothing here is random. A video that cannot be read is never replaced by another one:
it is left out, named, and counted beside every metric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from provico.data.catalog import Catalog, Video
from provico.data.clips import Clip, overview_of
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
"""How many stored feature vectors go through the heads together."""


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
    """The distributions of some videos at a time as they are computed, in memory that does not grow.

    They come in no particular order. Features of a frozen network are remembered. The encoder is in
    evaluation mode until the last batch was taken.

    num_clips: evenly spaced clips of each video; the paper takes ten.
    num_workers: processes that read ahead.
    device: where the network runs; where it is, if not given.
    short_side: pixels of the shorter side of a frame before the centre crop; fits the encoder if not given.
    max_broken_share: more unreadable videos than this share end it with an error.
    timelines: long videos have a timeline, too: a clip every second.
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
    """The distribution of one file, or of a span of it in seconds; one that cannot be read is an error.

    Features of a frozen network are remembered for whole files. Options are those of `embed_batches`; with
    `timelines`, that of a long video is its timeline.
    """
    path = Path(path)
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
        assert found.clips is not None  # as long as videos are read, not features
        if found.is_timeline:
            return _timeline(encoder, found.features[0], found.clips[0], place)
        clips = _of_videos(encoder, found.features, place)
    return VideoEmbedding(found.clips[0], Mixture(clips[0]))


def embed_clips(
    encoder: Encoder,
    clips: FileClips,
    *,
    device: torch.device | str | None = None,
    look: Callable[[Tensor], None] = lambda pixels: None,
) -> VideoEmbedding:
    """The distribution of given clips of a file, each judged by itself, in memory that does not grow.

    look: is shown the pixels "clips time height width 3" of some clips at a time, as the network is.
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
    """p(z|c) "clips dim" of clips that come as uint8 "clips time height width 3", some at a time.

    num_clips: of each video, one video after the other. With one, each clip is judged by itself, and memory
        does not grow.
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
    """The distributions of videos whose features are stored, one row for each video of the catalog.

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
    """What the heads make of features, some videos at a time, in float32 on the CPU."""
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
    """Each clip of a long video, judged by itself: what is shown minutes away says nothing of it."""
    found = _of_videos(encoder, features.unsqueeze(1), device, [recording] * len(features))
    return VideoEmbedding(clips, Mixture(found[:, 0]))


def _seconds(videos: Sequence[Sequence[Clip]], num_clips: int) -> Float[Tensor, "videos clips 2"]:
    times = [[(clip.start_seconds, clip.end_seconds) for clip in clips] for clips in videos]
    return torch.tensor(times, dtype=torch.float64).view(len(videos), num_clips, 2)
