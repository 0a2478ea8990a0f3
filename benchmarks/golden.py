"""Does a refactoring change a result? Run the commands on one small set with two source trees, and compare.

    git worktree add ../before COMMIT
    python benchmarks/golden.py record before.json --src ../before/src
    python benchmarks/golden.py record after.json --src src
    python benchmarks/golden.py compare before.json after.json

What is recorded: every loss and health figure of pretraining (all recipes that a CPU can run, and the
deterministic baseline), the weights, what `embed` writes, what a search answers by match probability and by
cosine, the scores of every protocol, the uncertainty of each video, the proposals of `curate`, the groups of
`dedup`, and what a search answers with a network that nothing was trained for. Times, paths, versions and
hashes of encoders are left out. One thread, so that sums are summed in one order. Takes about five CPU
minutes for each tree.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
from safetensors.numpy import load_file

RUNS: dict[str, list[str]] = {
    "frozen": ["--max-steps", "20", "--batch-size", "24"],
    "frozen infonce": [
        "--recipe",
        "frozen",
        "--method",
        "infonce",
        "--max-steps",
        "10",
        "--batch-size",
        "24",
    ],
    "tiny": ["--recipe", "tiny", "--epochs", "3", "--mine-from", "1", "--batch-size", "24"],
    "tiny infonce": ["--recipe", "tiny", "--method", "infonce", "--epochs", "2", "--batch-size", "24"],
    "tiny-motion": ["--recipe", "tiny-motion", "--epochs", "3", "--mine-from", "1", "--batch-size", "24"],
    "paper": [
        *("--recipe", "paper", "--backbone", "tiny", "--precision", "fp32", "--epochs", "3"),
        *("--warmup-epochs", "1", "--mine-from", "1", "--batch-size", "24"),
    ],
}
"""Pretraining runs, all on the demo set; every step is logged."""

UNTRAINED = "efficientnet_motion"
QUERIES = 6
LEFT_OUT = ("time/", "data/")


class Tree:
    """A source tree whose commands are run in a folder of their own."""

    def __init__(self, src: Path, folder: Path) -> None:
        self.src, self.folder = src, folder

    def run(self, *words: str) -> Any:
        """What a command prints as JSON; None if it prints something else."""
        environment = os.environ | {
            "PYTHONPATH": str(self.src),
            "PROVICO_HOME": str(self.folder / "home"),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "200",
        }
        done = subprocess.run(
            [sys.executable, "-m", "provico", *words],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            sys.exit(f"provico {' '.join(words)} failed:\n{done.stderr}")
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError:
            return None


def record(src: Path) -> dict[str, Any]:
    """Everything a user of this tree gets, as plain values."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        tree = Tree(src.resolve(), Path(name))
        tree.run("demo-data", "demo", "--videos-per-class", "6")
        for run, options in RUNS.items():
            out = run.replace(" ", "-")
            tree.run("pretrain", "demo", "--out", out, "--log-every", "1", "--subset", "train", *options)
            lines = (tree.folder / out / "metrics.jsonl").read_text().splitlines()
            found[f"{run}: log"] = [_without_times(json.loads(line)) for line in lines]
            found[f"{run}: weights"] = _weights(tree.folder / out / "encoder" / "model.safetensors")
            print(f"{run}: {len(lines)} steps", file=sys.stderr)
        for run in ("frozen", "tiny"):
            for name, ask in ASKED.items():
                found[f"{run}: {name}"] = ask(tree, run)
                print(f"{run}: {name}", file=sys.stderr)
        tree.run("index", "demo", "--backbone", UNTRAINED, "--out", "untrained-index")
        found["untrained: search"] = _answers(tree, "untrained-index", "frozen.parquet")
    return found


def _without_times(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if not name.startswith(LEFT_OUT)}


def _weights(path: Path) -> dict[str, str]:
    return {name: _digest(value) for name, value in sorted(load_file(path).items())}


def _digest(values: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]


def _embed(tree: Tree, run: str) -> dict[str, Any]:
    tree.run("embed", "demo", "--checkpoint", run, "--out", f"{run}.parquet")
    table = pyarrow.parquet.read_table(tree.folder / f"{run}.parquet")
    columns = {name: np.array(table[name].to_pylist(), dtype=object) for name in table.column_names}
    for name in ("path", "modified_ns"):  # of the files, not of what is computed
        columns.pop(name)
    return {
        name: hashlib.sha256(repr(values.tolist()).encode()).hexdigest() for name, values in columns.items()
    }


def _search(tree: Tree, run: str) -> dict[str, Any]:
    tree.run("index", "demo", "--checkpoint", run, "--out", f"{run}-index")
    return _answers(tree, f"{run}-index", f"{run}.parquet")


