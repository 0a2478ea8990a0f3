"""Heads on features of any network: their start, InfoNCE, ProViCo with and without mining, and an oracle.

    python benchmarks/methods.py stored/ucf101-5-efficientnet_motion.npz ... --splits 1 2 3 --seeds 0 1

NAME.npz stands for NAME-1.npz, NAME-2.npz, ... (`benchmarks/stored_features.py`). Test videos look for their
class among the training videos, by the cosine of their means. Results are kept in --out, a row for each run,
and not computed again; the table has means over splits and seeds, and the difference of ProViCo to each other
row with its standard error over pairs of runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from provico import Catalog, Mixture, open_catalog, open_encoder, pretrain
from provico.embedding.driver import embed
from provico.embedding.embeddings import Embeddings
from provico.embedding.features import clip_features
from provico.embedding.stored import stored_spec
from provico.metrics import r_auroc
from provico.models import Encoder
from provico.models.saved import build_encoder
from provico.probability import MinedPairs
from provico.recipes import find_recipe
from provico.reproduce.settings import changed
from provico.training.data import settings_for
from provico.training.objective import OBJECTIVES, Objective, Outcome, Provico, StepContext, find_objective
from provico.training.start import start_heads

RESULTS = Path(__file__).parent / "results" / "methods.json"
ORACLE = "provico-frozen, true pairs"
METHODS: dict[str, dict[str, dict[str, Any]]] = {
    "start": {},
    "InfoNCE": {"objective": {"method": "infonce"}},
    "ProViCo, no mining": {"mining": {"mine_from": None}},
    "ProViCo": {},
    # Learns from labels which videos are alike: what any mining could reach at best.
    "oracle mining": {"objective": {"method": ORACLE, "mean_contrast": 0.0}},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--splits", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    for name in given.files:
        for seed in given.seeds:
            for split in given.splits:
                file = Path(f"{name.removesuffix('.npz')}-{split}.npz")
                for method in METHODS:
                    key = f"{file.stem}/{method}/{seed}"
                    if key not in found and file.exists():
                        found[key] = measure(file, method, seed)
                        given.out.write_text(json.dumps(found, indent=1) + "\n")
                        print(key, found[key], flush=True)
    print(table(found))


def measure(file: Path, method: str, seed: int) -> dict[str, float]:
    train, test = (open_catalog(file, subset=subset) for subset in ("train", "test"))
    config = changed(settings_for(find_recipe("frozen"), train), run={"seed": seed}, **METHODS[method])
    with tempfile.TemporaryDirectory() as folder:
        if method == "start":
            encoder = untrained(file, config)
        else:
            OBJECTIVES[ORACLE] = told_pairs(train)
            pretrain(train, out=Path(folder) / "run", config=config)
            encoder = open_encoder(Path(folder) / "run")
        gallery, queries = (embed(encoder, catalog) for catalog in (train, test))
    return scores(queries, gallery)


def told_pairs(train: Catalog) -> Objective:
    """The objective of the recipe, with the pairs of one class instead of mined ones."""
    own, labels = find_objective("provico-frozen"), torch.tensor(train.labels)
    form = own.loss
    assert isinstance(form, Provico)

    def loss(videos: Mixture, step: StepContext) -> Outcome:
        classes = labels[step.indices]
        positive = classes.unsqueeze(1) == classes
        pairs = MinedPairs(positive, math.inf, num_below_threshold=int(positive.sum()) - len(classes))
        return dataclasses.replace(form.loss_of(videos, form.draw(videos, step), pairs, step), pairs=None)

    return dataclasses.replace(own, loss=loss)


def untrained(file: Path, config: Any) -> Encoder:
    train = open_catalog(file, subset="train")
    encoder = build_encoder(config.model, frozen=stored_spec(train))
    start_heads(encoder, clip_features(encoder, train, num_clips=1).features)
    return encoder.eval()


def scores(queries: Embeddings, gallery: Embeddings) -> dict[str, float]:
    """R@1 and mAP in per cent, and how well the uncertainty predicts errors."""
    asked, known = (F.normalize(part.videos.mean, dim=1) for part in (queries, gallery))
    order = (asked @ known.T).argsort(dim=1, descending=True).numpy()
    right = np.array(gallery.labels)[order] == np.array(queries.labels)[:, None]
    precision = np.cumsum(right, axis=1) / np.arange(1, right.shape[1] + 1)
    average = (precision * right).sum(axis=1) / right.sum(axis=1).clip(1)
    is_right = torch.from_numpy(right[:, 0])
    return {
        "R@1": round(100 * float(right[:, 0].mean()), 2),
        "mAP": round(100 * float(average.mean()), 2),
        "R-AUROC": round(float(r_auroc(queries.videos.uncertainty, is_right)), 4),
    }


def cell(found: dict[str, Any], keys: list[str]) -> str:
    """Means of these runs, and how far ProViCo is above them, pair by pair."""
    means, gaps = [], []
    for score in ("R@1", "mAP"):
        means.append(f"{np.mean([found[key][score] for key in keys]):.1f}" if keys else "")
        gap = []
        for key in keys:
            first, method, seed = key.split("/")
            if method != "ProViCo" and (ours := f"{first}/ProViCo/{seed}") in found:
                gap.append(found[ours][score] - found[key][score])
        if len(gap) > 1:
            gaps.append(f"{np.mean(gap):+.1f} ± {np.std(gap, ddof=1) / len(gap) ** 0.5:.1f}")
    return " / ".join(means) + (f" ({' / '.join(gaps)})" if gaps else "")


def table(found: dict[str, Any]) -> str:
    sets = sorted({key.split("/")[0].rpartition("-")[0] for key in found})
    lines = ["| R@1 / mAP | " + " | ".join(METHODS) + " |", "|---" * (len(METHODS) + 1) + "|"]
    for name in sets:
        runs = [key for key in found if key.split("/")[0].rpartition("-")[0] == name]
        cells = [cell(found, [key for key in runs if key.split("/")[1] == method]) for method in METHODS]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
