"""Does it learn? ProViCo against InfoNCE and against what was there before any training.

    python benchmarks/quality.py frozen              heads on frozen features, five classes of UCF101
    python benchmarks/quality.py frozen-random       the same heads from a random start, 300 larger steps
    python benchmarks/quality.py frozen-random-slow  the same at the recipe's own rate
    python benchmarks/quality.py frozen-extra        as frozen, 561 unlabelled videos beside them
    python benchmarks/quality.py tiny                from scratch, the same videos, motion and scenery
    python benchmarks/quality.py tiny-short          the same for half as long
    python benchmarks/quality.py tiny-extra          as tiny-short, 561 unlabelled videos beside them
    python benchmarks/quality.py tiny-motion         from scratch, the same videos, motion alone
    python benchmarks/quality.py tiny-motion-long    the same for twice as long, mining among all videos
    python benchmarks/quality.py demo                from scratch, the demo set, motion alone
    python benchmarks/quality.py tiny --data hmdb51-12 --ask ucf101-5 hmdb51-12     another set, and transfer
    python benchmarks/quality.py tiny --data ucf101-5 hmdb51-12 --ask ucf101-5 hmdb51-12     both together

For each split and seed every variant is trained on the training videos, without labels but for "true pairs",
through the same loop with the same encoder, videos, steps and augmentation. Then each test video is looked
for among the training videos of its set. `weizmann` is divided by people, `demo-set` is drawn. Each run is
written to the results file at once, and a run that is there already is not repeated, so it can be stopped at
any time. Videos: PROVICO_DATA, or ../shared/data.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from paper_networks import together
from provico import Catalog, Encoder, Library, Mixture, open_catalog, pretrain, write_demo_set
from provico.config import PretrainConfig
from provico.demo import demo_recipe
from provico.embedding.driver import embed
from provico.embedding.embeddings import Embeddings
from provico.embedding.features import clip_features
from provico.evaluation.retrieval import retrieve
from provico.evaluation.statistics import Estimate
from provico.metrics import r_auroc
from provico.models.saved import build_encoder
from provico.probability import MinedPairs
from provico.processes import join, keep_freed_memory
from provico.progress import silent
from provico.recipes import find_recipe
from provico.reproduce.settings import changed
from provico.training.data import open_training_data
from provico.training.objective import OBJECTIVES, Outcome, Provico, StepContext, find_objective
from provico.training.start import settle_batch_norm, start_heads
from trust_errors import official_sets, sets_of

SCRATCH = Path("benchmarks/scratch/quality")
RESULTS = Path("benchmarks/results/quality.json")

Change = Callable[[PretrainConfig], PretrainConfig]


def printed(method: str) -> str:
    """The objective as printed, with the rates and the cap on mined pairs of a recipe's own."""
    own = find_objective(method)
    assert isinstance(own.loss, Provico)
    form = Provico(max_share=own.loss.max_share, detach_weight=own.loss.detach_weight)
    name = f"{method}, as printed"
    OBJECTIVES[name] = form.as_objective(curve_factor=own.curve_factor, log_var_factor=own.log_var_factor)
    return name


def with_true_pairs(method: str, catalog: Catalog) -> None:
    """Add an objective that mines what labels say: the pairs of one class."""
    own = find_objective(method)
    form, labels = own.loss, torch.tensor(catalog.labels)
    assert isinstance(form, Provico)

    def loss(videos: Mixture, step: StepContext) -> Outcome:
        drawn = form.draw(videos, step)
        pairs = form.positive_pairs(videos, drawn, step)
        if pairs.threshold is not None:  # the second stage
            classes = labels[step.indices.cpu()]
            positive = (classes.unsqueeze(1) == classes).to(step.indices.device)
            pairs = MinedPairs(positive, math.inf, num_below_threshold=int(positive.sum()) - len(classes))
        # Without pairs in the outcome: how many a class has is nothing that training should judge.
        return replace(form.loss_of(videos, drawn, pairs, step), pairs=None)

    OBJECTIVES[f"{method}, true pairs"] = replace(own, loss=loss)


