"""What the uncertainty is worth, as one table and one figure.

    python benchmarks/trust.py --work trust

It puts together what `trust_errors.py` has measured, encoder by encoder, in the folder `--work`:
benchmarks/results/trust.json, trust.md and trust.svg. Columns of sets that are not in that folder stay as
they are. What chance and judgements are worth is measured by
`trust_chance.py` and `trust_guarantee.py`.

R-AUROC is the mean over splits and seeds of the chance that a wrong query is less certain than a right one.
Its interval is that of 1,000 sets of redrawn groups: the same groups in all splits and seeds. Errors are
those of the best hit by match probability; of training videos, of the best hit by cosine among other
recordings. The oracle is told the labels of the training videos: how many of the ten nearest have another one
than the nearest.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from provico.metrics import r_auroc

RESULTS = Path(__file__).parent / "results"
NUM_RESAMPLES = 1000
KINDS = ("noise", "static", "cut")
ORACLE = "labels of the ten nearest"
TAKEN = {"uncertainty", "total uncertainty", "low match probability", ORACLE}

Part = tuple[list[str], Callable[[np.ndarray], float]]
"""The groups of some videos, and a number for any choice of them by row."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("trust"))
    given = parser.parse_args()
    runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for file in sorted(given.work.glob("*.json")):
        name, recipe, _, _ = file.stem.rsplit("_", 3)
        runs[f"{name}, {recipe}"].append(json.loads(file.read_text()))
    results = RESULTS / "trust.json"
    found = json.loads(results.read_text()) if results.exists() else {}
    found |= {name: of_set(parts) for name, parts in runs.items()}
    found = dict(sorted(found.items()))
    results.write_text(json.dumps(found, indent=1) + "\n")
    text = table(found)
    (RESULTS / "trust.md").write_text(text)
    draw(found).savefig(RESULTS / "trust.svg", metadata={"Date": None})
    print(text)


