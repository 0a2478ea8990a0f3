"""What the documents name is there: files, modules, layers and links."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from pkgutil import resolve_name

import pytest

from .test_architecture import LAYERS, modules

ROOT = Path(__file__).parent.parent
HISTORY = {"docs/log.md", "CHANGELOG.md"}
"""They tell of files as they were."""
FOLDERS = ("src", "tests", "benchmarks", "docs", "examples")
FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.*"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")))
    if path.is_file()
)
DOCUMENTS = [name for name in FILES if name.endswith(".md") and name not in HISTORY]


def named_files(text: str) -> set[str]:
    """Paths in backticks, such as `data/loader.py` or `tests/data/test_loader.py`; commands do not count."""
    return set(re.findall(r"`((?:[\w.-]+/)*[\w-]+\.(?:pyi?|md|js|css|toml))`", text))


def is_there(name: str) -> bool:
    """Whether a file of the repository ends with this path, as a reader would look for it."""
    return any(file == name or file.endswith(f"/{name}") for file in FILES)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_that_a_document_names_exist(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    assert [name for name in sorted(named_files(text)) if not is_there(name)] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_names_of_modules_in_a_document_can_be_imported(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    for name in re.findall(r"`(provico(?:\.\w+)+)", text):
        resolve_name(name)


@pytest.mark.parametrize("document", [*DOCUMENTS, *sorted(HISTORY)])
def test_links_lead_somewhere(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)[^)]*\)", text)
    assert [target for target in targets if not ((ROOT / document).parent / target).exists()] == []


# --- docs/architecture.md ----------------------------------------------------------------------------------

ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def block_after(title: str) -> list[str]:
    """The lines of the first code block below a title."""
    return ARCHITECTURE.partition(f"## {title}\n")[2].split("```")[1].splitlines()[1:]


def modules_of_the_tree() -> list[str]:
    """Every module that the tree names, such as data.frames.video, in the order of the tree."""
    found: list[str] = []
    folders: list[str] = []
    for line in block_after("The tree"):
        if not line.startswith("  "):
            continue
        depth = (len(line) - len(line.lstrip())) // 2 - 1
        names = re.split(r"\s{2,}", line.strip())[0].split(", ")
        folders[depth:] = [names[0].rstrip("/")] if names[0].endswith("/") else []
        found += [".".join([*folders, name.removesuffix(".py")]) for name in names if name.endswith(".py")]
    return found


def test_the_tree_names_every_module_once_and_nothing_else() -> None:
    packages = {name.rpartition(".")[0] for name in modules()}
    ours = {name for name in modules() if name not in {"", "__main__"} and name not in packages}
    assert sorted(modules_of_the_tree()) == sorted(ours)


def test_the_layers_are_those_that_are_held() -> None:
    printed = [set(line.split()) for line in block_after("The layers")]
    assert printed == LAYERS


# --- docs/notation.md --------------------------------------------------------------------------------------


def test_names_of_the_notation_are_names_of_the_code() -> None:
    text = (ROOT / "docs" / "notation.md").read_text(encoding="utf-8")
    code = "\n".join(path.read_text(encoding="utf-8") for path in modules().values())
    known = set(re.findall(r"\w+", code))
    named = re.findall(r"`(?:\w+\.)?([A-Za-z]\w+)(?:=[^`]*|\([^`]*\))?`", text)
    assert sorted({name for name in named if name not in known}) == []


# --- CONTRIBUTING.md ---------------------------------------------------------------------------------------


def rows_of_contributing() -> list[tuple[str, str]]:
    """Each dict of the table with the file that is said to hold it."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = []
    for line in text.splitlines():
        if match := re.search(r"\| `([A-Z]+)` (?:in \[[^]]*\]\(([^)]+)\)|there) \|$", line):
            found.append((match[1], match[2] or re.findall(r"\]\(([^)]+)\)", line)[-1]))
    return found


@pytest.mark.parametrize(("name", "file"), rows_of_contributing())
def test_a_dict_to_add_to_is_where_contributing_says(name: str, file: str) -> None:
    assert re.search(rf"^{name}\b.*= \{{", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)


def test_contributing_has_its_table() -> None:
    assert len(rows_of_contributing()) >= 9


# --- .ci/hashes.py -----------------------------------------------------------------------------------------


def test_the_list_of_hashes_names_files_and_no_place() -> None:
    archive = {"url": "https://an.index/torch.whl", "archive_info": {"hashes": {"sha256": "ab" * 32}}}
    items = [
        {"metadata": {"name": "torch", "version": "2.13.0"}, "download_info": archive},
        {"metadata": {"name": "provico", "version": "0"}, "download_info": {"dir_info": {}, "url": "file:/"}},
    ]
    report = json.dumps({"install": items})
    command = [sys.executable, ROOT / ".ci" / "hashes.py"]
    said = subprocess.run(command, input=report, capture_output=True, text=True, check=True).stdout
    assert said == f"torch==2.13.0 --hash=sha256:{'ab' * 32}\n"


def test_the_version_and_its_date_are_the_same_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    citation = (ROOT / "CITATION.cff").read_text()
    found = re.search(r"^version: (.+)\ndate-released: (.+)$", citation, re.MULTILINE)
    assert found is not None
    assert found[1] == version
    assert f'image.version="{version}"' in (ROOT / "Dockerfile").read_text()
    headings = re.findall(r"^## \[(.+)\](.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[:2] == [("Unreleased", ""), (version, f" - {found[2]}")]
