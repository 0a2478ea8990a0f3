"""Pages of the reference, from the parser, the docstrings and the application itself."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import os
import re
import textwrap
from collections.abc import Callable
from functools import cached_property
from typing import Any

COLUMNS = 80
"""As many as fit beside the navigation."""
GROUPS = {
    "Start": ("open", "demo", "doctor"),
    "Search and clean": ("index", "search", "cut", "dedup", "curate", "uncertainty", "serve"),
    "Judge": ("select", "judge", "calibrate"),
    "Learn and embed": ("pretrain", "embed", "export", "info"),
    "Evaluate": (
        "evaluate retrieval",
        "evaluate linear",
        "evaluate finetune",
        "evaluate uncertainty",
        "reproduce",
    ),
    "Look at data": ("scan", "prepare", "demo-data"),
}
"""All commands; the site is not built if one is missing."""


def commands() -> str:
    """Every command with its help, as the parser prints it."""
    os.environ["COLUMNS"] = str(COLUMNS)
    from provico.cli import VERBS, main

    if {verb for verbs in GROUPS.values() for verb in verbs} != VERBS.keys():
        raise ValueError("GROUPS in docs/site/reference.py must list each command of provico.cli.VERBS.")
    parts = ["# Commands", "Each command prints this with `--help`.", _block(_said(main, ["--help"]))]
    for title, verbs in GROUPS.items():
        parts.append(f"## {title}")
        for verb in verbs:
            first = (VERBS[verb].__doc__ or "").splitlines()[0]
            parts += [f"### provico {verb}", first, _block(_said(main, [*verb.split(), "--help"]))]
    return "\n\n".join(parts) + "\n"


def python() -> str:
    """The public names with their signatures and docstrings."""
    import provico

    homes = provico._HOMES  # type: ignore[attr-defined]
    parts = [
        "# Python",
        "`import provico` gives these names. Whatever is not listed here may change without notice.",
    ]
    for title, module in (
        ("The package", None),
        ("Metrics", "provico.metrics"),
        ("mteb", "provico.evaluation.mteb_adapter"),
    ):
        parts.append(f"## {title}")
        if module is None:
            named = {name: getattr(provico, name) for name in sorted(homes)}
        else:
            home = importlib.import_module(module)
            parts.append(_text(home.__doc__ or ""))
            named = {
                n: v for n, v in vars(home).items() if getattr(v, "__module__", "") == module and n[0] != "_"
            }
        for name, value in named.items():
            parts += _described(name, value)
    return "\n\n".join(parts) + "\n"


def api() -> str:
    """What the page's server answers, from its OpenAPI description."""
    from fastapi import FastAPI

    from provico.explorer import app as application

    described_app = FastAPI()
    for routes in vars(application).values():  # a running one needs an index
        if inspect.ismodule(routes) and hasattr(routes, "router"):
            described_app.include_router(routes.router)
    described = described_app.openapi()
    parts = [
        "# JSON API",
        "`provico serve` answers these requests, and its page uses them. [The page](../explorer.md#api) has "
        "examples, and what headers are needed. A running server describes itself at `/api/openapi.json`.",
    ]
    for path, methods in described["paths"].items():
        for method, about in methods.items():
            parts.append(f"## {method.upper()} {path}")
            parts.append(_text(about.get("description") or about.get("summary") or ""))
            rows = [
                f"| `{one['name']}` | {one['in']} | {_kind(one['schema'])} | {_yes(one.get('required'))} |"
                for one in about.get("parameters", ())
            ]
            if rows:
                parts.append("\n".join(["| parameter | in | type | required |", "|---|---|---|---|", *rows]))
            answer = (
                about["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema")
            )
            if answer and "$ref" in str(answer):
                parts.append(f"Answers {_kind(answer)}.")
    parts.append("## Types")
    for name, schema in sorted(described.get("components", {}).get("schemas", {}).items()):
        rows = [f"| `{field}` | {_kind(one)} |" for field, one in schema.get("properties", {}).items()]
        if rows:
            parts.append(f"### {name}")
            parts.append("\n".join(["| field | type |", "|---|---|", *rows]))
    return "\n\n".join(part for part in parts if part) + "\n"


