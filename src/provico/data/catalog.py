"""Catalogs of videos, from a folder, a list or a public benchmark.

Labels are optional everywhere, since pretraining does not need them; whatever needs them uses
`Catalog.labels`, which raises an error if they are missing. Nothing is decoded, and torch is not imported,
which keeps this fast.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from provico.data.frames.frame_index import FrameIndex
from provico.data.layouts.listing import DataPath, Entry, Layout, Listing
from provico.data.layouts.official import HMDB51, KINETICS, UCF101
from provico.data.layouts.own import CLASS_FOLDERS, FEATURES_LAYOUT, FOLDER, LIST, MANIFEST, STORED_FEATURES
from provico.errors import CatalogError, UnreadableVideoError, did_you_mean

SUBSETS = ("all", "train", "val", "test")
_NUM_SHOWN = 3  # names in a message about many
_FRAMES_SHOWN = 6

LAYOUTS: dict[str, Layout] = {
    "ucf101": UCF101,
    "hmdb51": HMDB51,
    "kinetics": KINETICS,
    FEATURES_LAYOUT: STORED_FEATURES,
    "manifest": MANIFEST,
    "list": LIST,
    "class-folders": CLASS_FOLDERS,
    "folder": FOLDER,
}
"""All layouts by name. The first one that recognises the data reads it, so the most specific come first."""


@dataclass(frozen=True)
class Video:
    """One video file and its metadata, without opening it."""

    path: Path
    id: str
    """Posix path relative to the root of the catalog, so that it is the same on every machine; absolute only
    for a file outside the root."""
    label: str | None = None
    group: str | None = None
    """The recording; videos of one recording are not independent. None if unknown."""
    subset: str | None = None
    """The part of the split that it belongs to: train, val or test; None if there are none."""
    span: tuple[float, float] | None = None
    """Start and end in seconds of the used part of the file; None for all of it."""

    def _repr_html_(self) -> str:
        """Some of its frames, for notebooks."""
        import numpy as np

        from provico.data.frames.video import index_video, read_frames
        from provico.display import strip

        index = index_video(self.path)
        frames = frames_of(self, index)
        chosen = np.linspace(frames.start, frames.stop - 1, _FRAMES_SHOWN).round().astype(np.int64)
        about = f"{self.id}, {len(frames)} frames" + (f", {self.label}" if self.label else "")
        return strip(read_frames(self.path, chosen, index=index), caption=about)


def frames_of(video: Video, index: FrameIndex) -> range:
    """The frame numbers of a video within its file; raises an error if there are none."""
    if video.span is None:
        return range(index.num_frames)
    frames = index.frames_within(*video.span)
    if not frames:
        start, end = video.span
        raise UnreadableVideoError(
            video.path,
            f"it has no frame between {start:g} and {end:g} s; it lasts {index.duration_seconds:.2f} s.",
        )
    return frames


@dataclass(frozen=True)
class Catalog:
    """The videos of a data set in a fixed order, with class names in the order of their numbers."""

    root: Path
    layout: str
    videos: tuple[Video, ...]
    classes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Ids of listed files that are missing, if that is allowed."""
    num_other_files: Mapping[str, int] = field(default_factory=dict)
    """Files of a folder that are not videos, by suffix; empty for lists."""
    part: tuple[int, int] | None = None
    """The part of the data set, from 1, and the number of parts; None for all of it."""

    def __post_init__(self) -> None:
        if len({video.id for video in self.videos}) != len(self.videos):
            raise ValueError("Two videos of a catalog have the same id.")
        if unknown := {video.label for video in self.videos} - {None, *self.classes}:
            raise ValueError(f"The labels {sorted(map(str, unknown))} are not among the classes.")

    def __len__(self) -> int:
        return len(self.videos)

    def __iter__(self) -> Iterator[Video]:
        return iter(self.videos)

    def __getitem__(self, number: int) -> Video:
        return self.videos[number]

    @cached_property
    def labels(self) -> tuple[int, ...]:
        """The class number of every video, from 0; raises an error if any has no label."""
        index_of = {name: index for index, name in enumerate(self.classes)}
        without = [video.id for video in self.videos if video.label is None]
        if without:
            raise CatalogError(
                f"{len(without)} of {len(self)} videos in {self.root} have no label, {_some(without)}, but "
                "labels are needed here. Put videos into class folders, or give a list with labels."
            )
        return tuple(index_of[video.label] for video in self.videos if video.label is not None)

    @property
    def is_labelled(self) -> bool:
        """Whether every video has a label."""
        return all(video.label is not None for video in self.videos)

    def subset(self, indices: Iterable[int]) -> Catalog:
        """The videos with these indices, in this order; classes keep theirs."""
        return replace(self, videos=tuple(self.videos[index] for index in indices))

    def joined(self, *others: Catalog) -> Catalog:
        """These videos, then those of other catalogs, to train on all of them; each file once.

        Videos of other catalogs get their absolute paths as ids, and no label, group or subset, which may
        have another meaning there.
        """
        if others and FEATURES_LAYOUT in {catalog.layout for catalog in (self, *others)}:
            raise CatalogError("A file of features cannot be joined with other data. Leave out --also.")
        videos, known = list(self.videos), {_place(video) for video in self.videos}
        for video in (video for other in others for video in other):
            if (place := _place(video)) not in known:
                known.add(place)
                part = "" if video.span is None else f"#{video.span[0]:g}-{video.span[1]:g}"
                videos.append(Video(video.path, video.path.absolute().as_posix() + part, span=video.span))
        return replace(self, videos=tuple(videos))


