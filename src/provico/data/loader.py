"""Batches of clips for training and evaluation.

The content of a batch depends only on the seed, the epoch and its position in the epoch: not on the number of
workers, nor on what was loaded before. So a run can be resumed, or use another number of processes, and still
see the same clips.

A broken video is never replaced. It is dropped from its batch and kept in `ClipLoader.broken` with the
reason, and too many of them stop the run; evaluation reports their number.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from provico.data.batch_order import BatchOrder
from provico.data.catalog import Catalog, frames_of
from provico.data.clips import Clips, ClipSpec, random_clips, timed_clips, uniform_clips
from provico.data.library import Library
from provico.data.memory import limit_this_process
from provico.data.scaling import frame_shape, read_scaled
from provico.data.transforms import Augmentation, apply, crop_clips
from provico.defaults import CROP_SIZE, DECODER, MAX_BROKEN_SHARE, SHORT_SIDE, TIMEOUT_SECONDS
from provico.errors import (
    LOST_WORKER,
    ConfigError,
    ProvicoError,
    TooManyBrokenError,
    VideoError,
    lost_worker,
)

SECONDS_UNTIL_TOLD = 2.0
"""PyTorch tells of a killed worker by a signal, which would otherwise come while the error is reported."""
_NUM_NAMED = 5  # broken videos that a message lists
_STREAM = 1  # a separate random stream for each purpose (0: the order of the videos)


@dataclass(frozen=True, kw_only=True)
class ClipSettings:
    """The choice of clips of a video, and the processing of their pixels."""

    num_clips: int = 2
    spec: ClipSpec = field(default_factory=ClipSpec)
    sampling: Literal["random", "uniform"] = "random"
    """Random positions for training; evenly spaced ones for evaluation."""
    short_side: int = SHORT_SIDE
    crop_size: int = CROP_SIZE
    scaling: str = DECODER
    """The library that scales frames and its kernel: a name of `SCALINGS`."""
    squash: bool = False
    """Whether frames are resized to a square regardless of their aspect; not possible with the decoder."""
    augmentation: Augmentation = field(default_factory=Augmentation.none)
    longest_seconds: float | None = None
    """Longer videos are not read but listed in `ClipBatch.long`, to be read in parts."""


@dataclass(frozen=True)
class ClipBatch:
    """Videos with the same number of clips each. Broken videos are listed, not replaced."""

    pixels: Tensor
    """uint8 "videos clips time height width channels"."""
    videos: Tensor
    """int64 "videos": indices into the catalog."""
    clips: tuple[Clips, ...]
    """Frame numbers and times of each clip of each video."""
    broken: tuple[tuple[int, VideoError], ...] = ()
    """Numbers of the videos that could not be read, with the reasons."""
    long: tuple[int, ...] = ()
    """Numbers of the videos that are longer than `ClipSettings.longest_seconds`."""

    def __len__(self) -> int:
        return len(self.videos)

    def pin_memory(self) -> ClipBatch:
        """Called by the DataLoader to speed up copies to a GPU."""
        return replace(self, pixels=self.pixels.pin_memory(), videos=self.videos.pin_memory())


class ClipLoader:
    """Batches of clips. Iterate over it once per epoch; it continues after `load_state_dict`.

    With several processes, each takes its part of every global batch, which is the batch that a single
    process with `batch_size * world_size` would use.
    """

    def __init__(
        self,
        catalog: Catalog,
        settings: ClipSettings,
        *,
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = True,
        num_workers: int = 0,
        max_broken_share: float = MAX_BROKEN_SHARE,
        rank: int = 0,
        world_size: int = 1,
        pin_memory: bool = False,
        library: Library | None = None,
    ) -> None:
        self.catalog = catalog
        self.max_broken_share = max_broken_share
        self.broken: dict[int, VideoError] = {}
        self.wait_seconds = 0.0
        """Time that the caller has waited for data in this epoch."""
        self._order = BatchOrder(
            len(catalog),
            batch_size=batch_size,
            seed=seed,
            shuffle=shuffle,
            drop_last=drop_last,
            rank=rank,
            world_size=world_size,
        )
        self._loader = DataLoader[_Outcome](
            _Clips(catalog, settings, seed, library or Library()),
            batch_sampler=_Keys(self._order),
            collate_fn=_collate,
            num_workers=num_workers,
            worker_init_fn=_begin_worker,
            persistent_workers=num_workers > 0,
            pin_memory=pin_memory,
            # Each file has its own limit; this one ends the wait for a decoder that never returns.
            timeout=2 * batch_size * TIMEOUT_SECONDS if num_workers else 0,
        )

    def __len__(self) -> int:
        """Number of batches per epoch."""
        return self._order.num_batches

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        return self._order.epoch

    def __iter__(self) -> Iterator[ClipBatch]:
        self.wait_seconds = 0.0
        batches = iter(self._loader)
        while True:
            began = time.perf_counter()
            batch = _whole(batches)
            self.wait_seconds += time.perf_counter() - began
            if batch is None:
                break
            self._order.advance()
            self._count_broken(batch)
            yield batch
        self._order.end_epoch()

    def state_dict(self) -> dict[str, Any]:
        """The position of the next batch, as plain values."""
        broken = {number: (str(error.path), error.reason) for number, error in self.broken.items()}
        return self._order.state_dict() | {"broken": broken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at a position from `state_dict`; refused if the order of the batches differs."""
        self._order.load_state_dict(state)
        self.broken = {int(number): VideoError(*error) for number, error in state["broken"].items()}

    def _count_broken(self, batch: ClipBatch) -> None:
        self.broken.update(batch.broken)
        check_share([*self.broken.values()], len(self.catalog), self.max_broken_share)


