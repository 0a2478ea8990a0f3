"""Verbs for the first minutes: see it work, see what works."""

from __future__ import annotations

from pathlib import Path

from provico.cli.arguments import Json, print_json


def demo(*, out: Path = Path("demo"), num_workers: int | None = None) -> None:
    """Run everything from end to end on the demo set: write, learn, evaluate, index, search.

    Args:
        out: folder for everything the demo makes; the demo set in it is made once and used again.
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
