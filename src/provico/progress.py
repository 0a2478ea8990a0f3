"""Progress bars with the time left, on stderr so that stdout holds only results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """A callback with the number of finished items, the total, and an optional note to display."""

    def __call__(self, done: int, total: int, note: str = "", /) -> None:
        """Report progress."""


def silent(done: int, total: int, note: str = "") -> None:
    """Report nothing."""


@contextmanager
def progress_bar(description: str) -> Iterator[Progress]:
    """A progress bar that appears with the first report and stays on screen at the end."""
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        bars.TextColumn("left"),
        bars.TimeRemainingColumn(),
        bars.TextColumn("{task.fields[note]}"),
    )
    console = Console(stderr=True)
    with bars.Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task: bars.TaskID | None = None

        def report(done: int, total: int, note: str = "") -> None:
            nonlocal task
            if task is None:
                task = bar.add_task(description, total=total, note=note)
            bar.update(task, completed=done, total=total, note=note)

        yield report
