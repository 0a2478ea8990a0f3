"""Phrases that we do not write, and lines of prose that are too long; `make lint` runs it.

Exit status 1, and one line for each: file, line, what was found, what is better.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 120
BETTER = {
    r"what is twice|there several times": "duplicates",
    r"again: only what is new": "rerun to add only new or changed files",
    r"every how many frames": "frame stride",
    r"foretell|foretold": "predict",
    r"told by labels which": "oracle mining",
    r"look tells the class": "classes differ in appearance",
    r"cannot be gone on with": "cannot be resumed",
    r"nobody can listen at": "cannot bind to",
    r"would be in vain": "cannot recover",
    r"which is about the nearest videos": "name the flag that is needed",
    r"\btell of the keys\b": "document the shortcuts",
    r"what suits the machine": "chosen for the machine",
    r"\bNothing here but\b": "of these settings, only",
    r"what came of (?:a run|a curation)\b": "the result",
    r"so that no two share their numbers": "a separate random stream for each purpose",
    r"keeps? (?:its|their) word": "is calibrated",
    r"sets? (?:of groups )?(?:drawn anew|redrawn)": "bootstrap",
    r"whatever (?:code of others|the user's code|exporters and runtimes) may raise": "may raise anything",
    r"Half a period of cosine": "cosine decay",
    r"Give yourself the right": "change its permissions",
    r"give the same command again": "run the same command again",
    r'"""(?-i:The same\b)': "open with the subject",
    r"(?-i:\b(?:TODO|FIXME|XXX)\b)": "do it, or leave it out",
}
HISTORY = {"docs/log.md", "CHANGELOG.md"}
"""They quote what was."""
NOT_WRAPPED = {"README.md"}


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def sources() -> list[Path]:
    return sorted(path for name in ("src", "examples", "benchmarks") for path in (ROOT / name).rglob("*.py"))


def phrases(path: Path) -> Iterator[str]:
    name = path.relative_to(ROOT).as_posix()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        for pattern, better in BETTER.items():
            if found := re.search(pattern, line, re.IGNORECASE):
                yield f"{name}:{number}: {found[0]!r}; better: {better}"


def long_lines(path: Path) -> Iterator[str]:
    """Prose alone: not tables, code, pictures or titles."""
    name, is_code = path.relative_to(ROOT).as_posix(), False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        is_code ^= line.lstrip().startswith("```")
        if len(line) > WIDTH and not is_code and not re.match(r"\s*(\||#|!\[|<)", line):
            yield f"{name}:{number}: {len(line)} characters; prose is wrapped at {WIDTH}"


def main() -> None:
    found = [
        line
        for path in [*documents(), *sources()]
        if path.relative_to(ROOT).as_posix() not in HISTORY
        for line in phrases(path)
    ]
    found += [
        line
        for path in documents()
        if path.relative_to(ROOT).as_posix() not in NOT_WRAPPED
        for line in long_lines(path)
    ]
    print("\n".join(found), end="\n" if found else "")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
