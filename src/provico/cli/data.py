"""Verbs for the first steps: the demo, checking videos, preparing frames."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from provico.cli.arguments import Json, Videos, announce, give, open_choice, print_json
from provico.config import Reading
from provico.defaults import NUM_FRAMES, SHORT_SIDE, STORE


def demo(*, out: Path = Path("demo"), num_workers: int | None = None) -> None:
    """Run the whole pipeline on the demo set: write videos, pretrain, evaluate, index, search.

    Args:
        out: folder for all output; a demo set that is already in it is reused.
        num_workers: processes to use; one per core if not given.
    """
    from provico.demo import run

    run(out, num_workers=num_workers)


def doctor(*, as_json: Json = False) -> None:
    """Check what works on this machine: versions, decoders, accelerators, folders."""
    from provico.doctor import examine, show

    checks = examine()
    if as_json:
        print_json({check.name: {"works": check.works, "found": check.found} for check in checks})
    else:
        show(checks)


def demo_data(
    out: Annotated[Path, tyro.conf.Positional],
    *,
    videos_per_class: int = 24,
    seed: int = 0,
    num_workers: int | None = None,
) -> None:
    """Write the demo set: small videos whose classes differ only in motion, some ambiguous on purpose.

    Args:
        out: folder to write; it must not exist yet.
        videos_per_class: videos per class.
        seed: random seed; the same seed writes the same bytes.
        num_workers: processes to use; one per core if not given.
    """
    from provico.data.demo_set.videos import write_demo_set
    from provico.progress import progress_bar

    with progress_bar("Writing videos") as progress:
        made = write_demo_set(
            out, videos_per_class=videos_per_class, seed=seed, num_workers=num_workers, progress=progress
        )
    print(f"{made.num_videos} videos of {len(made.classes)} classes written to {out}")


def scan(
    choice: Videos,
    *,
    reading: Reading = Reading(),
    out: Path = Path("scan"),
    min_frames: int = NUM_FRAMES,
    as_json: Json = False,
) -> None:
    """Decode every video once and report which are unreadable, damaged, black, frozen or duplicates.

    Writes manifest.csv (which every command accepts as DATA), bad_videos.csv and summary.json. An interrupted
    scan resumes where it stopped.

    Args:
        choice: which videos to use.
        reading: how files are read.
        out: folder for the results.
        min_frames: videos with fewer frames are flagged as short.
    """
    from provico.data.scan import scan as scan_videos
    from provico.progress import progress_bar
    from provico.show import show_scan

    catalog = open_choice(choice)
    with progress_bar("Scanning") as progress:
        report = scan_videos(
            catalog,
            min_frames=min_frames,
            num_workers=reading.num_workers,
            timeout_seconds=reading.timeout_seconds,
            progress=progress,
        )
    manifest = report.write(out)
    if as_json:
        print_json(report.summary())
    else:
        show_scan(report, manifest)


def prepare(
    choice: Videos,
    *,
    reading: Reading = Reading(),
    store: str = STORE,
    short_side: int = SHORT_SIDE,
    out: Path | None = None,
    as_json: Json = False,
) -> None:
    """Store frames at training size, which makes loading many times faster.

    Prepared frames are used automatically. An interrupted run resumes where it stopped; changed videos are
    prepared again.

    Args:
        choice: which videos to use.
        reading: how files are read.
        store: jpeg is fast; raw is the fastest and takes twelve times the space; mp4 is the smallest; or
            another of STORES.
        short_side: pixels of the shorter side of the stored frames.
        out: folder for the frames; ProViCo's own cache folder if not given.
    """
    from provico.data.frames.prepared import prepare as prepare_videos
    from provico.progress import progress_bar
    from provico.show import show_prepared

    catalog = open_choice(choice)
    with progress_bar("Preparing") as progress:
        report = prepare_videos(
            catalog,
            folder=out,
            store=store,
            short_side=short_side,
            num_workers=reading.num_workers,
            timeout_seconds=reading.timeout_seconds,
            announce=announce,
            progress=progress,
        )
    give(report, show_prepared, as_json=as_json)
