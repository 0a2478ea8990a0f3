"""The paper's own networks, trained from scratch at a size that a CPU can bear.

    python benchmarks/paper_networks.py r3d18 provico --epochs 12 --work networks
    python benchmarks/paper_networks.py r3d18 infonce --epochs 12 --work networks
    python benchmarks/paper_networks.py --table

The recipe `paper` on the training videos of UCF101-5 and HMDB51-12 together (split 1), with 8 frames of 32
pixels and batches of 48. Warm-up and the start of mining are the paper's shares of the run: 20 and 30 of 200
epochs. A run that was stopped is resumed from its last checkpoint. At its end each set's test videos look for
their class among its training videos, and its classes are read from frozen features and by finetuning.
Results are kept a file each in --out. Videos: PROVICO_DATA, or ../shared/data.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from provico import Catalog, open_catalog, pretrain
from provico.config.evaluation import FINETUNE_RECIPES, FeatureReading, RetrievalSettings, SetsChoice
from provico.config.pretraining import PretrainConfig
from provico.evaluation.protocols import evaluate_finetune, evaluate_linear, evaluate_retrieval
from provico.models.saved import build_encoder, open_encoder
from provico.processes import keep_freed_memory
from provico.recipes import find_recipe
from provico.reproduce.settings import changed
from provico.training.start import settle_batch_norm

DATA = Path(os.environ.get("PROVICO_DATA", "../shared/data"))
SETS = ("ucf101-5", "hmdb51-12")
NETWORKS = ("r3d18", "r2plus1d18")
METHODS = ("provico", "infonce", "untrained")
OUT = Path(__file__).parent / "results" / "paper_networks"
CURVES = ("loss", "monitor/recall_at_1", "mining/precision", "mining/share", "health/uncertainty_median")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("network", nargs="?", choices=NETWORKS)
    parser.add_argument("method", nargs="?", choices=METHODS)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path("networks"))
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--table", action="store_true", help="print what --out holds")
    given = parser.parse_args()
    if given.table:
        print(table(given.out))
        return
    torch.set_num_threads(1)
    keep_freed_memory()
    measure(given.network, given.method, given.epochs, given.seed, given.work, given.out)


def settings(network: str, method: str, epochs: int, seed: int) -> PretrainConfig:
    return changed(
        find_recipe("paper"),
        model={"backbone": network, "size": 32, "num_frames": 8, "frame_step": 4},
        views={"store": "jpeg"},
        objective={"method": method if method != "untrained" else "provico"},
        mining={"mine_from": round(epochs * 30 / 200)},
        optimiser={"epochs": epochs, "batch_size": 48, "warmup_epochs": epochs * 20 / 200},
        run={"seed": seed, "num_workers": 0, "precision": "bf16", "log_every": 5, "checkpoint_every": 20},
    )


def measure(network: str, method: str, epochs: int, seed: int, work: Path, out: Path) -> None:
    config = settings(network, method, epochs, seed)
    videos = together([open_catalog(DATA / name, split=1, subset="train") for name in SETS])
    run = work / f"{network}-{method}-{epochs}-{seed}"
    found: dict[str, Any] = {"epochs": epochs, "videos": len(videos)}
    if method == "untrained":
        torch.manual_seed(seed)
        encoder = build_encoder(config.model)
        settle_batch_norm(encoder, videos)
        encoder.eval()
    else:
        report = pretrain(videos, out=run, config=config, resume=(run / "config.json").exists())
        if not report.is_finished:
            raise KeyboardInterrupt
        encoder = open_encoder(run)
        found["curves"] = curves(run)
    reading = FeatureReading(num_workers=0)
    for name in SETS:
        choice = SetsChoice(data=DATA / name, splits=(1,))
        tune = dataclasses.replace(
            FINETUNE_RECIPES["tiny"],
            from_scratch=method == "untrained",
            num_workers=0,
            epochs=10,
            precision="bf16",
        )
        retrieval = RetrievalSettings(metrics=("match", "cosine"))
        for protocol, reports in (
            ("retrieval", evaluate_retrieval(encoder, choice, settings=retrieval, reading=reading)),
            ("linear", evaluate_linear(encoder, choice, reading=reading)),
            ("finetune", evaluate_finetune(encoder, choice, settings=tune, out=work / f"{run.name}-{name}")),
        ):
            (result,) = reports.results
            scores = {score: dataclasses.asdict(share) for score, share in result.scores.items()}
            found[f"{name} {protocol}"] = scores
            print(run.name, name, protocol, json.dumps(scores), flush=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{run.name}.json").write_text(json.dumps(found, indent=1) + "\n")


def together(catalogs: Sequence[Catalog]) -> Catalog:
    """The videos of several sets, with their labels: the run's log tells how right mined pairs are."""
    videos = [
        dataclasses.replace(video, id=video.path.as_posix(), group=f"{catalog.root.name}/{video.group}")
        for catalog in catalogs
        for video in catalog
    ]
    classes = tuple(name for catalog in catalogs for name in catalog.classes)
    return dataclasses.replace(catalogs[0], videos=tuple(videos), classes=classes)


def curves(run: Path) -> list[dict[str, float]]:
    """The last value of each curve in each epoch of a run."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    by_epoch: dict[int, dict[str, float]] = {}
    for line in lines:
        known = {name: line[name] for name in CURVES if line.get(name) is not None}
        by_epoch.setdefault(int(line["epoch"]), {}).update(known)
    return [{"epoch": epoch} | values for epoch, values in sorted(by_epoch.items())]


def table(out: Path) -> str:
    rows = []
    for file in sorted(out.glob("*.json")):
        found = json.loads(file.read_text())
        cells = [
            f"{protocol} {score} {100 * share['value']:.1f}"
            for protocol, scores in found.items()
            if isinstance(scores, dict)
            for score, share in scores.items()
        ]
        rows.append(f"{file.stem}: {', '.join(cells)}")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
