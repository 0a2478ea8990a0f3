"""Do the two causes of uncertainty find the videos of the demo set that are ambiguous on purpose?

    python benchmarks/causes.py RUN DEMO_SET

For each kind of ambiguity in the set's ground truth: the AUROC with which uncertainty, ambiguity and
disagreement tell such videos from the clear ones; then what `provico curate` would put aside by its rule.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from provico import open_catalog, open_encoder
from provico.config.curation import CurationRules
from provico.curation.proposals import robust_deviations
from provico.embedding.driver import embed
from provico.evaluation.statistics import error_auroc

RESULTS = Path("benchmarks/results/causes.json")
KINDS = ("noise", "static", "cut")


def main() -> None:
    run, data = map(Path, sys.argv[1:])
    with (data / "ground_truth.csv").open() as file:
        truth = {row["video"]: row["ambiguity"] for row in csv.DictReader(file)}
    found = embed(open_encoder(run), open_catalog(data))
    kinds = np.array([truth[name.removeprefix("UCF-101/")] for name in found.ids])
    parts = {
        name: robust_deviations(getattr(found.videos, name).double().log().numpy())
        for name in ("uncertainty", "ambiguity", "disagreement")
    }
    result: dict[str, Any] = {"videos": len(kinds), "ambiguous": int((kinds != "none").sum())}
    for kind in KINDS:
        chosen = np.isin(kinds, ("none", kind))
        is_clear = torch.from_numpy(kinds[chosen] == "none")
        result[kind] = {
            name: round(error_auroc(torch.from_numpy(values[chosen]), is_clear), 3)
            for name, values in parts.items()
        }
    most = CurationRules().max_deviations
    aside = {
        "by its causes": (parts["ambiguity"] > most) | (parts["disagreement"] > most),
        "by its uncertainty": parts["uncertainty"] > most,
    }
    for name, chosen in aside.items():
        hit = (chosen & (kinds != "none")).sum()
        result[f"put aside {name}"] = {
            "videos": int(chosen.sum()),
            "precision": round(float(hit / max(1, chosen.sum())), 3),
            "recall": round(float(hit / (kinds != "none").sum()), 3),
        }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
