"""Verbs that clean a collection: curation and duplicates."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from provico.cli.arguments import Json, announce, give, print_json
from provico.config.data import CurationRules

if TYPE_CHECKING:
    from provico.data.catalog import Catalog
    from provico.search.index import Index


def curate(
    index: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="INDEX")],
    *,
    out: Path | None = None,
    rules: Annotated[CurationRules, tyro.conf.arg(name="curation")] = CurationRules(),
    num_workers: int | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    allow_import: bool = False,
    as_json: Json = False,
) -> None:
    """Propose which videos to drop, trim, review or keep, with a reason for each. No video is changed.

    The page shows the same proposals. Duplicates are proposed if `provico dedup` has found them. Writes
    manifest.csv, which lists the videos to keep and which every command accepts as DATA. Decisions made on
    the page take precedence.

    Args:
        index: folder of the index, or a folder that `provico open` has opened.
        out: folder of the curation; inside the index, where the page finds it, if not given.
        rules: when a video stands out.
        num_workers: processes that decode; one per core if not given.
        device: where the network runs; auto uses a GPU if there is one.
        allow_import: allow the encoder to import a network by name, which runs its code.
    """
    from provico.curation.folder import CurationFolder
    from provico.curation.job import curate as curate_videos
    from provico.processes import join, keep_freed_memory
    from provico.progress import progress_bar
    from provico.search.index import Index
    from provico.show import show_curated

    keep_freed_memory()
    opened = Index.open(index, allow_import=allow_import)
    with join(device) as processes, progress_bar("Curating") as progress:
        report = curate_videos(
            opened,
            out=out,
            rules=rules,
            num_workers=num_workers or 0,
            device=processes.device,
            progress=progress,
        )
    for line in CurationFolder(report.folder).decisions.read().damaged:
        announce(line)
    give(report, show_curated, as_json=as_json)


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

    Copies are found despite re-encoding, resizing, bars, cropping, changes of speed or mirroring, and as
    parts of longer videos. This reads the files; docs/dedup.md says how pairs are verified, and what is
    missed. The pairs are stored with the index for the page and for `provico curate`; those rejected there
    are left out.

    Args:
        index: folder of the index.
        against: another index or folder of videos: find only what is on both sides.
        min_probability: show only pairs with at least this probability.
        num_candidates: candidates per video, by embedding and again by picture.
        out: also write the pairs to this file, .csv or .parquet, or the whole report, .json.
        fail_on_leaks: exit with status 1 if the same recording is on both sides, or in two subsets.
        allow_import: allow the encoder to import a network by name, which runs its code.
    """
    from provico.duplicates import find_duplicates
    from provico.duplicates.kept import KeptDuplicates
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
    kept = KeptDuplicates(opened.path)
    report = report.without(kept.rejected())
    if other is None:
        kept.write(report)
    if out is not None and out.resolve() != kept.path.resolve():
        report.write(out)
    if as_json:
        print_json(report.summary())
    else:
        show_duplicates(report)
        if out is not None:
            announce(f"{len(report.pairs):,} pairs written to {out}")
    if fail_on_leaks and report.leaks:
        sys.exit(LEAKS_FOUND)


def _open_side(path: Path, *, allow_import: bool) -> Index | Catalog:
    from provico.data.catalog import open_catalog
    from provico.locations import current_index
    from provico.search.index import Index

    if current_index(path) is not None:
        return Index.open(path, allow_import=allow_import)
    return open_catalog(path)
