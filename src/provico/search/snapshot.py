"""One version of an index in memory: what is needed to rank all of its videos.

Clips and pictures stay in the store until a video is a hit. Samples are made again from ids and the seed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from provico.errors import ConfigError, VideoIndexError, did_you_mean
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture
from provico.probability.seeded_samples import seeded_samples
from provico.search.exact.clouds import Spread
from provico.search.exact.gallery import Gallery
from provico.search.store.folder import IndexSettings
from provico.search.store.row_cache import RowCache
from provico.search.store.video_store import Rows, VideoStore

SAMPLES_KEPT = 2**27
"""Up to so many numbers (512 MB) the samples are kept once they are made."""


ROWS_AT_ONCE = 4096
"""How many videos are read together where all of them are looked at."""


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which videos may be found; what is None does not matter."""

    labels: Sequence[str] | None = None
    groups: Sequence[str] | None = None
    subsets: Sequence[str] | None = None
    max_uncertainty: float | None = None
    min_seconds: float | None = None
    """Least duration."""
    max_seconds: float | None = None


class KnownVideos(Protocol):
    """What a query and an answer must know of the videos of one version, each of which has a number."""

    @property
    def settings(self) -> IndexSettings:
        """What all of them have in common."""
        ...

    def look_up(self, name: str) -> int | None:
        """The number of the video with this id; None if there is none."""
        ...

    def find_id(self, name: str) -> int:
        """The same, or an error that says what there is."""
        ...

    def find_path(self, path: Path) -> int | None:
        """The number of the video that this file was when it was indexed."""
        ...

    def id_of(self, number: int) -> str:
        """The id of a video."""
        ...

    def read(self, names: Sequence[str], numbers: Sequence[int]) -> Rows:
        """These columns of some videos."""
        ...

    def samples(self, numbers: Int[Tensor, "some"]) -> Float[Tensor, "some samples dim"]:
        """The K samples of some videos."""
        ...


class Snapshot:
    """The videos of one version, numbered in the order of their ids, whatever order they were added in."""

    def __init__(self, store: VideoStore, settings: IndexSettings) -> None:
        self.store, self.settings = store, settings
        self.ids = store.ids
        rows = store.read(("label", "group", "subset", "duration_seconds", "uncertainty", "mean", "log_var"))
        self.words = {name: np.array(rows[name], object) for name in ("label", "group", "subset")}
        self.duration_seconds = torch.from_numpy(rows["duration_seconds"])
        self.uncertainty = torch.from_numpy(rows["uncertainty"])
        self.videos = Gaussian(torch.from_numpy(rows["mean"]), torch.from_numpy(rows["log_var"]))
        self._rows = RowCache(store)
        self._kept: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def number_of_id(self) -> dict[str, int]:
        """The number of each video."""
        return {name: number for number, name in enumerate(self.ids)}

    @cached_property
    def number_of_path(self) -> dict[str, int]:
        """The number of the video at each path."""
        return {path: number for number, path in enumerate(self.store.read(("path",))["path"])}

    def look_up(self, name: str) -> int | None:
        """The number of the video with this id; None if there is none."""
        return self.number_of_id.get(name)

    def id_of(self, number: int) -> str:
        """The id of a video."""
        return self.ids[number]

    def read(self, names: Sequence[str], numbers: Sequence[int]) -> Rows:
        """These columns of some videos."""
        return self._rows.read(names, numbers)

    def chunks(self, names: Sequence[str]) -> Iterator[Rows]:
        """These columns of all videos, some at a time."""
        for first in range(0, len(self), ROWS_AT_ONCE):
            yield self.store.read(names, range(first, min(first + ROWS_AT_ONCE, len(self))))

    def find_path(self, path: Path) -> int | None:
        """The number of the video that this file was when it was indexed."""
        return self.number_of_path.get(as_indexed(path))

    def find_id(self, name: str) -> int:
        """The number of a video, or an error that names the nearest."""
        if name not in self.number_of_id:
            hint = did_you_mean(name, self.ids, otherwise="Give the id of an indexed video, or a file.")
            raise VideoIndexError(
                f"{name} is neither one of the {len(self):,} videos of the index, nor a file. {hint}"
            )
        return self.number_of_id[name]

    @cached_property
    def gallery(self) -> Gallery:
        """The videos as exact search wants them."""
        rows = self.store.read(("sample_mean", "sample_spread"))
        spread = Spread(*torch.from_numpy(rows["sample_spread"]).T.contiguous())
        return Gallery(torch.from_numpy(rows["sample_mean"]), spread, self.samples)

    def samples(self, numbers: Int[Tensor, "some"]) -> Float[Tensor, "some samples dim"]:
        """The K samples of some videos."""
        shape = (len(self), self.settings.num_samples, self.videos.dim)
        if np.prod(shape, dtype=np.int64) > SAMPLES_KEPT:
            return self._make_samples(numbers)
        if self._kept is None:
            self._kept = torch.empty(shape), torch.zeros(len(self), dtype=torch.bool)
        samples, is_made = self._kept
        missing = torch.from_numpy(np.unique(numbers[~is_made[numbers]]))
        samples[missing] = self._make_samples(missing)
        is_made[missing] = True
        return samples[numbers]

    def _make_samples(self, numbers: Int[Tensor, "some"]) -> Float[Tensor, "some samples dim"]:
        videos = Gaussian(self.videos.mean[numbers], self.videos.log_var[numbers])
        return gallery_samples([self.ids[number] for number in numbers.tolist()], videos, self.settings)

    def allowed(self, filter: Filter) -> Bool[Tensor, "videos"]:
        """Which videos pass a filter."""
        passes = torch.ones(len(self), dtype=torch.bool)
        for name, wanted in (("label", filter.labels), ("group", filter.groups), ("subset", filter.subsets)):
            if wanted is not None:
                passes &= self._has_word(name, wanted)
        if filter.max_uncertainty is not None:
            passes &= self.uncertainty <= filter.max_uncertainty
        if filter.min_seconds is not None:
            passes &= self.duration_seconds >= filter.min_seconds
        if filter.max_seconds is not None:
            passes &= self.duration_seconds <= filter.max_seconds
        return passes

    def same_group(self, number: int) -> Bool[Tensor, "videos"]:
        """The videos that were cut from the same recording as this one, as far as that is known."""
        group = self.words["group"][number]
        same = torch.from_numpy(np.asarray(self.words["group"] == group, bool) & (group is not None))
        same[number] = True
        return same

    def _has_word(self, name: str, wanted: Sequence[str]) -> Bool[Tensor, "videos"]:
        known = {word for word in self.words[name] if word is not None}
        for word in wanted:
            if word not in known:
                hint = did_you_mean(word, known, otherwise=f"There are {len(known)} {name}s.")
                raise ConfigError(f"No video of the index has the {name} {word!r}. {hint}")
        return torch.tensor([word in wanted for word in self.words[name]])


def gallery_samples(
    ids: Sequence[str], videos: Gaussian, settings: IndexSettings
) -> Float[Tensor, "videos samples dim"]:
    """The K samples of some videos, from their distributions "videos dim"."""
    if not ids:
        return torch.empty(0, settings.num_samples, videos.dim)
    # A mixture of one clip is that clip, to the last bit.
    one_clip = Gaussian(videos.mean.unsqueeze(1), videos.log_var.unsqueeze(1))
    return seeded_samples(
        ids, Mixture(one_clip), num_samples=settings.num_samples, seed=settings.seed, stream="gallery"
    )


def as_indexed(path: Path) -> str:
    """A path as it is written down in an index."""
    return os.path.normpath(path.absolute())
