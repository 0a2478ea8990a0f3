"""Proposals for videos: a bucket and a reason, from the scan, the frames and the encoder.

Only certain cases are dropped: unreadable videos, junk and duplicates. Uncertainty alone never drops a video:
it requests a review, and states which of its two causes stands out. "Stands out" is measured in robust
deviations: the distance from the median of the collection, in units of the standard deviation of a normal
distribution with the same interquartile range. Logarithms are compared, since variances differ by factors. A
reason is in words; the values behind it are its `detail`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provico.config.data import CurationRules
from provico.curation.decisions import Segment
from provico.curation.junk import JUNK, Junk
from provico.data.scan import ScannedVideo
from provico.wording import clock, hard_to_make_out, shows_several_things

Bucket = Literal["keep", "trim", "review", "drop"]
BUCKETS: tuple[Bucket, ...] = get_args(Bucket)

_NORMAL_IQR = 1.3489795  # interquartile range of a standard normal distribution
DROPPED: tuple[Junk, ...] = ("black", "frozen", "noise")
REVIEWED: tuple[Junk, ...] = ("card", "screen", "short", "damaged")


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The proposal for one video."""

    id: str
    bucket: Bucket
    reason: str
    detail: str = ""
    """The values behind the reason; empty if there are none."""
    kind: str = ""
    """The reason in one word: a kind of `JUNK`, or duplicate; otherwise empty."""
    segments: tuple[Segment, ...] = ()
    """With `trim`, the parts to keep."""


@dataclass(frozen=True)
class Doubt:
    """The encoder's uncertainty of one video, compared with the collection."""

    uncertainty: float
    """In robust deviations from the median, like the next field."""
    disagreement: float
    uncertainty_share: float = 1.0
    """The share of other videos with a lower value, like the next field."""
    disagreement_share: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Clear:
    """The clear parts of a long video."""

    segments: tuple[Segment, ...]
    why: str
    """The faults of the rest, in words."""
    detail: str = ""
    """The faults with numbers of clips."""

    @property
    def seconds(self) -> float:
        """Total duration of the clear parts."""
        return sum(end - start for start, end in self.segments)


def robust_deviations(values: ArrayLike, *, of: ArrayLike | None = None) -> NDArray[np.float64]:
    """Deviations of values from the median of a collection, in robust standard deviations.

    of: the collection, if it differs from the values. If at least half of it is equal there is no scale, and
    nothing stands out.
    """
    values = np.asarray(values, np.float64)
    low, middle, high = np.quantile(values if of is None else np.asarray(of, np.float64), [0.25, 0.5, 0.75])
    scale = (high - low) / _NORMAL_IQR
    return (values - middle) / scale if scale > 0 else np.zeros_like(values)


def propose(
    video: ScannedVideo,
    doubt: Doubt | None,
    clear: Clear | None,
    rules: CurationRules,
    *,
    junk: Junk | None = None,
    copy_of: str | None = None,
) -> Proposal:
    """Propose a bucket for one video.

    doubt: None if it could not be embedded.
    clear: the clear parts, for long videos.
    junk: the kind of junk that it looks like.
    copy_of: why it is a worse copy of another video, if so.
    """
    if video.status != "readable":
        reason = f"cannot be read: {video.reason}"
        return Proposal(id=video.id, bucket="drop", reason=reason, kind="unreadable")
    flags = set(video.flags.split())
    if junk == "screen":  # most of it does not change, but something does
        flags -= {"frozen"}
    kinds: list[Junk] = [kind for kind in JUNK if kind in flags or kind == junk]
    for kind in kinds:
        if kind in DROPPED:
            return Proposal(id=video.id, bucket="drop", reason=JUNK[kind], kind=kind)
    if copy_of is not None:
        return Proposal(id=video.id, bucket="drop", reason=copy_of, kind="duplicate")
    if clear is not None and clear.seconds < video.duration_seconds:
        share, length = clear.seconds / video.duration_seconds, clock(video.duration_seconds)
        if share >= rules.min_kept_share and clear.segments:
            reason = f"{clock(clear.seconds)} of {length} is worth keeping; the rest is {clear.why}"
            return Proposal(
                id=video.id, bucket="trim", reason=reason, detail=clear.detail, segments=clear.segments
            )
        reason = f"hardly any of it is clear; it is {clear.why}"
        return Proposal(id=video.id, bucket="review", reason=reason, detail=clear.detail)
    doubts = [JUNK[kind] for kind in kinds if kind in REVIEWED]
    details = []
    if doubt is None:
        doubts.append("could not be embedded")
    else:
        for words, name, deviations in _stands_out(doubt, rules.max_deviations):
            doubts.append(words)
            details.append(f"{name} {deviations:.1f} deviations above the median of the collection")
    if doubts:
        kind_found = next((kind for kind in kinds if kind in REVIEWED), "")
        return Proposal(
            id=video.id,
            bucket="review",
            reason="; ".join(doubts),
            detail="; ".join(details),
            kind=kind_found,
        )
    return Proposal(id=video.id, bucket="keep", reason="nothing stands out")


def _stands_out(doubt: Doubt, most: float) -> Iterator[tuple[str, str, float]]:
    """What stands out: a description, its name, and the deviation."""
    if doubt.uncertainty > most:
        yield hard_to_make_out(doubt.uncertainty_share), "uncertainty", doubt.uncertainty
    if doubt.disagreement > most:
        yield shows_several_things(doubt.disagreement_share), "disagreement", doubt.disagreement


def clear_segments(
    start_seconds: ArrayLike,
    end_seconds: ArrayLike,
    is_clear: ArrayLike,
    *,
    duration_seconds: float,
    min_seconds: float,
) -> tuple[Segment, ...]:
    """The clear parts of a video, from its clips in temporal order, each at least `min_seconds` long.

    Each moment belongs to the clip with the nearest centre, and is unclear if that clip is. Single clips that
    differ from both neighbours take their value, so that one outlier does not split a video.
    """
    middles = (np.asarray(start_seconds, np.float64) + np.asarray(end_seconds, np.float64)) / 2
    clear = _without_single_clips(np.asarray(is_clear, bool))
    # The borders are halfway between the centres of two clips.
    borders = np.concatenate([[0.0], (middles[1:] + middles[:-1]) / 2, [duration_seconds]])
    changes = np.flatnonzero(np.diff(np.concatenate([[False], clear, [False]])))
    segments = [(float(borders[first]), float(borders[last])) for first, last in changes.reshape(-1, 2)]
    return tuple((round(start, 3), round(end, 3)) for start, end in segments if end - start >= min_seconds)


def _without_single_clips(clear: NDArray[np.bool_]) -> NDArray[np.bool_]:
    if len(clear) < 3:
        return clear
    inner = clear[1:-1].copy()
    odd = (clear[:-2] == clear[2:]) & (inner != clear[:-2])
    inner[odd] = clear[:-2][odd]
    return np.concatenate([clear[:1], inner, clear[-1:]])
