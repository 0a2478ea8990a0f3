"""What the site adds to the files in docs/: pages that are made from the code, and files that pages link to.

Every page can be read on its own in the repository, where links lead to sources. On the site these become
pages of plain text, so that no link leads nowhere and none leaves the site.
"""

from __future__ import annotations

import html
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))
from reference import PAGES  # noqa: E402

AT_THE_ROOT = ("CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md")
"""Pages that lie beside docs/ in the repository, where people look for them."""
_LINK = re.compile(r"(\]\()(?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?(\))")
_SHOWN_AS_TEXT = {
    ".ipynb",
    ".py",
    ".pyi",
    ".json",
    ".jsonl",
    ".csv",
    ".txt",
    ".yml",
    ".toml",
    ".md",
    ".cff",
    ".css",
    ".js",
    "",
}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are no files in docs/, and the files beyond docs/ that pages link to."""
    for name in AT_THE_ROOT:
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    for name, make in PAGES.items():
        files.append(File.generated(config, name, content=make()))
    for target in sorted(
        {target for file in list(files) if file.is_documentation_page() for target in _beyond(file)}
    ):
        path = ROOT / target
        if path.is_dir() or path.suffix in _SHOWN_AS_TEXT:
            files.append(File.generated(config, f"source/{target}.html", content=_as_page(path, target)))
        else:
            files.append(File.generated(config, f"source/{target}", content=path.read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead links that leave docs/ to where their targets are on the site."""
    src = page.file.src_uri

    def led(match: re.Match[str]) -> str:
        opening, target, anchor, closing = match[1], match[2], match[3] or "", match[4]
        if posixpath.normpath(target) in ("decisions", "docs/decisions"):
            target, anchor = posixpath.join(target, "README.md"), ""
        found = _target(src, target)
        if found is None:
            return f"{opening}{target}{anchor}{closing}"
        if found.startswith("docs/"):
            return f"{opening}{found.removeprefix('docs/')}{anchor}{closing}"
        if found in AT_THE_ROOT:
            place = found
        else:
            path = ROOT / found
            is_text = path.is_dir() or path.suffix in _SHOWN_AS_TEXT
            place, anchor = f"source/{found}{'.html' if is_text else ''}", ""
        return f"{opening}{posixpath.relpath(place, posixpath.dirname(src) or '.')}{anchor}{closing}"

    return _outside_code(markdown, lambda text: _LINK.sub(led, text))


def _target(src: str, target: str) -> str | None:
    """What a link of a page leads to, relative to the root of the repository; None for a page of the site."""
    folder = posixpath.dirname(src) if src in AT_THE_ROOT else posixpath.join("docs", posixpath.dirname(src))
    found = posixpath.normpath(posixpath.join(folder, target))
    if found.startswith("docs/") and src not in AT_THE_ROOT:
        return None
    return found


def _beyond(file: File) -> set[str]:
    """The files beyond docs/ that a page links to."""
    found: set[str] = set()

    def note(text: str) -> str:
        for match in _LINK.finditer(text):
            target = _target(file.src_uri, match[2])
            if target and not target.startswith("docs/") and target not in AT_THE_ROOT:
                found.add(target)
        return text

    _outside_code(file.content_string, note)
    missing = sorted(target for target in found if not (ROOT / target).exists())
    if missing:
        raise FileNotFoundError(f"{file.src_uri} links to {', '.join(missing)}, which is not there.")
    return found


def _outside_code(markdown: str, change: Any) -> str:
    """The text with what is outside of blocks of code changed."""
    parts = re.split(r"(^```.*?^```[^\n]*$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if number % 2 else change(part) for number, part in enumerate(parts))


def _as_page(path: Path, name: str) -> str:
    """A text file, or the names in a folder, as a plain page."""
    if path.is_dir():
        text = "\n".join(
            sorted(
                one.name + ("/" if one.is_dir() else "") for one in path.iterdir() if one.name[0] not in "._"
            )
        )
    else:
        text = path.read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(name)} - ProViCo</title>\n"
        "<style>:root{color-scheme:light dark}body{margin:1.5rem;font:15px/1.5 system-ui,sans-serif}"
        "pre{font:13px/1.5 ui-monospace,monospace;overflow-x:auto}</style>\n"
        f"<h1>{html.escape(name)}</h1>\n<pre>{html.escape(text)}</pre>\n</html>\n"
    )
