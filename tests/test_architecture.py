"""Data flows one way, and so do imports; help does not wait for torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

import provico

PACKAGE = Path(provico.__file__).parent
LAYERS = [
    {"cli"},
    {"reproduce"},
    {"demo"},
    {"show", "doctor"},
    {"info"},
    {"explorer"},
    {"workspace"},
    {"curation"},
    {"duplicates"},
    {"evaluation"},
    {"search"},
    {"training"},
    {"embedding"},
    {"models"},
    {"data", "probability", "processes"},
    {"recipes"},
    {"config", "extras", "renamed"},
    {
        "errors",
        "defaults",
        "metrics",
        "display",
        "wording",
        "locations",
        "files",
        "progress",
        "threads",
        "k_means",
        "typed_json",
    },
]
"""A module may import from its own package and from the layers below its own; so the docs print them."""
EXCEPTIONS = {
    # `encoder.embed("a.mp4")` is where people look for it; what it does is embedding's.
    ("models.encoder", "provico.embedding.driver"),
    ("models.encoder", "provico.embedding.embeddings"),
}
"""Imports that point the other way, none of them when the module is loaded."""


def modules() -> dict[str, Path]:
    names = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        names[".".join(part for part in parts if part != "__init__")] = path
    return names


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported(path: Path, *, at_top: bool) -> set[str]:
    tree = parsed(path)
    nodes = tree.body if at_top else list(ast.walk(tree))
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return names


def test_every_module_has_a_layer():
    placed = set().union(*LAYERS) | {"", "__main__"}
    assert {name.split(".")[0] for name in modules()} <= placed


def test_imports_point_down_only():
    layer_of = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    wrong = []
    for name, path in modules().items():
        package = name.split(".")[0]
        if package not in layer_of:
            continue
        for target in imported(path, at_top=False):
            other = target.removeprefix("provico.").split(".")[0] if target.startswith("provico.") else None
            if (name, target) in EXCEPTIONS:
                assert target not in imported(path, at_top=True), f"{name} imports {target} when it is loaded"
                continue
            if other and other != package and layer_of[other] <= layer_of[package]:
                wrong.append(f"{name} imports {target}")
    assert wrong == []


def test_networks_know_no_data():
    """Whoever has pixels can use an encoder; it does not even load what reads videos."""
    script = "import sys, provico.models; print([m for m in sys.modules if m.startswith('provico.data')])"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_few_files_know_the_decoder():
    users = {
        name
        for name, path in modules().items()
        if any(i.split(".")[0] == "av" for i in imported(path, at_top=True))
    }
    reading, writing = {"video", "opening", "picture"}, {"encode", "cut"}
    assert users == {f"data.frames.{name}" for name in reading | writing}


def test_one_file_starts_processes():
    """So that each of them has a safe module path and limits."""
    starters = {"subprocess", "multiprocessing", "concurrent.futures.process"}
    users = {
        name for name, path in modules().items() if any(i in starters for i in imported(path, at_top=False))
    }
    assert users == {"data.child_process"}


def test_nothing_loads_pickles_of_strangers():
    """A child reads what its parent pickled; what torch loads holds weights only."""
    users = set()
    for name, path in modules().items():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                called = ast.unparse(node.func)
                if called in ("pickle.load", "pickle.loads", "pickle.Unpickler"):
                    users.add(name)
                if called in ("torch.load", "np.load"):
                    options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                    safe = {"torch.load": ("weights_only", "True"), "np.load": ("allow_pickle", "False")}[
                        called
                    ]
                    assert options.get(safe[0]) == safe[1], f"{name}: {ast.unparse(node)}"
    assert users == {"data.child_process"}


def test_help_does_not_wait_for_torch():
    script = "import sys, provico.cli; print([m for m in ('torch', 'av', 'numpy') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
    for name in ("data.catalog", "data.scan", "data.frames.video", "data.frames.prepared"):
        script = f"import sys, provico.{name}; print('torch' in sys.modules)"
        run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert run.stdout.strip() == "False", name


def test_the_public_names_are_there_and_nothing_else():
    for name in provico.__all__:
        assert getattr(provico, name) is not None, name
    assert {"Encoder", "Index", "pretrain", "__version__"} < set(provico.__all__)
    assert dir(provico) == provico.__all__ == sorted(set(provico.__all__))
    assert provico.__version__ == version("provico")
    everything: dict[str, object] = {}
    exec("from provico import *", everything)
    assert everything.keys() - {"__builtins__"} == set(provico.__all__)


def test_the_public_names_are_lazy():
    script = (
        "import sys; before = set(sys.modules); import provico; dir(provico); "
        "heavy = {'torch', 'numpy', 'importlib.metadata'}; print(heavy & sys.modules.keys() - before)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match="no attribute 'pretrane'"):
        provico.pretrane  # noqa: B018
