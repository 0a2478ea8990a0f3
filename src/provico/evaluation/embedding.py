"""A catalog of videos to their distributions, as every protocol of evaluation needs them.

Each video is seen through evenly spaced clips and their centre crops, so nothing here is random. A video that
cannot be read is never replaced by another one: it is left out, named, and counted beside every metric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from provico.data.catalog import Catalog, Video
from provico.data.library import Library
from provico.data.loader import ClipLoader
from provico.errors import ConfigError, TooManyBrokenError, WeightsError
from provico.features import clip_features, clip_settings
from provico.models.encoder import Encoder
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture
from provico.progress import Progress, silent

CLIPS_AT_ONCE = 16
"""How many clips go through the network together: ten clips of several videos would take gigabytes."""

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

    def __post_init__(self) -> None:
        clips = self.videos.clips
        if clips.mean.ndim != 3:
            raise ValueError(
                f"The clip means have shape {tuple(clips.mean.shape)}, not (videos, clips, dim)."
            )
        counts = {len(self.ids), len(clips.mean), len(self.labels), len(self.groups)}
        if len(counts) > 1:
            raise ValueError("There must be one id, distribution, label and group for each video.")
        finite = (clips.mean.isfinite() & clips.log_var.isfinite()).flatten(1).all(dim=1)
        if not bool(finite.all()):
            # Such a number would sort before all others, and a video be found that is nowhere.
            first = self.ids[int(finite.int().argmin())]
            raise WeightsError(
                f"The encoder gives numbers that are not finite for {int((~finite).sum())} of {len(self)} "
                f"videos, the first of them {first}. Its training has diverged: use an earlier checkpoint."
            )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def failure_line(self) -> str:
        """What belongs beside every number that is computed from these: "1 of 90 videos failed: a.avi"."""
        line = f"{len(self.failed)} of {len(self) + len(self.failed)} videos failed"
        named = [name for name, _ in self.failed[:_NUM_NAMED]]
        more = ["..."] if len(self.failed) > _NUM_NAMED else []
        return f"{line}: {', '.join(named + more)}" if named else line


def embed(
    encoder: Encoder,
    catalog: Catalog,
    *,
    num_clips: int = 10,
    batch_size: int = 8,
    num_workers: int = 0,
    device: torch.device | str | None = None,
    short_side: int | None = None,
    max_broken_share: float = 0.05,
    library: Library | None = None,
    progress: Progress = silent,
) -> Embeddings:
    """The distributions of all videos of a catalog; features of a frozen network are remembered.

    num_clips: evenly spaced clips of each video; the paper takes ten.
    batch_size: videos that are read together; it changes no result.
    device: where the network runs; where it is, if not given.
    short_side: pixels of the shorter side of a frame before the centre crop; fits the encoder if not given.
    max_broken_share: more unreadable videos than this share end it with an error.
    """
    if encoder.config.backbone_spec.is_frozen:
        found = clip_features(
            encoder if device is None else encoder.to(device),
            catalog,
            num_clips=num_clips,
            short_side=short_side,
            num_workers=num_workers,
            max_broken_share=max_broken_share,
            library=library,
            progress=progress,
        )
        return embed_features(encoder, found.features, found.catalog, failed=tuple(found.broken.items()))
    loader = ClipLoader(
        catalog,
        clip_settings(encoder.config, num_clips=num_clips, short_side=short_side),
        batch_size=batch_size,
        shuffle=False,
        drop_last=False,
        num_workers=num_workers,
        max_broken_share=max_broken_share,
        library=library,
    )
    parts: list[Gaussian] = []
    numbers: list[int] = []
    with _evaluating(encoder, device) as place:
        for batch in loader:
            if len(batch):
                pixels: UInt8[Tensor, "clips time height width 3"] = batch.pixels.flatten(0, 1)
                parts.append(_in_parts(encoder.encode_clips, pixels, CLIPS_AT_ONCE, place))
                numbers += batch.videos.tolist()
            progress(len(numbers) + len(loader.broken), len(catalog))
    failed = tuple((catalog[number].id, error.reason) for number, error in loader.broken.items())
    if not parts:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failed[:_NUM_NAMED])
        raise TooManyBrokenError(
            f"Not one of {len(catalog)} videos can be read, so nothing can be evaluated. {reasons}"
        )
    return _embeddings([catalog[number] for number in numbers], _joined(parts), num_clips, failed)


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
    with _evaluating(encoder, device) as place:
        clips = _in_parts(encoder.head, features.flatten(0, 1), FEATURES_AT_ONCE, place)
    return _embeddings(catalog.videos, _joined([clips]), features.shape[1], failed)


@contextmanager
def _evaluating(encoder: Encoder, device: torch.device | str | None) -> Iterator[torch.device]:
    """Evaluation mode on a device; afterwards every module is as it was and where it was."""
    home = encoder.device
    place = home if device is None else torch.device(device)
    # Each module's own mode: batch statistics may be frozen in a network that is being trained.
    modes = [(module, module.training) for module in encoder.modules()]
    try:
        # Moved before inference mode begins: weights that move within it could never be trained again.
        encoder.eval().to(place)
        with torch.inference_mode():
            yield place
    finally:
        for module, training in modes:
            module.training = training
        encoder.to(home)


def _in_parts(
    network: Callable[[Tensor], Gaussian], inputs: Tensor, size: int, device: torch.device
) -> Gaussian:
    """What the network makes of the inputs, some rows at a time, on the CPU."""
    parts = [network(part.to(device)) for part in torch.split(inputs, size)]
    return Gaussian(
        torch.cat([part.mean.cpu() for part in parts]), torch.cat([part.log_var.cpu() for part in parts])
    )


def _joined(parts: Sequence[Gaussian]) -> Gaussian:
    """All clips in new memory. Outside inference mode, so that a probe can learn from the result."""
    return Gaussian(
        torch.cat([part.mean for part in parts]).float(), torch.cat([part.log_var for part in parts]).float()
    )


def _embeddings(
    videos: Sequence[Video], clips: Gaussian, num_clips: int, failed: tuple[tuple[str, str], ...]
) -> Embeddings:
    shape = (len(videos), num_clips, -1)
    return Embeddings(
        ids=tuple(video.id for video in videos),
        videos=Mixture(Gaussian(clips.mean.view(shape), clips.log_var.view(shape))),
        labels=tuple(video.label for video in videos),
        groups=tuple(video.group for video in videos),
        failed=failed,
    )