def _answers(tree: Tree, index: str, embedded: str) -> dict[str, Any]:
    """What an index answers to some of the videos in a file of embeddings."""
    table = pyarrow.parquet.read_table(tree.folder / embedded)
    videos, files = table["id"].to_pylist()[:QUERIES], table["path"].to_pylist()[:2]
    answers: dict[str, Any] = {}
    for metric in ("match", "cosine"):
        for more in ([], ["--exclude-same", "group"]):
            words = ["search", index, *videos, *files, "--metric", metric, *more, "--json"]
            answers[" ".join([metric, *more])] = _numbers(tree.run(*words))
    words = ["search", index, videos[0], "--span", "0:00.2-0:01", "--json"]
    return answers | {"span": _numbers(tree.run(*words))}


def _numbers(value: Any) -> Any:
    """Numbers and ids of an answer, whatever the fields around them are called; no paths."""
    if isinstance(value, dict):
        kept = {
            name: _numbers(part) for name, part in value.items() if not name.endswith(("path", "preview"))
        }
        return {name: part for name, part in kept.items() if part not in (None, {}, [])}
    if isinstance(value, list):
        return [_numbers(part) for part in value]
    return None if isinstance(value, str) and "/" in value and value.startswith(("/", "demo/")) else value


def _protocols(tree: Tree, run: str) -> dict[str, Any]:
    scores = {}
    for words in (
        ["retrieval"],
        ["linear", "--epochs", "5"],
        ["uncertainty", "--num-resamples", "50"],
    ):
        told = tree.run("evaluate", words[0], "demo", "--checkpoint", run, *words[1:], "--json")
        scores[words[0]] = _scores(told)
    if run != "frozen":
        options = ["--recipe", "tiny", "--epochs", "2", "--batch-size", "12", "--out", f"{run}-tuned"]
        told = tree.run("evaluate", "finetune", "demo", "--checkpoint", run, *options, "--json")
        scores["finetune"] = _scores(told)
    return scores


def _scores(told: Any) -> Any:
    """All numbers of a report but those that say how it was made."""
    if isinstance(told, dict):
        skipped = ("seconds", "hash", "version", "card", "settings", "num_parameters")
        return {
            name: _scores(part)
            for name, part in told.items()
            if not any(word in name for word in skipped) and isinstance(part, dict | list | int | float)
        }
    if isinstance(told, list):
        return [_scores(part) for part in told if not isinstance(part, str)]
    return told


def _tables(tree: Tree, run: str) -> dict[str, Any]:
    tree.run("uncertainty", "demo", "--checkpoint", run, "--out", f"{run}-unsure")
    tree.run("curate", f"{run}-index", "--out", f"{run}-curated")
    found = {}
    for path in sorted(
        [*(tree.folder / f"{run}-unsure").glob("*.csv"), *(tree.folder / f"{run}-curated").glob("*.csv")]
    ):
        with path.open() as file:
            found[f"{path.parent.name}/{path.name}"] = [
                {name: value for name, value in row.items() if "path" not in name}
                for row in csv.DictReader(file)
            ]
    return found | {"dedup": _scores(tree.run("dedup", f"{run}-index", "--json"))}


ASKED: dict[str, Callable[[Tree, str], Any]] = {
    "embed": _embed,
    "search": _search,
    "evaluate": _protocols,
    "tables": _tables,
}


def differences(before: Any, after: Any, place: str = "") -> list[str]:
    """Where two recordings differ; names that only one has are named too."""
    if isinstance(before, dict) and isinstance(after, dict):
        lines = [f"{place}/{name}: only in one" for name in sorted(before.keys() ^ after.keys())]
        for name in before.keys() & after.keys():
            lines += differences(before[name], after[name], f"{place}/{name}")
        return lines
    if isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            return [f"{place}: {len(before)} and {len(after)} rows"]
        return [
            line
            for i, pair in enumerate(zip(before, after, strict=True))
            for line in differences(*pair, f"{place}[{i}]")
        ]
    return [] if before == after else [f"{place}: {before!r} and {after!r}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record")
    recording.add_argument("out", type=Path)
    recording.add_argument("--src", type=Path, default=Path(__file__).parents[1] / "src")
    comparing = verbs.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    given = parser.parse_args()
    if given.verb == "record":
        given.out.write_text(json.dumps(record(given.src), indent=1) + "\n")
        return
    found = differences(*(json.loads(path.read_text()) for path in (given.before, given.after)))
    print("\n".join(sorted(found)) or "No difference.")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