def of_set(parts: list[dict[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {"encoders": len(parts)}
    row["new videos"] = {
        name: interval([of_errors(part["after"]["new"], part["rivals"], name) for part in parts])
        for name in (*parts[0]["after"]["new"]["doubts"], *parts[0]["rivals"])
        if name in TAKEN or name in parts[0]["rivals"]
    }
    row["new videos, before"] = {
        name: interval([of_errors(part["before"]["new"], {}, name) for part in parts])
        for name in ("uncertainty", "total uncertainty")
    }
    row["training videos"] = {
        name: interval([of_errors(part["after"]["training"], {}, name) for part in parts])
        for name in parts[0]["after"]["training"]["doubts"]
    }
    for metric in ("match", "cosine"):
        row[f"R@1 by {metric}"] = {
            when: round(
                float(np.mean([np.mean(part[when]["new"][f"right by {metric}"]) for part in parts])), 4
            )
            for when in ("before", "after")
        } | {"difference": interval([of_difference(part, metric) for part in parts])}
    if "junk" in parts[0]["after"]:
        row["junk"] = {
            kind: interval([of_junk(part["after"]["junk"], kind) for part in parts]) for kind in KINDS
        }
    parts = [part for part in parts if "steps" in part]
    for kind in ("mixed", "masked") if parts else ():
        levels = list(parts[0]["steps"][kind]["levels"])
        row[kind] = {
            "multiples": [
                round(
                    float(np.exp(np.mean([np.mean(steps(part, kind, levels[0], level)) for part in parts]))),
                    3,
                )
                for level in levels
            ],
        } | {
            name: [
                interval([of_step(part, kind, pair, is_clear=is_clear) for part in parts])
                for pair in pairwise(levels)
            ]
            for name, is_clear in (("rises", False), ("rises of clear videos", True))
        }
    return row


def interval(parts: Sequence[Part]) -> list[float]:
    """The mean over parts, and between which two numbers it lies when groups are redrawn."""
    names = sorted({group for groups, _ in parts for group in groups})
    rows_of = [
        {name: np.flatnonzero(np.array(groups) == name) for name in set(groups)} for groups, _ in parts
    ]
    rng = np.random.default_rng(0)
    value = float(np.nanmean([number(np.arange(len(groups))) for groups, number in parts]))
    redrawn = []
    for _ in range(NUM_RESAMPLES):
        drawn = [names[place] for place in rng.integers(len(names), size=len(names))]
        chosen = [[rows[name] for name in drawn if name in rows] for rows in rows_of]
        values = [
            number(np.concatenate(rows)) for (_, number), rows in zip(parts, chosen, strict=True) if rows
        ]
        if not np.isnan(values).all():
            redrawn.append(float(np.nanmean(values)))
    return [round(number, 4) for number in (value, *np.quantile(redrawn, [0.025, 0.975]).tolist())]


def of_errors(queries: dict[str, Any], rivals: dict[str, Any], name: str) -> Part:
    doubt = np.array({**queries["doubts"], **rivals}[name])
    right = queries["right by match"][0] if "right by match" in queries else queries["right by cosine"]
    wrong = ~np.array(right)
    return queries["groups"], lambda rows: auroc(doubt[rows], wrong[rows])


def of_difference(part: dict[str, Any], metric: str) -> Part:
    after, before = (
        np.atleast_2d(part[when]["new"][f"right by {metric}"]).mean(axis=0) for when in ("after", "before")
    )
    return part["after"]["new"]["groups"], lambda rows: float((after - before)[rows].mean())


def of_junk(junk: dict[str, Any], kind: str) -> Part:
    kinds, doubt = np.array(junk["kinds"]), np.array(junk["doubts"]["uncertainty"])
    kept = np.isin(kinds, ("none", kind))
    is_junk, doubt = (kinds == kind)[kept], doubt[kept]
    groups = [group for group, keep in zip(junk["groups"], kept, strict=True) if keep]
    return groups, lambda rows: auroc(doubt[rows], is_junk[rows])


def steps(part: dict[str, Any], kind: str, before: str, after: str) -> np.ndarray:
    levels = part["steps"][kind]["levels"]
    return np.array(levels[after]["uncertainty"]) - np.array(levels[before]["uncertainty"])


def of_step(part: dict[str, Any], kind: str, pair: tuple[str, str], *, is_clear: bool) -> Part:
    """How much the uncertainty rises from one level to the next; of videos that are not junk, if asked."""
    rise, groups = steps(part, kind, *pair), np.array(part["steps"][kind]["groups"])
    if is_clear and "junk" in part["after"]:
        # The queries come first, and all of them were corrupted.
        kept = np.array(part["after"]["junk"]["kinds"][: len(groups)]) == "none"
        rise, groups = rise[kept], groups[kept]
    return groups.tolist(), lambda rows: float(rise[rows].mean())


def auroc(doubt: np.ndarray, is_wrong: np.ndarray) -> float:
    return r_auroc(torch.from_numpy(doubt.copy()), torch.from_numpy(~is_wrong))


def shown(numbers: Sequence[float]) -> str:
    value, low, high = numbers
    return f"{value:.2f} [{low:.2f}, {high:.2f}]".replace("0.", ".").replace("-.", "-.")


def table(sets: dict[str, Any]) -> str:
    rivals = list(
        dict.fromkeys(name for one in sets.values() for name in one["new videos"] if name not in TAKEN)
    )
    rows: dict[str, list[str]] = {
        "encoders (splits x seeds)": [str(one["encoders"]) for one in sets.values()]
    }
    for name in ("uncertainty", "total uncertainty", *rivals):
        own = "**" if name == "uncertainty" else ""
        rows[f"new videos: {own}{name}{own}"] = [
            shown(one["new videos"][name]) if name in one["new videos"] else "" for one in sets.values()
        ]
    rows[f"new videos: {ORACLE} (oracle)"] = [shown(one["new videos"][ORACLE]) for one in sets.values()]
    rows["new videos: variance of the loss"] = [
        shown(one["new videos, before"]["uncertainty"]) for one in sets.values()
    ]
    for name in ("uncertainty", "far from its nearest", ORACLE):
        rows[f"training videos: {name}"] = [shown(one["training videos"][name]) for one in sets.values()]
    for metric in ("match", "cosine"):
        rows[f"R@1 by {metric}: before, after"] = [
            "{before:.1%}, {after:.1%}".format(**one[f"R@1 by {metric}"]) for one in sets.values()
        ]
    rows["noise, static, cut"] = [
        ", ".join(f"{one['junk'][kind][0]:.2f}" for kind in KINDS) if "junk" in one else ""
        for one in sets.values()
    ]
    for kind in ("mixed", "masked"):
        rows[f"{kind}: multiples"] = [
            ", ".join(f"{value:.2f}" for value in one[kind]["multiples"]) if kind in one else ""
            for one in sets.values()
        ]
        for text, name in (("steps", "rises"), ("steps of clear videos", "rises of clear videos")):
            rows[f"{kind}: {text} that rise beyond chance"] = [
                f"{sum(low > 0 for _, low, _ in one[kind][name])} of {len(one[kind][name])}"
                if kind in one
                else ""
                for one in sets.values()
            ]
    lines = [f"| | {' | '.join(sets)} |", "|---" * (len(sets) + 1) + "|"]
    lines += [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()]
    return "\n".join(lines) + "\n"


def draw(sets: dict[str, Any]) -> Figure:
    """R-AUROC of new videos: the uncertainty, and what anyone can measure without it."""
    figure = Figure(figsize=(7.5, 0.8 + 0.75 * len(sets)), layout="constrained")
    axes = figure.subplots()
    for place, (name, one) in enumerate(reversed(sets.items())):
        for doubt, (value, low, high) in one["new videos"].items():
            if doubt == "uncertainty":
                axes.plot([low, high], [place, place], color="#b45a0b", linewidth=3, solid_capstyle="round")
                axes.plot(value, place, "o", color="#b45a0b", markersize=9, label="uncertainty")
            elif doubt == "far from its nearest":
                axes.plot(
                    value, place - 0.2, "D", color="#2c4f73", markersize=6, label="distance to the nearest"
                )
            elif doubt not in TAKEN:
                axes.plot(value, place - 0.2, "o", color="#9aa5b1", markersize=5, label="other rivals")
        axes.text(0.2, place + 0.22, name, fontsize="small")
    axes.axvline(0.5, color="black", linewidth=0.8, linestyle="--")
    axes.set_xlim(0.2, 1)
    axes.set_ylim(-0.6, len(sets) - 0.3)
    axes.set_yticks([])
    axes.set_xlabel("chance that a wrong answer is less certain than a right one (0.5: it knows nothing)")
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axes.legend(unique.values(), unique.keys(), loc="lower right", fontsize="small")
    return figure


if __name__ == "__main__":
    main()
