"""Progress for people: a bar with the time left, on stderr so that results on stdout stay clean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]
"""Called with how many are done, and of how many."""


def silent(done: int, total: int) -> None:
    """Progress for nobody."""


@contextmanager
def progress_bar(description: str) -> Iterator[Progress]:
    """A bar that appears with the first report and stays on screen when it is full."""
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        bars.TextColumn("left"),
        bars.TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with bars.Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task: bars.TaskID | None = None

        def report(done: int, total: int) -> None:
            nonlocal task
            if task is None:
                task = bar.add_task(description, total=total)
            bar.update(task, completed=done, total=total)

        yield report
