"""The verb that finds copies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from provico.cli.arguments import Json, announce, print_json

if TYPE_CHECKING:
    from provico.data.catalog import Catalog
    from provico.search.index import Index

LEAKS_FOUND = 1
"""Exit status; 2 is an error."""


def dedup(
    index: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="INDEX")],
    *,
    against: Path | None = None,
    min_probability: float = 0.5,
    num_candidates: int = 20,
    out: Path | None = None,
    fail_on_leaks: bool = False,
    allow_import: bool = False,
    as_json: Json = False,
) -> None:
    """Find videos that show the same recording: copies, excerpts, and leaks between train and test.

    Copies are found through re-encoding, other sizes, bars, crops, other speeds, mirroring, and as parts of
    longer videos. The files are read; docs/dedup.md says how it is decided, and what it misses.

    Args:
        index: folder of the index.
        against: another index or folder of videos: find only what is on both sides.
        min_probability: show only pairs that are at least so probable.
        num_candidates: with how many others each video is compared, by embedding and by picture each.
        out: write the pairs to this file too, .csv or .parquet, or the whole report, .json; the page shows
            the groups in INDEX/duplicates.json.
        fail_on_leaks: exit with status 1 if the same recording is on both sides, or in two subsets.
        allow_import: allow the encoder to import a network by name, which runs its code.
    """
    from provico.duplicates import find_duplicates
    from provico.duplicates.report import check_report_name
    from provico.progress import progress_bar
    from provico.search.index import Index
    from provico.show import show_duplicates

    if out is not None:
        check_report_name(out)
    opened = Index.open(index, allow_import=allow_import)
    other = None if against is None else _open_side(against, allow_import=allow_import)
    with progress_bar("Looking for copies") as progress:
        report = find_duplicates(
            opened,
            other=other,
            min_probability=min_probability,
            num_candidates=num_candidates,
            progress=progress,
        )
    if out is not None:
        report.write(out)
    if as_json:
        print_json(report.summary())
    else:
        show_duplicates(report)
        if out is not None:
            announce(f"{len(report.pairs):,} pairs in {out}")
    if fail_on_leaks and report.leaks:
        sys.exit(LEAKS_FOUND)


def _open_side(path: Path, *, allow_import: bool) -> Index | Catalog:
    from provico.data.catalog import open_catalog
    from provico.search.index import Index
    from provico.search.store.folder import SETTINGS_NAME

    if (path / SETTINGS_NAME).is_file():
        return Index.open(path, allow_import=allow_import)
    return open_catalog(path)
