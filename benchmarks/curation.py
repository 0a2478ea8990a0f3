"""Does curating help? A model trained on what is kept against one trained on as many random videos.

    python benchmarks/curation.py demo          recipe of the demo, on the demo set
    python benchmarks/curation.py frozen        recipe frozen, on ucf101-5 in $PROVICO_DATA

An encoder is trained on all training videos; they are curated with it; then two encoders are trained, one on
the kept videos, one on random ones, as many. All are scored by R@1 of the test videos among *all* training
videos, so that the galleries are the same. On the demo set, the share of ambiguous videos among those that
are to be looked at, and the share of the ambiguous ones that are among them, come from its ground truth.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import os
import shutil
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch

from provico.curation.job import curate
from provico.data.catalog import Catalog, open_catalog
from provico.data.demo_set.videos import write_demo_set
from provico.demo import demo_recipe
from provico.embedding.driver import embed
from provico.evaluation.retrieval import retrieve
from provico.models.encoder import Encoder
from provico.processes import keep_freed_memory
from provico.recipes import find_recipe
from provico.search.index import Index
from provico.training.pretrain import pretrain

SCRATCH = Path("benchmarks/scratch/curation")
RESULTS = Path("benchmarks/results/curation.json")
NUM_CLIPS = {"demo": 5, "frozen": 8}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", choices=NUM_CLIPS)
    parser.add_argument("--splits", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    for seed in options.seeds:
        for split in options.splits:
            key = f"{options.recipe}/split {split}/seed {seed}"
            done = json.loads(options.results.read_text()) if options.results.exists() else {}
            if key not in done:
                done[key] = run(options.recipe, split, seed)
                options.results.parent.mkdir(parents=True, exist_ok=True)
                options.results.write_text(json.dumps(done, indent=1, sort_keys=True) + "\n")
            print(key, json.dumps(done[key]), flush=True)
    found = [value for key, value in done.items() if key.startswith(options.recipe)]
    for name in ("all", "kept", "random"):
        print(f"{name:<8} R@1 {statistics.mean(one[name] for one in found):.1f}")
    gains = [one["kept"] - one["random"] for one in found]
    error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else float("nan")
    print(f"kept - random: {statistics.mean(gains):+.2f}, standard error {error:.2f}, {len(gains)} pairs")


def run(recipe: str, split: int, seed: int) -> dict[str, Any]:
    data = videos_of(recipe)
    train, test = (open_catalog(data, split=split, subset=subset) for subset in ("train", "test"))
    first = trained(train, recipe, seed)
    folder = SCRATCH / f"{recipe}-{split}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    index = Index.create(folder / "index", first)
    index.add(train)
    report = curate(index, catalog=train)
    kept = [number for number, video in enumerate(report.videos) if video.bucket == "keep"]
    chosen = np.random.default_rng(seed).choice(len(train), size=len(kept), replace=False)
    result: dict[str, Any] = {"num_videos": len(train), "buckets": report.count()}
    if recipe == "demo":
        result |= found_ambiguous(data, report)
    result["all"] = recall(first, test, train, recipe)
    for name, numbers in (("kept", kept), ("random", sorted(chosen.tolist()))):
        result[name] = recall(trained(train.subset(numbers), recipe, seed), test, train, recipe)
    return result


def videos_of(recipe: str) -> Path:
    if recipe == "frozen":
        return Path(os.environ.get("PROVICO_DATA", "../shared/data")) / "ucf101-5"
    folder = SCRATCH / "demo-set"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_demo_set(folder)
    return folder


def trained(catalog: Catalog, recipe: str, seed: int) -> Encoder:
    config = demo_recipe(seed=seed, num_workers=0)
    if recipe == "frozen":
        frozen = find_recipe("frozen")
        config = dataclasses.replace(frozen, run=dataclasses.replace(frozen.run, seed=seed, num_workers=0))
    folder = SCRATCH / "run"
    shutil.rmtree(folder, ignore_errors=True)
    return Encoder.from_pretrained(pretrain(catalog, out=folder, config=config).encoder_folder)


def recall(encoder: Encoder, test: Catalog, train: Catalog, recipe: str) -> float:
    queries, gallery = (embed(encoder, catalog, num_clips=NUM_CLIPS[recipe]) for catalog in (test, train))
    return round(100 * retrieve(queries, gallery, metric="cosine").recalls[1], 2)


def found_ambiguous(data: Path, report: Any) -> dict[str, float]:
    with (data / "ground_truth.csv").open() as file:
        truth = {row["video"]: row["ambiguity"] != "none" for row in csv.DictReader(file)}
    is_ambiguous = np.array([truth[video.id.removeprefix("UCF-101/")] for video in report.videos])
    flagged = np.array([video.bucket != "keep" for video in report.videos])
    hit = (is_ambiguous & flagged).sum()
    return {"precision": round(hit / max(1, flagged.sum()), 3), "recall": round(hit / is_ambiguous.sum(), 3)}


if __name__ == "__main__":
    main()