def files() -> str:
    """Where each file format is described."""
    rows = [
        ("embeddings, `.parquet` and `.npz`", "[Embedding files](../embeddings.md)"),
        ("features of your own, `.npz` and `.safetensors`", "[Own features](../embeddings.md#own-features)"),
        ("an index, a folder", "[What an index holds](../search.md#what-an-index-holds)"),
        ("proposals, decisions and the manifest", "[Cleaning](../curate.md#files)"),
        ("a run, a folder: settings, log, checkpoints, encoder", "[Training](../training.md)"),
        ("verdicts on the paper's claims", "[What is written](../reproduce.md#what-is-written)"),
        ("results of an evaluation", "[What a report holds](../evaluation.md#what-a-report-holds)"),
    ]
    table = "\n".join(
        ["| file | described in |", "|---|---|", *(f"| {one} | {other} |" for one, other in rows)]
    )
    return f"# Files\n\nWhat ProViCo writes, and where its format is described.\n\n{table}\n"


PAGES: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands,
    "reference/python.md": python,
    "reference/files.md": files,
    "reference/api.md": api,
}


def _said(main: Callable[[list[str]], None], given: list[str]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main(given)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).rstrip()
    return "\n".join(
        textwrap.fill(line, COLUMNS) if len(line) > COLUMNS else line for line in plain.splitlines()
    )


def _block(text: str) -> str:
    return f"```text\n{text}\n```"


def _described(name: str, value: Any) -> list[str]:
    parts = [f"### {name}"]
    if inspect.isclass(value) or inspect.isroutine(value):
        with contextlib.suppress(ValueError):
            parts.append(f"```python\n{name}{_signature(value)}\n```")
        parts.append(_text(inspect.getdoc(value) or ""))
    elif isinstance(value, dict):
        parts.append(f"A dict: {', '.join(f'`{key}`' for key in value)}.")
    if inspect.isclass(value):
        for member, one in _members(value).items():
            is_value = isinstance(one, (property, cached_property))
            if member[0] == "_" or not (is_value or inspect.isroutine(one) or isinstance(one, classmethod)):
                continue
            held = getattr(one, "fget", None) or getattr(one, "func", None) or getattr(one, "__func__", one)
            shown = member if is_value else f"{member}{_signature(held)}"
            parts.append(f"```python\n{name}.{shown}\n```\n\n{_text(inspect.getdoc(held) or '')}")
    return parts


def _members(value: type) -> dict[str, Any]:
    """The members of a class, then those that it inherits from classes of the package."""
    found: dict[str, Any] = {}
    for kind in value.__mro__:
        if kind.__module__.startswith("provico."):
            found |= {name: one for name, one in vars(kind).items() if name not in found}
    return found


def _signature(value: Any) -> str:
    text = re.sub(r"<function \S+ at 0x\w+>|<factory>", "...", str(inspect.signature(value)))
    text = re.sub(
        r"\b(?:provico|torch|pathlib|collections|numpy)\.(?:\w+\.)*(?=[A-Z])",
        "",
        text,
    )
    text = re.sub(
        r"(: |-> )(?:'([^']*)'|\"([^\"]*)\")", lambda found: found[1] + (found[2] or found[3]), text
    )
    text = text.removesuffix(" -> None")
    if len(text) < 90:
        return text
    inside, _, after = text[1:].rpartition(")")
    depth, cut, parts = 0, 0, []
    for place, letter in enumerate(inside):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(inside[cut:place].strip())
            cut = place + 1
    parts.append(inside[cut:].strip())
    return "(\n    " + ",\n    ".join(parts) + f",\n){after}"


def _text(docstring: str) -> str:
    """A docstring as Markdown: arguments as a list, examples as code."""
    lines, shown, in_example = inspect.cleandoc(docstring).splitlines(), [], False
    for line in lines:
        argument = re.match(r"(?:    )?(\w+(?:, \w+)*): (.*)", line)
        if line.startswith(">>>") and not in_example:
            shown += ["", "```pycon"]
            in_example = True
        elif in_example and not line.strip():
            shown.append("```")
            in_example = False
        if not in_example and line.strip() == "Args:":
            shown.append("")
        elif not in_example and argument:
            shown += ["", f"- `{argument[1]}`: {argument[2]}"]
        else:
            shown.append(line)
    if in_example:
        shown.append("```")
    return "\n".join(shown)


def _yes(is_so: object) -> str:
    return "yes" if is_so else "no"


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if "enum" in schema:
        return " or ".join(f"`{one}`" for one in schema["enum"])
    return str(schema.get("type", "any"))
