"""Settings of the data: which videos, how they are read and embedded, and when one stands out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from provico.defaults import MAX_CLIPS, MAX_SHORT_SIDE, TEST_CLIPS, TIMEOUT_SECONDS
from provico.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class DataChoice:
    """Which videos to use."""

    data: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """A folder of videos, a dataset in a known layout, a list or a manifest; or a file of features."""
    layout: str = "auto"
    """ucf101, hmdb51, kinetics, list, manifest, class-folders, folder or features; auto recognises it."""
    split: int = 1
    """Which official split of UCF101 (1-3) or HMDB51 (1-3)."""
    subset: Literal["all", "train", "test", "val"] = "all"
    """Which part of the split."""
    allow_missing: bool = False
    """Continue when listed videos are missing; their number is always reported."""
    part: str | None = None
    """Use one part of the videos, such as 2/4 on the second of four machines; recordings stay whole."""

    def __post_init__(self) -> None:
        if self.part is not None and self.number_and_parts is None:
            raise ConfigError(
                f"--part is {self.part}, but it must name a part and the number of parts, such as 2/4."
            )

    @property
    def number_and_parts(self) -> tuple[int, int] | None:
        """The part, counted from 1, and the number of parts; None for all videos."""
        number, slash, parts = (self.part or "").partition("/")
        if not (slash and number.isascii() and number.isdigit() and parts.isascii() and parts.isdigit()):
            return None
        return (int(number), int(parts)) if 1 <= int(number) <= int(parts) else None


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How files are read."""

    num_workers: int | None = None
    """Processes that decode; one per core if not given."""
    timeout_seconds: float = TIMEOUT_SECONDS
    """Report a file as unreadable if no frame of it is decoded for this long."""


def check_clips(num_clips: int | None, short_side: int | None) -> None:
    """Raise ConfigError if a value is out of range."""
    for option, value, most in (
        ("--num-clips", num_clips, MAX_CLIPS),
        ("--short-side", short_side, MAX_SHORT_SIDE),
    ):
        if value is not None and not 1 <= value <= most:
            raise ConfigError(f"{option} is {value}, but it must be between 1 and {most}.")


@dataclass(frozen=True, kw_only=True)
class EmbedOptions:
    """How videos are embedded."""

    num_clips: int | None = None
    """Evenly spaced clips of each video; 10 if not given."""
    short_side: int | None = None
    """Pixels of a frame's shorter side before the centre crop; fits the encoder if not given."""
    num_workers: int | None = None
    """Processes that read clips; chosen for the machine if not given."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the network runs; auto uses a GPU if there is one."""
    allow_import: bool = False
    """Allow the encoder to import a network by name, which runs its code."""

    def __post_init__(self) -> None:
        check_clips(self.num_clips, self.short_side)

    @property
    def clips_of_a_video(self) -> int:
        """`num_clips`, or its default."""
        return TEST_CLIPS if self.num_clips is None else self.num_clips


@dataclass(frozen=True, kw_only=True)
class CurationRules:
    """When a video stands out."""

    max_deviations: float = 2.5
    """Review a video whose uncertainty or disagreement is this many robust deviations above the median of
    the collection; a clip is unclear by the same rule."""
    trim_from_seconds: float = 20.0
    """Only videos at least this long are trimmed."""
    min_segment_seconds: float = 3.0
    """Shorter parts are not kept."""
    min_kept_share: float = 0.2
    """Review a video, rather than trim it, if less than this share of it is clear."""
    step_seconds: float = 1.0
    """Seconds between the clips of a long video."""

    def __post_init__(self) -> None:
        for name in ("max_deviations", "trim_from_seconds", "min_segment_seconds", "step_seconds"):
            if not getattr(self, name) > 0:
                option = f"--{name.replace('_', '-')}"
                raise ConfigError(f"{option} is {getattr(self, name):g}, but it must be above 0.")
        if not 0 <= self.min_kept_share <= 1:
            raise ConfigError(f"--min-kept-share is {self.min_kept_share:g}, but it must be between 0 and 1.")