VARIANTS: dict[str, Change | None] = {
    "untrained": None,
    "infonce": lambda c: changed(c, objective={"method": "infonce"}),
    "provico, no mining": lambda c: changed(c, mining={"mine_from": None}),
    "provico": lambda c: c,
    # Oracle mining: learns from labels which videos are alike.
    "provico, true pairs": lambda c: changed(c, objective={"method": f"{c.objective.method}, true pairs"}),
    # The objective as printed, in units in which it can learn at all (docs/decisions/0003).
    "provico as printed": lambda c: changed(
        c,
        model={"parametrisation": "sqrt_dim"},
        objective={"method": printed(c.objective.method), "mean_contrast": 0.0, "num_samples": 10},
        mining={"threshold": 0.15, "mutual_top": 3, "distance": "bhattacharyya_expected"},
    ),
}
NUM_CLIPS = {
    "frozen": 8,
    "frozen-random": 8,
    "frozen-random-slow": 8,
    "frozen-extra": 8,
    "tiny": 5,
    "tiny-short": 5,
    "tiny-extra": 5,
    "tiny-motion": 5,
    "tiny-motion-long": 5,
    "demo": 5,
}
VARIED = {
    "frozen-random": "frozen",
    "frozen-random-slow": "frozen",
    "frozen-extra": "frozen",
    "tiny-short": "tiny",
    "tiny-extra": "tiny",
    "tiny-motion-long": "tiny-motion",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", choices=NUM_CLIPS)
    parser.add_argument("--splits", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--data", nargs="+", default=["ucf101-5"], help="the sets to learn from")
    parser.add_argument("--ask", nargs="+", help="the sets to evaluate on; if not given, those of --data")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="only print what the results file holds")
    options = parser.parse_args()
    learnt = ["demo-set"] if options.recipe == "demo" else options.data
    asked = options.ask or learnt
    if not options.table:
        torch.set_num_threads(options.threads)
        keep_freed_memory()
        for seed in options.seeds:
            for split in options.splits:
                for variant in options.variants:
                    end = f"{variant}/split {split}/seed {seed}"
                    keys = {name: f"{title(options.recipe, learnt, name)}/{end}" for name in asked}
                    if not set(keys.values()) <= set(read(options.results)):
                        results = run(options.recipe, variant, split, seed, learnt, asked)
                        options.results.parent.mkdir(parents=True, exist_ok=True)
                        everything = read(options.results) | {keys[name]: results[name] for name in asked}
                        options.results.write_text(json.dumps(everything, indent=1, sort_keys=True) + "\n")
                        print(end, json.dumps(results), flush=True)
    for name in asked:
        print_table(title(options.recipe, learnt, name), read(options.results))


def title(recipe: str, learnt: Sequence[str], asked: str) -> str:
    """The name of a table: the recipe, and which sets if they are not its own."""
    if recipe == "demo" or (list(learnt), asked) == (["ucf101-5"], "ucf101-5"):
        return recipe
    return f"{recipe}, {' and '.join(learnt)} to {asked}"


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def data_folder() -> Path:
    return Path(os.environ.get("PROVICO_DATA", "../shared/data"))


def sets_for(name: str, split: int) -> tuple[Catalog, Catalog]:
    """Training and test videos of a set."""
    if name != "demo-set":
        return sets_of(str(data_folder() / name), split, SCRATCH)
    folder = SCRATCH / name
    if not folder.exists():
        write_demo_set(folder)
    return official_sets(folder, split)


def settings_of(recipe: str, seed: int) -> PretrainConfig:
    if recipe == "demo":
        return demo_recipe(seed=seed, num_workers=0)
    config = changed(find_recipe(VARIED.get(recipe, recipe)), run={"seed": seed, "num_workers": 0})
    if recipe.startswith("frozen-random"):
        config = changed(config, optimiser={"max_steps": 300})
    if recipe == "frozen-random":
        config = changed(config, optimiser={"learning_rate": 1e-3})
    if recipe in ("tiny-short", "tiny-extra"):
        config = changed(config, mining={"mine_from": 4}, optimiser={"epochs": 15})
    if recipe == "tiny-motion-long":
        config = changed(
            config,
            objective={"method": "provico-streams", "mean_contrast": 100.0},
            mining={"among": "all", "mutual_top": 20},
            optimiser={"epochs": 30},
        )
    return config


def run(
    recipe: str, variant: str, split: int, seed: int, learnt: Sequence[str], asked: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """The scores on each of the sets that are asked about."""
    sets = {name: sets_for(name, split) for name in {*learnt, *asked}}
    train = together([sets[name][0] for name in learnt]) if len(learnt) > 1 else sets[learnt[0]][0]
    config = settings_of(recipe, seed)
    change = VARIANTS[variant]
    parts = (recipe, *learnt, variant.replace(" ", "-").replace(",", ""), str(split), str(seed))
    folder = SCRATCH / "-".join(parts)
    shutil.rmtree(folder, ignore_errors=True)
    began, cpu = time.perf_counter(), cpu_seconds()
    seconds: dict[str, float] = {}
    if change is None:
        torch.manual_seed(seed)
        encoder = build_encoder(config.model)
        settle_batch_norm(encoder, train)
    else:
        learnt_from = train
        if recipe.endswith("-extra"):
            learnt_from = train.joined(open_catalog(data_folder() / "unlabeled"))
        if variant == "provico, true pairs":
            with_true_pairs(config.objective.method, learnt_from)
        checkpoint = random_start(learnt_from, config, folder) if recipe.startswith("frozen-random") else None
        report = pretrain(learnt_from, out=folder, config=change(config), checkpoint=checkpoint)
        if not report.is_finished:
            raise KeyboardInterrupt
        if report.num_broken:  # labels are told by place in the catalog
            raise RuntimeError(f"{report.num_broken} videos cannot be read.")
        encoder = Encoder.from_pretrained(report.encoder_folder)
        seconds = {"seconds": time.perf_counter() - began, "cpu_seconds": cpu_seconds() - cpu}
        seconds |= {f"last {name}": report.last[name] for name in KEPT if name in report.last}
    found = {name: evaluate(encoder, *sets[name], NUM_CLIPS[recipe]) | seconds for name in asked}
    shutil.rmtree(folder, ignore_errors=True)
    return {name: {score: rounded(value) for score, value in row.items()} for name, row in found.items()}


def rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def evaluate(encoder: Encoder, train: Catalog, test: Catalog, num_clips: int) -> dict[str, Any]:
    queries, gallery = (embed(encoder, catalog, num_clips=num_clips) for catalog in (test, train))
    result = scores(encoder, queries, gallery)
    if encoder.config.backbone_spec.is_frozen:
        result["features"] = feature_recall(encoder, test, train, num_clips)
    return result


def random_start(catalog: Catalog, config: PretrainConfig, folder: Path) -> Path:
    """Where a run begins whose head of the mean does not start at the features' principal axes."""
    torch.manual_seed(config.run.seed)
    encoder = build_encoder(config.model)
    drawn = {name: value.clone() for name, value in encoder.head.mean.state_dict().items()}
    with join("auto") as processes:
        data = open_training_data(catalog, encoder, config, processes, Library(), print, silent)
    assert data.features is not None
    start_heads(encoder, data.features)
    encoder.head.mean.load_state_dict(drawn)
    start = folder.with_name(f"{folder.name}-start")
    shutil.rmtree(start, ignore_errors=True)
    encoder.save_pretrained(start)
    return start


KEPT = ("mining/precision", "mining/share", "health/effective_rank", "health/uncertainty_median")


def scores(encoder: Encoder, queries: Embeddings, gallery: Embeddings) -> dict[str, Any]:
    cosine = retrieve(queries, gallery, metric="cosine")
    match = retrieve(queries, gallery, metric="match", curve=encoder.match_curve())
    video = queries.videos.moment_matched
    interval = Estimate.of_share(cosine.correct, queries.groups).percent
    return {
        "cosine": 100 * cosine.recalls[1],
        "cosine R@5": 100 * cosine.recalls[5],
        "cosine mAP": 100 * mean_average_precision(queries, gallery),
        "match": 100 * match.recalls[1],
        "match R@5": 100 * match.recalls[5],
        "AUROC uncertainty": r_auroc(video.log_uncertainty, cosine.correct),
        "AUROC uncertainty of clips": r_auroc(queries.videos.clips.log_uncertainty.mean(1), cosine.correct),
        "AUROC uncertainty, match": r_auroc(video.log_uncertainty, match.correct),
        "AUROC match probability": r_auroc(-match.score, match.correct),
        "AUROC cosine": r_auroc(-cosine.score, cosine.correct),
        "interval": [interval.low, interval.high],
        "failed": match.num_failed,
    }


def mean_average_precision(queries: Embeddings, gallery: Embeddings) -> float:
    """Of all videos of a query's class by cosine, not of the nearest alone."""
    a, b = (F.normalize(videos.videos.mean, dim=1) for videos in (queries, gallery))
    number_of = {label: number for number, label in enumerate(dict.fromkeys(gallery.labels))}
    wanted, there = (torch.tensor([number_of[label] for label in e.labels]) for e in (queries, gallery))
    right = there[(a @ b.T).argsort(dim=1, descending=True)] == wanted.unsqueeze(1)
    precision = right.cumsum(dim=1) / torch.arange(1, len(b) + 1)
    return float(((precision * right).sum(dim=1) / right.sum(dim=1)).double().mean())


@torch.no_grad()
def feature_recall(encoder: Encoder, test, train, num_clips: int) -> float:
    """R@1 by the cosine of what heads on a frozen network are given: what was there without training."""
    sets = [
        clip_features(encoder, catalog, num_clips=num_clips, short_side=encoder.config.input.size).features
        for catalog in (test, train)
    ]
    standardise = encoder.head.standardisation
    if not bool(standardise.shift.any()):
        standardise.fit(sets[1].mean(dim=1), blocks=encoder.config.backbone_spec.feature_blocks)
    a, b = (F.normalize(standardise(features).mean(dim=1), dim=1) for features in sets)
    labels = torch.tensor(train.labels)[(a @ b.T).argmax(dim=1)]
    return 100 * float((labels == torch.tensor(test.labels)).double().mean())


def cpu_seconds() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def print_table(recipe: str, results: dict[str, Any]) -> None:
    columns = ("cosine", "match", "cosine mAP", "AUROC uncertainty", "AUROC match probability", "cpu_seconds")
    print(f"\n{recipe}: mean over splits and seeds, standard deviation over seeds of the mean over splits")
    print(f"{'variant':<22}{'runs':>5}" + "".join(f"{name:>25}" for name in columns))
    for variant in VARIANTS:
        runs = {key: value for key, value in results.items() if key.startswith(f"{recipe}/{variant}/")}
        if not runs:
            continue
        cells = []
        for name in columns:
            by_seed: dict[str, list[float]] = {}
            for key, value in runs.items():
                if name in value:
                    by_seed.setdefault(key.rpartition(" ")[2], []).append(value[name])
            means = [statistics.mean(values) for values in by_seed.values()]
            spread = f" ± {statistics.stdev(means):.2f}" if len(means) > 1 else ""
            cells.append(f"{statistics.mean(means):.2f}{spread}" if means else "")
        print(f"{variant:<22}{len(runs):>5}" + "".join(f"{cell:>25}" for cell in cells))


if __name__ == "__main__":
    main()
