"""What encoders are worth by the paper's protocols, on five classes of UCF101, all three splits.

    python benchmarks/evaluation.py frozen        retrieval and linear probe
    python benchmarks/evaluation.py tiny          the same, finetuning, supervised from scratch;
                                                  likewise tiny-short (half as long), tiny-motion
    python benchmarks/evaluation.py --table       print what the results file holds

For each split an encoder is trained on its training videos without labels by each method, and evaluated. Each
result is written to benchmarks/results/evaluation.json at once, and what is there already is not repeated.
Videos: PROVICO_DATA, or ../shared/data.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from provico import open_catalog, pretrain
from provico.config.evaluation import (
    FINETUNE_RECIPES,
    FeatureReading,
    LinearSettings,
    RetrievalSettings,
    SetsChoice,
)
from provico.evaluation.protocols import evaluate_finetune, evaluate_linear, evaluate_retrieval
from provico.evaluation.result import EvaluationReport
from provico.models.encoder import Encoder
from provico.models.saved import build_encoder, open_encoder
from provico.processes import keep_freed_memory
from provico.reproduce.settings import changed
from provico.training.start import settle_batch_norm
from quality import settings_of

DATA = Path(os.environ.get("PROVICO_DATA", "../shared/data")) / "ucf101-5"
SCRATCH = Path("benchmarks/scratch/evaluation")
RESULTS = Path("benchmarks/results/evaluation.json")
METRICS = (
    "match",
    "cosine",
    "squared_euclidean_expected",
    "bhattacharyya",
    "wasserstein2_squared",
    "jeffreys",
)
RECIPES = ("frozen", "tiny", "tiny-short", "tiny-motion")
METHODS = ("provico", "infonce", "untrained")


def encoder_of(recipe: str, method: str, split: int) -> Encoder:
    config = settings_of(recipe, seed=0)
    train = open_catalog(DATA, split=split, subset="train")
    if method == "untrained":
        torch.manual_seed(0)
        encoder = build_encoder(config.model)
        settle_batch_norm(encoder, train)
        return encoder.eval()
    if method == "infonce":
        config = changed(config, objective={"method": method})
    folder = SCRATCH / f"{recipe}-{method}-{split}"
    if not (folder / "encoder").exists():
        report = pretrain(train, out=folder, config=config, resume=(folder / "config.json").exists())
        if not report.is_finished:
            raise KeyboardInterrupt
    return open_encoder(folder)


def protocols(recipe: str, method: str, split: int) -> dict[str, Callable[[Encoder], EvaluationReport]]:
    choice, reading = SetsChoice(data=DATA, splits=(split,)), FeatureReading(num_workers=0)
    found: dict[str, Callable[[Encoder], EvaluationReport]] = {
        "retrieval": lambda encoder: evaluate_retrieval(
            encoder, choice, settings=RetrievalSettings(metrics=METRICS), reading=reading
        ),
        "linear": lambda encoder: evaluate_linear(encoder, choice, reading=reading),
        "linear, heads learn": lambda encoder: evaluate_linear(
            encoder, choice, settings=LinearSettings(train_heads=True), reading=reading
        ),
        "linear, pooled": lambda encoder: evaluate_linear(
            encoder, choice, settings=LinearSettings(features="pooled"), reading=reading
        ),
    }
    if recipe != "frozen":
        settings = dataclasses.replace(
            FINETUNE_RECIPES["tiny"], from_scratch=method == "untrained", num_workers=0
        )
        found["finetune"] = lambda encoder: evaluate_finetune(
            encoder, choice, settings=settings, out=SCRATCH / f"finetune-{recipe}-{method}"
        )
    return found


def read() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def known_recipe(name: str) -> str:
    if name not in RECIPES:
        raise argparse.ArgumentTypeError(f"{name} is not measured here: give {', '.join(RECIPES)}")
    return name


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    # Not `choices`: argparse holds them against the empty list, too.
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", type=known_recipe)
    parser.add_argument("--splits", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--protocols", nargs="+")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    for recipe in () if options.table else options.recipes:
        for split in options.splits:
            for method in options.methods:
                for name, evaluate in protocols(recipe, method, split).items():
                    key = f"{recipe}/{method}/{name}/split {split}"
                    if key in read() or (options.protocols and name not in options.protocols):
                        continue
                    encoder = encoder_of(recipe, method, split)
                    began = time.process_time()
                    (result,) = evaluate(encoder).results
                    kept = {
                        "scores": {
                            score: dataclasses.asdict(share) for score, share in result.scores.items()
                        },
                        "notes": result.notes,
                        "failed": result.card.num_failed,
                        "cpu_seconds": round(time.process_time() - began, 1),
                    }
                    RESULTS.write_text(json.dumps(read() | {key: kept}, indent=1, sort_keys=True) + "\n")
                    first = next(iter(result.scores.items()))
                    print(key, first[0], first[1], f"{kept['cpu_seconds']} s", flush=True)
    print_table(read())


def print_table(results: dict[str, Any]) -> None:
    """Means over the splits that are there, in per cent."""
    rows: dict[tuple[str, str, str], list[float]] = {}
    for key, kept in results.items():
        recipe, method, protocol, _ = key.split("/")
        for score, share in kept["scores"].items():
            if score.startswith(("R@1 ", "top-1")):
                rows.setdefault((recipe, f"{protocol}: {score}", method), []).append(share["value"])
    for recipe in dict.fromkeys(row[0] for row in rows):
        print(f"\n{recipe:<55}" + "".join(f"{method:>14}" for method in METHODS))
        for score in dict.fromkeys(row[1] for row in rows if row[0] == recipe):
            cells = (rows.get((recipe, score, method), []) for method in METHODS)
            print(
                f"{score:<55}"
                + "".join(
                    f"{100 * sum(cell) / len(cell):>9.1f} ({len(cell)})" if cell else f"{'':>13}"
                    for cell in cells
                )
            )


if __name__ == "__main__":
    main()
