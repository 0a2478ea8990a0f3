"""The import graph of a source tree, in numbers and as a picture.

    python benchmarks/import_graph.py before.svg --src ../before/src
    python benchmarks/import_graph.py after.svg

Prints the modules, lines and imports, what crosses packages, and for four walks through the code how many
modules a reader can meet on it and how long its longest chain of imports is. The picture is a table: how many
names each package imports from each other one, in the order of the layers.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

WALKS = {
    "one video to its Gaussian": ("embedding.driver", "evaluation.embedding"),
    "pretraining to a step": ("training.pretrain",),
    "a search to its answer": ("search.index",),
    "retrieval to its score": ("evaluation.protocols",),
}
"""Where each starts; the first of these modules that a tree has."""

ORDER = (
    *("errors", "defaults", "metrics", "display", "wording", "locations", "files", "progress", "threads"),
    *("k_means", "typed_json", "extras", "renamed"),
    *("config", "recipes", "data", "probability", "processes", "models", "features", "embedding", "training"),
    *("search", "evaluation", "uncertainty", "duplicates", "curation", "workspace", "explorer", "info"),
    *("show", "doctor", "demo", "reproduce", "cli"),
)


def modules_of(src: Path) -> dict[str, Path]:
    """Every module of the package by its name within it."""
    found = {}
    for path in (src / "provico").rglob("*.py"):
        parts = path.relative_to(src / "provico").with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


def imports_of(modules: dict[str, Path]) -> dict[str, Counter[str]]:
    """For each module the modules that it imports, and how many names of each."""
    graph: dict[str, Counter[str]] = {}
    for name, path in modules.items():
        targets: Counter[str] = Counter()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("provico"):
                base = (node.module or "").removeprefix("provico").lstrip(".")
                for alias in node.names:
                    inner = f"{base}.{alias.name}".lstrip(".")
                    targets[inner if inner in modules else base] += 1
        targets.pop(name, None)
        graph[name] = targets
    return graph


def reach(graph: dict[str, Counter[str]], start: str) -> set[str]:
    """All modules that a module imports, directly or not."""
    seen, waiting = {start}, [start]
    while waiting:
        new = [target for target in graph.get(waiting.pop(), ()) if target and target not in seen]
        seen.update(new)
        waiting += new
    return seen


def longest_chain(graph: dict[str, Counter[str]], start: str) -> int:
    """Modules on the longest chain of imports from a module; a cycle is entered once."""
    order: dict[str, int] = {}

    def walk(name: str, above: tuple[str, ...]) -> int:
        if name not in order:
            order[name] = 1 + max(
                (walk(t, (*above, name)) for t in graph[name] if t and t not in above), default=0
            )
        return order[name]

    return walk(start, ())


def describe(src: Path) -> None:
    """Print the numbers."""
    modules = modules_of(src)
    graph = imports_of(modules)
    lines = sum(len(path.read_text().splitlines()) for path in modules.values())
    edges = sum(len(targets) for targets in graph.values())
    crossing = sum(package(n) != package(t) for n, targets in graph.items() for t in targets)
    named = sum(c for n, targets in graph.items() for t, c in targets.items() if package(n) != package(t))
    real = [name for name, path in modules.items() if path.name != "__init__.py"]
    print(
        f"{len(real)} modules, {lines:,} lines, {edges} imports, {crossing} across packages ({named} names)"
    )
    longest = max(modules, key=lambda name: len(modules[name].read_text().splitlines()))
    print(f"longest module: {longest}, {len(modules[longest].read_text().splitlines())} lines")
    for words, starts in WALKS.items():
        start = next(name for name in starts if name in modules)
        met = reach(graph, start)
        print(f"{words}: {len(met)} modules, longest chain {longest_chain(graph, start)} (from {start})")


def package(name: str) -> str:
    """The package, or the single file, that a module belongs to."""
    return name.split(".")[0]


def draw(src: Path, out: Path) -> None:
    """Who imports how many names from whom; what is above the diagonal goes against the layers."""
    graph = imports_of(modules_of(src))
    weights: Counter[tuple[str, str]] = Counter()
    for name, targets in graph.items():
        for target, count in targets.items():
            weights[package(name), package(target)] += count
    present = {part for pair in weights for part in pair}
    names = [name for name in ORDER if name in present]
    table = np.array([[weights[user, used] for used in names] for user in names])
    figure, axes = plt.subplots(figsize=(9, 8))
    axes.imshow(np.where(table, np.log1p(table), np.nan), cmap="Blues", vmin=-1)
    for (row, column), count in np.ndenumerate(table):
        if count:
            is_against = column > row
            axes.text(
                column,
                row,
                count,
                ha="center",
                va="center",
                fontsize=7,
                color="red" if is_against else "black",
            )
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="imported from", ylabel="names that are imported by")
    figure.savefig(out, bbox_inches="tight", metadata={"Date": None} if out.suffix == ".svg" else None)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, nargs="?", help="picture to write, .svg or .png")
    parser.add_argument("--src", type=Path, default=Path(__file__).parents[1] / "src")
    given = parser.parse_args()
    describe(given.src)
    if given.out is not None:
        draw(given.src, given.out)


if __name__ == "__main__":
    main()