def open_catalog(
    data: Path | str,
    *,
    layout: str = "auto",
    split: int | tuple[int, ...] = 1,
    subset: str = "all",
    allow_missing: bool = False,
    part: tuple[int, int] | None = None,
) -> Catalog:
    """Open the videos of a data set.

    data: a folder, a list or manifest, or one video file.
    layout: a name of `LAYOUTS`, or "auto" for the first that recognises the data.
    split: the official split of UCF101 or HMDB51, 1 to 3; several numbers give the union of their videos.
    subset: "train", "val" or "test" of that split, or "all" of them; videos that a split excludes are never
        included.
    allow_missing: skip listed videos that are missing; they are named in `Catalog.missing`.
    part: number of the part, from 1, and number of parts; see `part_of`.
    """
    source = DataPath(Path(os.path.normpath(Path(data).expanduser().absolute())))
    if not source.path.exists():
        raise CatalogError(f"{source.path} does not exist. Give a folder, a list or a video file.")
    name = _recognised(source) if layout == "auto" else _known(layout)
    listing = LAYOUTS[name].read(source, _checked_splits(split, name))
    if listing is None:
        raise CatalogError(
            f"{source.path} is not in the layout {name}, which needs {LAYOUTS[name].needs}. "
            f"It looks like the layout {_recognised(source)}: name that one, or leave out --layout."
        )
    entries = _unique(_chosen(listing, subset, name))
    if part is not None and entries:
        number, num_parts = part
        entries = [one for one in entries if part_of(one.id, one.group, num_parts) == number]
        if not entries:
            raise CatalogError(
                f"No video of {source.path} is in part {number} of {num_parts}. Use fewer parts."
            )
    missing = tuple(entry.id for entry in entries if entry.path is None)
    if missing and not (allow_missing and len(missing) < len(entries)):
        raise CatalogError(
            f"{len(missing)} of {len(entries)} videos listed in {source.path} are missing from "
            f"{listing.root}: {_some(missing)}. " + _way_out(all_missing=len(missing) == len(entries))
        )
    if not entries:
        raise CatalogError(_nothing_found(source))
    videos = tuple(
        Video(entry.path, entry.id, entry.label, entry.group, entry.subset, entry.span)
        for entry in entries
        if entry.path is not None
    )
    others = dict(source.found.num_other_files.most_common()) if source.path.is_dir() else {}
    return Catalog(listing.root, name, videos, listing.classes, missing, others, part)


def part_of(video_id: str, group: str | None, num_parts: int) -> int:
    """The part, from 1, that a video belongs to: the same for all of a recording, on every machine. With one
    more part, only videos that move to the new part change (jump consistent hashing:
    With one part more, only what goes into the new part changes its place (jump consistent hashing:
    https://arxiv.org/abs/1406.2294).
    """
    name = (group or video_id).encode(errors="surrogateescape")
    state = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big")
    place, following = 0, 0
    while following < num_parts:
        place = following
        state = (state * 2862933555777941757 + 1) % 2**64
        following = (place + 1) * 2**31 // ((state >> 33) + 1)
    return place + 1


def _place(video: Video) -> tuple[Path, tuple[float, float] | None]:
    return video.path.resolve(), video.span


def _recognised(source: DataPath) -> str:
    return next(name for name, layout in LAYOUTS.items() if layout.recognise(source))


def _known(layout: str) -> str:
    if layout not in LAYOUTS:
        raise CatalogError(f'There is no layout "{layout}". {did_you_mean(layout, ["auto", *LAYOUTS])}')
    return layout


def _checked_splits(split: int | tuple[int, ...], layout: str) -> tuple[int, ...]:
    splits = (split,) if isinstance(split, int) else split
    highest = LAYOUTS[layout].num_splits
    if not splits or not all(1 <= number <= highest for number in splits):
        known = f"the splits 1 to {highest}" if highest > 1 else "no numbered splits: leave out --split"
        raise CatalogError(f"There is no split {split} here. The layout {layout} has {known}.")
    return splits


def _chosen(listing: Listing, subset: str, layout: str) -> list[Entry]:
    if subset not in SUBSETS:
        raise CatalogError(f'There is no subset "{subset}". Choose one of {", ".join(SUBSETS)}.')
    entries = [entry for entry in listing.entries if subset in ("all", entry.subset)]
    if listing.entries and not entries:
        known = sorted({entry.subset for entry in listing.entries if entry.subset})
        raise CatalogError(
            f"{listing.root}, read in the layout {layout}, has no {subset} videos: "
            + (
                f"it has {', '.join(known)}."
                if known
                else "it does not say what is for training and testing."
            )
            + " Choose another --subset, or all."
        )
    return entries


def _unique(entries: Iterable[Entry]) -> list[Entry]:
    """Unique videos: splits overlap, and so do the tables of Kinetics."""
    first: dict[str, Entry] = {}
    for entry in entries:
        known = first.setdefault(entry.id, entry)
        if known.label != entry.label:
            raise CatalogError(
                f"{entry.id} is listed twice, as {known.label} and as {entry.label}. Remove the wrong line."
            )
    return list(first.values())


def _way_out(*, all_missing: bool) -> str:
    if all_missing:
        return "Paths in a list are relative to its folder: is it in the right place?"
    return "Put them there, or pass --allow-missing to skip them."


def _nothing_found(source: DataPath) -> str:
    if source.path.is_file():
        return f"{source.path} lists no readable video. Add lines with their paths."
    others = source.found.num_other_files
    met = (
        ", ".join(f"{count} x {suffix}" for suffix, count in others.most_common(4)) or "no other files either"
    )
    return (
        f"There is no video in {source.path} or its folders, only {met}. "
        "Videos are recognised by their suffix (.mp4, .avi, .mkv, .webm, ...); hidden files are skipped."
    )


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:_NUM_SHOWN]) + (", ..." if len(names) > _NUM_SHOWN else "")
