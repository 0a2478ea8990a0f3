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
