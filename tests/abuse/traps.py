"""A folder of videos that also holds a module under every name that ProViCo may import."""

from __future__ import annotations

import sys
from pathlib import Path

SPRUNG = "sprung"
"""The file to which a module writes its name if its code is run."""


def set_traps(folder: Path) -> None:
    """Add them to a folder."""
    names = {name.partition(".")[0] for name in sys.modules} | set(sys.stdlib_module_names)
    for name in names | {"sitecustomize", "usercustomize"}:
        code = f"open({str(folder / SPRUNG)!r}, 'a').write({name!r} + '\\n')\nraise ImportError('a trap')\n"
        (folder / f"{name}.py").write_text(code)


def sprung(folder: Path) -> list[str]:
    """Whose code was run."""
    said = folder / SPRUNG
    return sorted(set(said.read_text().split())) if said.exists() else []