def check_share(broken: Sequence[VideoError], num_videos: int, max_share: float) -> None:
    """Raise TooManyBrokenError if more than this share of the videos cannot be read."""
    if len(broken) > max_share * num_videos:
        raise TooManyBrokenError(
            f"{len(broken)} of {num_videos} videos cannot be read, more than the allowed share of "
            f"{max_share:g}: {'; '.join(map(str, broken[:_NUM_NAMED]))}. Run `provico scan` and use its "
            "manifest, or raise --max-broken-share."
        )


class _Key(NamedTuple):
    epoch: int
    number: int


class _Keys:
    """The order as keys for the workers: a batch sampler."""

    def __init__(self, order: BatchOrder) -> None:
        self._order = order

    def __iter__(self) -> Iterator[list[_Key]]:
        epoch = self._order.epoch
        for indices in self._order:
            yield [_Key(epoch, int(index)) for index in indices]

    def __len__(self) -> int:
        return len(self._order)


class _Read(NamedTuple):
    """One video as read by a worker."""

    number: int
    pixels: Tensor
    clips: Clips


class _Long(NamedTuple):
    """One video that was not read because it is too long."""

    number: int


_Outcome = _Read | _Long | tuple[int, VideoError] | ProvicoError


class _Clips(Dataset[_Outcome]):
    """Reads the clips of one video; their randomness depends only on the key."""

    def __init__(self, catalog: Catalog, settings: ClipSettings, seed: int, library: Library) -> None:
        self.catalog, self.settings, self.seed, self.library = catalog, settings, seed, library

    def __getitem__(self, key: _Key) -> _Outcome:
        try:
            return self._read(key)
        except VideoError as error:
            return key.number, error
        except ProvicoError as error:  # raised here, it would reach the user as a traceback in words
            return error

    def _read(self, key: _Key) -> _Read | _Long:
        settings, video = self.settings, self.catalog[key.number]
        rng = np.random.default_rng([self.seed, _STREAM, key.epoch, key.number])
        index = self.library.index(video.path, keep=True)
        frames = frames_of(video, index)
        if settings.longest_seconds is not None and index.seconds_of(frames) > settings.longest_seconds:
            return _Long(key.number)
        if settings.sampling == "random":
            frame_numbers = random_clips(
                len(frames), num_clips=settings.num_clips, spec=settings.spec, rng=rng
            )
        else:
            frame_numbers = uniform_clips(len(frames), num_clips=settings.num_clips, spec=settings.spec)
        frame_numbers += frames.start
        height, width = frame_shape(index, settings)
        size, augmentation = settings.crop_size, settings.augmentation
        boxes = augmentation.boxes(height, width, size, num_clips=settings.num_clips, rng=rng)
        to_resize = any((box.height, box.width) != (size, size) for box in boxes)
        clips = read_scaled(
            video.path,
            frame_numbers,
            index=index,
            settings=settings,
            library=self.library,
            # Boxes of one size can be cropped while reading, which uses less memory.
            crops=None if to_resize else [(box.top, box.left, box.height, box.width) for box in boxes],
        )
        if to_resize:
            clips = crop_clips(clips, boxes, size)
        seeds = rng.integers(2**63, size=settings.num_clips).tolist()
        return _Read(
            key.number,
            apply(torch.from_numpy(clips), augmentation.draw(seeds)),
            timed_clips(video.id, frame_numbers, index),
        )


def _begin_worker(_: int) -> None:
    """In a worker: limit its memory, since it only decodes untrusted files."""
    limit_this_process()


def _whole(batches: Iterator[ClipBatch | ProvicoError]) -> ClipBatch | None:
    """The next batch, if there is one; errors of workers are raised here."""
    try:
        batch = next(batches, None)
    except RuntimeError as error:
        if (sentence := lost_worker(error)) is None:
            raise
        raise ConfigError(sentence) from error
    except (ConnectionError, EOFError) as error:  # it was killed while it handed a batch over
        with suppress(RuntimeError):
            time.sleep(SECONDS_UNTIL_TOLD)
        raise ConfigError(LOST_WORKER) from error
    if isinstance(batch, ProvicoError):
        raise batch
    return batch


def _collate(read: Sequence[_Outcome]) -> ClipBatch | ProvicoError:
    for outcome in read:
        if isinstance(outcome, ProvicoError):
            return outcome
    good = [video for video in read if isinstance(video, _Read)]
    return ClipBatch(
        pixels=torch.stack([video.pixels for video in good]) if good else torch.empty(0, dtype=torch.uint8),
        videos=torch.tensor([video.number for video in good], dtype=torch.int64),
        clips=tuple(video.clips for video in good),
        broken=tuple(video for video in read if not isinstance(video, _Read | _Long | ProvicoError)),
        long=tuple(video.number for video in read if isinstance(video, _Long)),
    )
