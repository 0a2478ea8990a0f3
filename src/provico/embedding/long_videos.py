"""Features of long videos, one clip per second: read in one pass, computed and cached some clips at a time.

The features of a day are a gigabyte, so they are never in memory together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from provico.data.catalog import Video, frames_of
from provico.data.clips import Clips, dense_clips, timed_clips
from provico.data.library import Library
from provico.data.loader import ClipSettings
from provico.data.memory import MAX_TIMELINE_CLIPS
from provico.defaults import STEP_SECONDS
from provico.embedding.clips import FileClips
from provico.embedding.features import key_of, maker_name, network_features
from provico.errors import VideoMemoryError
from provico.models.encoder import Encoder
from provico.models.inference import CLIPS_AT_ONCE

CLIPS_A_PART = 64 * CLIPS_AT_ONCE
"""Clips whose features are in memory together, and in one entry of the cache."""


@dataclass(frozen=True)
class LongVideos:
    """Reads long videos for an encoder."""

    encoder: Encoder
    settings: ClipSettings
    library: Library
    remember: bool
    """Whether to use the cache."""

    def clips(self, video: Video) -> Clips:
        """The clips of a video, one per second."""
        index = self.library.index(video.path)
        shown = frames_of(video, index)
        seconds = index.seconds_of(shown)
        if min(seconds / STEP_SECONDS, len(shown)) > MAX_TIMELINE_CLIPS:
            raise VideoMemoryError(
                video.path,
                f"it has {len(shown):,} frames in {seconds / 3600:,.1f} hours, but at most "
                f"{MAX_TIMELINE_CLIPS:,} clips per video are supported, one every {STEP_SECONDS:g} s. Cut it "
                "into shorter files.",
            )
        frames = shown.start + dense_clips(
            len(shown),
            seconds,
            num_clips=self.settings.num_clips,
            spec=self.settings.spec,
            step_seconds=STEP_SECONDS,
        )
        return timed_clips(video.id, frames, index)

    def features(self, video: Video, clips: Clips) -> Iterator[Tensor]:
        """The features "clips feature" of these clips in order, `CLIPS_A_PART` at a time.

        What was computed before is read from the cache; the file is decoded from there on, once.
        """
        firsts = range(0, len(clips), CLIPS_A_PART)
        done = 0
        for first in firsts:
            known = self._recall(video, first, min(CLIPS_A_PART, len(clips) - first))
            if known is None:
                break
            done += len(known)
            yield known
        if done == len(clips):
            return
        index = self.library.index(video.path)
        rest = FileClips(video.path, clips.frames[done:], index, self.settings, self.library)
        computed = network_features(self.encoder, rest.pixels())
        for first in firsts[done // CLIPS_A_PART :]:
            # One allocation: small ones between the buffers of the network would keep those from being freed.
            part = torch.empty(min(CLIPS_A_PART, len(clips) - first), self.encoder.head.feature_dim)
            filled = 0
            while filled < len(part):
                some = next(computed)
                part[filled : filled + len(some)] = some
                filled += len(some)
            if self.remember:
                self.library.remember_features(video.path, part.numpy(), maker=self._key(video, first))
            yield part

    def _recall(self, video: Video, first: int, size: int) -> Tensor | None:
        if not self.remember:
            return None
        known = self.library.features(video.path, maker=self._key(video, first))
        return None if known is None or len(known) != size else torch.from_numpy(known.copy())

    def _key(self, video: Video, first: int) -> str:
        return f"{key_of(video, self._maker)} every {STEP_SECONDS:g} s from {first}"

    @cached_property
    def _maker(self) -> str:
        return maker_name(self.encoder, self.settings)
