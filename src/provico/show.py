"""Results as tables for people, on stdout."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from provico.data.scan import FLAGS

if TYPE_CHECKING:
    from provico.data.cache import PrepareReport
    from provico.data.scan import ScanReport
    from provico.training.pretrain import PretrainReport

_NUM_SHOWN = 10


def show_scan(report: ScanReport, manifest: Path) -> None:
    """Totals, what is flagged, and the first unreadable files with their reasons."""
    summary = report.summary()
    console = Console()
    table = Table("", "", show_header=False, box=None)
    table.add_row("videos", f"{summary['videos']:,}")
    table.add_row("readable", f"{summary['readable']:,} ({summary['hours']} h, {summary['frames']:,} frames)")
    table.add_row("unreadable", f"{summary['unreadable']:,}")
    if summary["classes"]:
        table.add_row("classes", f"{summary['classes']:,}")
    codecs, flags = summary["codecs"], summary["flags"]
    assert isinstance(codecs, dict)
    assert isinstance(flags, dict)
    table.add_row("codecs", ", ".join(f"{name} {count:,}" for name, count in codecs.items()) or "none")
    for flag, count in flags.items():
        if count:
            table.add_row(flag, f"{count:,} ({FLAGS[flag]})")
    console.print(table)
    for video in report.unreadable[:_NUM_SHOWN]:
        console.print(escape(f"unreadable: {video.path}: {video.reason}"), style="red", soft_wrap=True)
    if len(report.unreadable) > _NUM_SHOWN:
        console.print(f"... and {len(report.unreadable) - _NUM_SHOWN} more in bad_videos.csv")
    console.print(escape(f"Manifest written to {manifest}"), soft_wrap=True)


def show_prepared(report: PrepareReport) -> None:
    """How many were prepared, and which were not."""
    console = Console()
    console.print(
        f"{report.num_prepared:,} prepared, {report.num_skipped:,} were ready before, "
        f"{len(report.failed):,} failed; {in_bytes(report.num_bytes)} on disk."
    )
    for path, reason in report.failed[:_NUM_SHOWN]:
        console.print(escape(f"failed: {path}: {reason}"), style="red", soft_wrap=True)


def in_bytes(number: float) -> str:
    """A size as people say it."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def show_pretrained(report: PretrainReport) -> None:
    """What came of a run, for people."""
    state = "finished" if report.is_finished else "stopped; --resume goes on"
    print(f"{report.num_steps} steps on {report.num_videos} videos in {report.seconds:.0f} s, {state}.")
    if report.num_broken:
        print(f"{report.num_broken} videos could not be read: {report.folder / 'bad_videos.csv'}")
    last = report.last
    if (rank := last.get("health/effective_rank")) is not None:
        print(
            f"Loss {last['loss']:.4g}; the means span {rank:.0f} directions; the median uncertainty is "
            f"{last['health/uncertainty_median']:.3g}."
        )
    if report.is_finished:
        print(f"Encoder: {report.encoder_folder}   Curves: {report.folder / 'report.html'}")


def show_before_and_after(
    before: dict[str, dict[int, float]],
    after: dict[str, dict[int, float]],
    *,
    num_classes: int,
    failure_line: str,
) -> None:
    """Recall at k by each metric, for an encoder as it started and as it ended."""
    print(f"\nDoes a test video find a training video of its class? Chance is {1 / num_classes:.1%}.")
    table = Table("", "before", "after", box=None)
    for metric, recalls in before.items():
        for k in recalls:
            table.add_row(f"R@{k}, {metric}", f"{before[metric][k]:.1%}", f"{after[metric][k]:.1%}")
    Console().print(table)
    print(failure_line + ".")
