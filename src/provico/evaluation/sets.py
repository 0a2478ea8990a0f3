"""The training and test videos of an evaluation."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from provico.data.catalog import Catalog, open_catalog
from provico.errors import CatalogError, ConfigError


@dataclass(frozen=True)
class Sets:
    """Training and test videos with one list of classes; equal if each video is tested on the rest."""

    train: Catalog
    test: Catalog
    name: str
    """The name of the division: "split 1", "test videos of B", "0.25 held out"."""

    @property
    def is_one(self) -> bool:
        """Whether each video is compared with all others, since there is no test set."""
        return self.train is self.test


def open_sets(
    data: Path | str,
    *,
    layout: str = "auto",
    split: int = 1,
    test_data: Path | str | None = None,
    hold_out: float | None = None,
    allow_missing: bool = False,
    leave_one_out: bool = False,
) -> Sets:
    """Open the training and test videos of a data set.

    test_data: another data set to test on; the classes of both must have the same names.
    hold_out: test on this share of the videos, by whole groups; for a data set without a test set.
    leave_one_out: without a test set, compare each video with all others instead of raising an error.
    """

    def opened(path: Path | str, subset: str) -> Catalog:
        return open_catalog(path, layout=layout, split=split, subset=subset, allow_missing=allow_missing)

    def part(path: Path | str, name: str) -> Catalog:
        """The part of the data set, or all of it if it has no parts."""
        everything = opened(path, "all")
        return opened(path, name) if name in {video.subset for video in everything} else everything

    if test_data is not None and hold_out is not None:
        raise ConfigError("--test-data and --hold-out both define the test set. Give only one of them.")
    if test_data is not None:
        train, test = part(data, "train"), part(test_data, "test")
        return Sets(*_same_classes(train, test), name=f"test videos of {Path(test_data).name}")
    everything = opened(data, "all")
    if hold_out is not None:
        kept, held = divide(everything, hold_out)
        return Sets(kept, held, name=f"{hold_out:g} held out")
    parts = {video.subset for video in everything}
    unlabelled = {video.subset for video in everything if video.label is None}
    # Kinetics has no public test labels, so the validation videos are the test set.
    test_name = next((name for name in ("test", "val") if name in parts - unlabelled), None)
    if "train" in parts and test_name is not None:
        return Sets(opened(data, "train"), opened(data, test_name), name=f"split {split}")
    if leave_one_out:
        return Sets(everything, everything, name="each video against all others")
    raise CatalogError(
        f"{everything.root}, read in the layout {everything.layout}, has no division into training and test "
        "videos. Give --hold-out 0.25 to test on a quarter of them, or --test-data."
    )


def divide(catalog: Catalog, share: float, *, seed: int = 0) -> tuple[Catalog, Catalog]:
    """Videos to keep and videos to hold out: about this share of each class, by whole groups.

    Videos of one group come from one recording: a group on both sides would be found by its scenery. At least
    one group of each class is held out; a class with a single group is kept whole.
    """
    if not 0 < share < 1:
        raise ConfigError(f"The share to hold out is {share}, but it must be between 0 and 1.")
    rng = np.random.default_rng([seed, len(catalog)])
    members: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, (video, label) in enumerate(zip(catalog, catalog.labels, strict=True)):
        members[label][video.id if video.group is None else video.group].append(number)
    held: list[int] = []
    for label in sorted(members):
        groups = list(members[label].values())
        wanted = share * sum(map(len, groups))
        chosen: list[int] = []
        for index in rng.permutation(len(groups))[:-1]:
            if chosen and len(chosen) + len(groups[index]) / 2 > wanted:
                break
            chosen += groups[index]
        held += chosen
    if not held:
        raise ConfigError(
            f"No video can be held out of {len(catalog)}: every class has a single group. Add videos."
        )
    barred = set(held)
    kept = [number for number in range(len(catalog)) if number not in barred]
    return catalog.subset(kept), catalog.subset(sorted(held))


def _same_classes(train: Catalog, test: Catalog) -> tuple[Catalog, Catalog]:
    """Both sets with the classes of the training set, which must contain all test classes."""
    for catalog in (train, test):
        _ = catalog.labels  # raises if a video has none
    if unknown := sorted({str(video.label) for video in test} - set(train.classes)):
        raise CatalogError(
            f"{len(unknown)} classes of the test videos are not among the {len(train.classes)} training "
            f"classes, the first of them {unknown[0]}. Class names must be the same in both."
        )
    return train, replace(test, classes=train.classes)
