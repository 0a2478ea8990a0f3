"""Embedded videos: `VideoEmbedding` for one file, `Embeddings` for many.

Both refuse values that are not finite, so their users need no checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from provico.data.catalog import Video
from provico.data.clips import Clips
from provico.display import bars
from provico.errors import WeightsError
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture

_NUM_NAMED = 3  # failed videos that a message lists


@dataclass(frozen=True, eq=False)
class VideoEmbedding:
    """A video as a distribution, with the times of its clips."""

    clips: Clips
    """The frame numbers and times of the clips."""
    mixture: Mixture
    """p(z|V), with p(z|c) "clips dim" of each clip inside."""

    def __post_init__(self) -> None:
        found = tuple(self.gaussians.mean.shape)
        if len(found) != 2 or found[0] != len(self.clips):
            raise ValueError(
                f"The clip means have shape {found}, but ({len(self.clips)}, dim) is needed, one row per "
                "clip."
            )
        check_finite([self.clips.video_id], self.gaussians[None])

    def _repr_html_(self) -> str:
        """The uncertainty of each clip, for notebooks."""
        names = [f"{clip.start_seconds:.1f} to {clip.end_seconds:.1f} s" for clip in self.clips]
        caption = f"{self.clips.video_id}: uncertainty {self.uncertainty:.3g} by {len(names)} clips"
        return bars(self.gaussians.uncertainty.tolist(), names, caption=caption)

    @property
    def gaussians(self) -> Gaussian:
        """p(z|c) of each clip."""
        return self.mixture.clips

    @property
    def clip_seconds(self) -> Float[Tensor, "clips 2"]:
        """Start and end of each clip."""
        return torch.from_numpy(self.clips.seconds)

    @property
    def uncertainty(self) -> float:
        """The encoder's uncertainty of the video."""
        return float(self.mixture.uncertainty)

    @property
    def disagreement(self) -> float:
        """The uncertainty added by differences between the clips."""
        return float(self.mixture.disagreement)


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Videos as distributions, with their metadata, on the CPU."""

    ids: tuple[str, ...]
    videos: Mixture
    """float32 clip Gaussians "videos clips dim"."""
    labels: tuple[str | None, ...]
    """Class names, not numbers, which may differ between catalogs."""
    groups: tuple[str | None, ...]
    """The recording of each video; videos of one recording are not independent. None if unknown."""
    failed: tuple[tuple[str, str], ...] = ()
    """Ids of the videos that could not be read, with the reasons. They are not in the fields above."""
    clip_seconds: Float[Tensor, "videos clips 2"] | None = None
    """Start and end of each clip; None for stored features."""
    timelines: tuple[VideoEmbedding, ...] | None = None
    """The timelines of all videos, with more clips than above; None without timelines."""
    words: tuple[Float[Tensor, "clips words"], ...] | None = None
    """All clips of each video in the space of texts; None if the network has no text tower."""

    def __post_init__(self) -> None:
        clips = self.videos.clips
        if clips.mean.ndim != 3:
            raise ValueError(
                f"The clip means have shape {tuple(clips.mean.shape)}, not (videos, clips, dim)."
            )
        counts = {len(self.ids), len(clips.mean), len(self.labels), len(self.groups)}
        if len(counts) > 1:
            raise ValueError("Each video needs one id, distribution, label and group.")
        if self.clip_seconds is not None and self.clip_seconds.shape != (*clips.mean.shape[:2], 2):
            raise ValueError("Each clip needs a start and an end.")
        check_finite(self.ids, clips)

    @classmethod
    def of(
        cls,
        videos: Sequence[Video],
        clips: Gaussian,
        *,
        failed: tuple[tuple[str, str], ...] = (),
        clip_seconds: Float[Tensor, "videos clips 2"] | None = None,
        timelines: tuple[VideoEmbedding, ...] | None = None,
        words: tuple[Float[Tensor, "clips words"], ...] | None = None,
    ) -> Embeddings:
        """Embeddings of videos of a catalog from the Gaussians "videos clips dim" of their clips."""
        return cls(
            ids=tuple(video.id for video in videos),
            videos=Mixture(clips),
            labels=tuple(video.label for video in videos),
            groups=tuple(video.group for video in videos),
            failed=failed,
            clip_seconds=clip_seconds,
            timelines=timelines,
            words=words,
        )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def failure_line(self) -> str:
        """The number of failed videos, to print beside every score: "1 of 90 videos failed: a.avi"."""
        line = f"{len(self.failed)} of {len(self) + len(self.failed)} videos failed"
        named = [name for name, _ in self.failed[:_NUM_NAMED]]
        more = ["..."] if len(self.failed) > _NUM_NAMED else []
        return f"{line}: {', '.join(named + more)}" if named else line


def check_finite(ids: Sequence[str], clips: Gaussian) -> None:
    """Refuse nan and infinity: they would be ranked first."""
    # The extremes of a video are finite only if all of it is, and take no memory.
    extremes = [torch.aminmax(some.flatten(1), dim=1) for some in (clips.mean, clips.log_var)]
    finite = torch.stack([value.isfinite() for pair in extremes for value in pair]).all(dim=0)
    if not bool(finite.all()):
        first = ids[int(finite.int().argmin())]
        raise WeightsError(
            f"The encoder's output is not finite for {int((~finite).sum())} of {len(ids)} "
            f"videos, the first of them {first}. Its training has diverged: use an earlier checkpoint."
        )
