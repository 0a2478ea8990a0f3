"""Does the uncertainty predict retrieval errors, for new videos and for those that were learnt from?

    python benchmarks/trust_errors.py ../shared/data/ucf101-5 --splits 1 2 3 --seeds 0 1
    python benchmarks/trust_errors.py ../shared/data/hmdb51-12 --splits 1 2 3 --seeds 0 1
    python benchmarks/trust_errors.py DEMO_SET --splits 1 2 3 --seeds 0 1

For each split and seed an encoder of the recipe learns from the training videos. Test videos look for their
class among them by match probability (`provico evaluate uncertainty`, with its rivals and its intervals by
group), once with evidence and once with the variance of the head. The match curve is in both that of the
former, so what is right by match says nothing about the latter. Training videos look for their class by
cosine, among those of other recordings. Results are added to benchmarks/results/trust_errors.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from provico import open_catalog, open_encoder, pretrain
from provico.config.evaluation import SetsChoice
from provico.data.library import Library
from provico.embedding.driver import embed
from provico.evaluation.statistics import error_auroc
from provico.evaluation.uncertainty import evaluate_uncertainty
from provico.models.encoder import Encoder
from provico.recipes import find_recipe
from provico.training.variance import with_evidence

RESULTS = Path(__file__).parent / "results" / "trust_errors.json"
NUM_STORED = 10
"""Clips to learn from: those that are evaluated, so that features are computed once."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--recipe", default="frozen")
    parser.add_argument("--splits", type=int, nargs="+", default=[1])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    given = parser.parse_args()
    for seed in given.seeds:
        for split in given.splits:
            row = measure(given.data, given.recipe, split, seed)
            known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            known[f"{given.data.name} {given.recipe} split {split} seed {seed}"] = row
            RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
            print(given.data.name, given.recipe, split, seed, json.dumps(row), flush=True)


def measure(data: Path, recipe: str, split: int, seed: int) -> dict[str, Any]:
    train = open_catalog(data, split=split, subset="train", allow_missing=True)
    config = find_recipe(recipe)
    if config.views.num_stored is not None:
        config = dataclasses.replace(config, views=dataclasses.replace(config.views, num_stored=NUM_STORED))
    config = dataclasses.replace(config, run=dataclasses.replace(config.run, seed=seed, num_workers=0))
    library = Library()
    with tempfile.TemporaryDirectory() as folder:
        pretrain(train, out=Path(folder) / "run", config=config, library=library)
        encoder = open_encoder(Path(folder) / "run")
    choice = SetsChoice(data=data, splits=(split,), allow_missing=True)
    found = {
        name: evaluate_uncertainty(one, choice, library=library)
        for name, one in (("evidence", encoder), ("head", with_evidence(encoder, num_remembered=None)))
    }
    return {
        name: {
            "right": 1 - one.num_errors / one.num_queries,
            "r_auroc": {
                doubt.name: [round(x, 4) for x in (doubt.auroc.value, doubt.auroc.low, doubt.auroc.high)]
                for doubt in one.doubts
            },
        }
        for name, one in found.items()
    } | {"training videos": of_training_videos(encoder, train, library)}


def of_training_videos(encoder: Encoder, train: Any, library: Library) -> dict[str, float]:
    """R-AUROC where each training video looks among those of other recordings."""
    videos = embed(encoder, train, num_clips=NUM_STORED, library=library)
    groups, labels = list(videos.groups), list(videos.labels)
    directions = F.normalize(videos.videos.mean, dim=1)
    similarity = directions @ directions.T
    for row, group in enumerate(groups):
        is_own = [
            column == row or (group is not None and other == group) for column, other in enumerate(groups)
        ]
        similarity[row, torch.tensor(is_own)] = -2
    best, hit = similarity.max(dim=1)
    correct = torch.tensor([labels[at] == label for at, label in zip(hit.tolist(), labels, strict=True)])
    doubts = {
        "uncertainty": videos.videos.uncertainty,
        "ambiguity": videos.videos.ambiguity,
        "far from its nearest": -best,
    }
    found = {name: round(error_auroc(doubt.double(), correct), 4) for name, doubt in doubts.items()}
    return found | {"right": float(correct.double().mean())}


if __name__ == "__main__":
    main()
