"""The paper's claims as a table: what each experiment found, what it could have seen, and the paper's effect.

    provico reproduce all --preset cpu --data ../shared/data/ucf101-5 --out ucf101-5
    cp ucf101-5/*.json benchmarks/results/reproduce/ucf101-5/
    python benchmarks/claims.py

It reads the NAME.json files of every folder in benchmarks/results/reproduce/ and prints Markdown.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from provico.reproduce.reproduce import EXPERIMENTS

RESULTS = Path(__file__).parent / "results" / "reproduce"


def main() -> None:
    sets = sorted(folder.name for folder in RESULTS.iterdir() if folder.is_dir())
    print(f"| claim | {' | '.join(sets)} |\n|{'---|' * (len(sets) + 1)}")
    for name, experiment in EXPERIMENTS.items():
        cells = [cell(RESULTS / folder / f"{name}.json") for folder in sets]
        print(f"| `{name}` ({experiment.source}) | {' | '.join(cells)} |")


def cell(file: Path) -> str:
    if not file.exists():
        return ""
    finding = json.loads(file.read_text(encoding="utf-8"))
    if finding["verdict"] == "cannot be tested here":
        return f"cannot be tested: {finding['why'].rstrip('.')}"
    return f"**{finding['verdict']}**: " + "; ".join(map(number, finding["checks"]))


def number(check: dict[str, Any]) -> str:
    estimate = check["estimate"]
    text = "{value:.3g} [{low:.3g}, {high:.3g}]".format(**estimate)
    notes = []
    if estimate["low"] <= 0 <= estimate["high"] and estimate["low"] < estimate["high"]:
        notes.append(f"would see {check['detectable']:.2g}")
    if check["paper"] is not None:
        notes.append(f"paper {check['paper']:g}")
    return text + (f" ({', '.join(notes)})" if notes else "")


if __name__ == "__main__":
    main()
