"""Does the uncertainty predict retrieval errors, does it notice corruption and junk, and what does it cost?

    python benchmarks/trust_errors.py ../shared/data/ucf101-5 frozen --splits 1 2 3 --seeds 0 1
    python benchmarks/trust_errors.py demo tiny-motion --splits 1 2 3 --seeds 0 1
    python benchmarks/trust_errors.py demo-junk tiny-motion --splits 1 2 3 --seeds 0

For each split and seed an encoder of the recipe learns from the training videos. "Before" is its last
checkpoint, whose variance is that of the loss; "after" is the finished encoder.

    new videos        test videos look for their class among the training videos, by match and by cosine
    training videos   they look for their class among those of other recordings, by cosine
    steps             clips of at most 64 test videos are mixed and masked (ucf101-5 and the demo set)
    junk              noisy, motionless and cut videos against the clear ones (the demo set)

A set without official splits gives a third of its recordings to each split as test videos. A recording is
what stands before the first underscore of a file's name, or before two of them (Weizmann: a person).
DATA.npz stands for files of features DATA-1.npz, DATA-2.npz, ..., one for each split (`benchmarks/mc3.py`):
their pixels are not there, so nothing is corrupted, and only rivals from features are measured.
`demo` is the embedded demo set; in `demo-junk` a fifth of its videos is junk. What was measured is kept in
`--work`, a file for each encoder, and not measured again; remove these files to repeat only the last step of
the runs, which learns the variance. `benchmarks/trust.py` makes the table of it.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from provico import open_catalog, open_encoder, pretrain
from provico.config.pretraining import PretrainConfig
from provico.data.catalog import LAYOUTS, Catalog
from provico.data.demo_set import videos as demo_videos
from provico.data.layouts.own import FEATURES_LAYOUT
from provico.data.library import Library
from provico.demo import demo_recipe
from provico.embedding.driver import embed_features
from provico.embedding.embeddings import Embeddings
from provico.embedding.features import clip_features
from provico.evaluation.embedded_search import Sampling, SearchedEmbeddings, hits_of
from provico.evaluation.rivals import nearest_distance, rival_doubts
from provico.models.encoder import Encoder
from provico.models.saved import checkpoints
from provico.recipes import find_recipe
from provico.reproduce.corruption import levels_for, masked, mixed
from provico.reproduce.corruption import measure as measure_levels

NUM_CLIPS = 10
"""Clips to learn from and to evaluate, so that features of a frozen network are computed once."""
SAMPLING_SEEDS = range(5)
"""R@1 by match is the mean over these: ten samples a video leave 1 to 2 points to chance."""
MOST_CORRUPTED = 64
STEPS_OF = ("ucf101-5", "demo")
ORACLE = "labels of the ten nearest"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("recipe")
    parser.add_argument("--splits", type=int, nargs="+", default=[1])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--without-steps", action="store_true", help="leave corruption out: most of the time")
    parser.add_argument("--work", type=Path, default=Path("trust"))
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    name = Path(given.data).name.removesuffix(".npz")
    for seed in given.seeds:
        for split in given.splits:
            file = given.work / f"{name}_{given.recipe}_{split}_{seed}.json"
            if not file.exists():
                sets = sets_of(given.data, split, given.work)
                has_steps = name in STEPS_OF and not given.without_steps
                run = given.work / "runs" / file.stem
                row = measure(sets, name, given.recipe, seed, run, given.work, has_steps=has_steps)
                file.write_text(json.dumps(row))
            print(file, flush=True)


def demo_set(name: str, work: Path) -> Path:
    folder = work / f"{name}-videos"
    if not folder.exists():
        demo_videos.VIDEOS_PER_AMBIGUOUS = 5 if name == "demo-junk" else 8
        demo_videos.write_demo_set(folder, num_workers=1)
    return folder


def settings(name: str, recipe: str, seed: int) -> PretrainConfig:
    if name.startswith("demo") and recipe == "tiny-motion":
        return demo_recipe(seed=seed, num_workers=0)
    config = find_recipe(recipe)
    if config.views.num_stored is not None:
        config = dataclasses.replace(config, views=dataclasses.replace(config.views, num_stored=NUM_CLIPS))
    return dataclasses.replace(config, run=dataclasses.replace(config.run, seed=seed, num_workers=0))


def sets_of(data: str, split: int, work: Path) -> tuple[Catalog, Catalog]:
    """Training and test videos."""
    if data.endswith(".npz"):
        file = Path(f"{data.removesuffix('.npz')}-{split}.npz")
        return open_catalog(file, subset="train"), open_catalog(file, subset="test")
    path = demo_set(data, work) if data.startswith("demo") else Path(data)
    has_splits = LAYOUTS[open_catalog(path, allow_missing=True).layout].num_splits > 1
    return (official_sets if has_splits else sets_of_recordings)(path, split)


def measure(
    sets: tuple[Catalog, Catalog],
    name: str,
    recipe: str,
    seed: int,
    run: Path,
    work: Path,
    *,
    has_steps: bool,
) -> dict[str, Any]:
    library = Library()
    train, test = sets
    is_stored = train.layout == FEATURES_LAYOUT
    learn(train, settings(name, recipe, seed), run, library)
    after, before = open_encoder(run), open_encoder(checkpoints(run / "checkpoints")[-1])
    learnt, new = (
        clip_features(after, part, num_clips=NUM_CLIPS, num_workers=0, library=library)
        for part in (train, test)
    )
    row: dict[str, Any] = {}
    for when, encoder in (("after", after), ("before", before)):
        gallery = embed_features(encoder, learnt.features, learnt.catalog, failed=learnt.failed)
        queries = embed_features(encoder, new.features, new.catalog, failed=new.failed)
        row[when] = {
            "new": of_new_videos(encoder, queries, gallery),
            "training": of_training_videos(gallery),
        }
        if name.startswith("demo") and not is_stored:
            row[when]["junk"] = of_junk(demo_set(name, work), queries, gallery)
    if is_stored:
        rivals = doubts_of_features(new.features, queries, gallery)
    else:
        rivals = rival_doubts(new.catalog.videos, new.features, queries, gallery, library=library)
    row["rivals"] = {rival: doubt.tolist() for rival, doubt in rivals.items()}
    if has_steps:
        row["steps"] = of_steps(after, test, library)
    return row


def learn(train: Catalog, config: PretrainConfig, run: Path, library: Library) -> None:
    """A run that is kept. If it is there, only its last step, which learns the variance, is done again."""
    if (run / "encoder").exists():
        shutil.rmtree(run / "encoder")
    if not pretrain(train, out=run, config=config, resume=run.exists(), library=library).is_finished:
        raise SystemExit(f"{run} was stopped. Run the command again to resume it.")


def doubts_of_features(features: torch.Tensor, queries: Embeddings, gallery: Embeddings) -> dict[str, Any]:
    return {
        "small feature norm": -features.double().mean(dim=1).norm(dim=1),
        "far from its nearest": nearest_distance(queries.videos.mean, gallery.videos.mean),
    }


def official_sets(data: Path, split: int) -> tuple[Catalog, Catalog]:
    return (
        open_catalog(data, split=split, subset="train", allow_missing=True),
        open_catalog(data, split=split, subset="test", allow_missing=True),
    )


def sets_of_recordings(data: Path, split: int) -> tuple[Catalog, Catalog]:
    """Two thirds of the recordings to learn from and a third to test; a recording is a group."""
    catalog = open_catalog(data)
    videos = [dataclasses.replace(video, group=recording(video.path.stem)) for video in catalog]
    tested = sorted({str(video.group) for video in videos})[split - 1 :: 3]
    train, test = (
        tuple(video for video in videos if (video.group in tested) == is_test) for is_test in (False, True)
    )
    return dataclasses.replace(catalog, videos=train), dataclasses.replace(catalog, videos=test)


def recording(stem: str) -> str:
    before, mark, _ = stem.partition("__")
    return before if mark else stem.split("_")[0]


def doubts_of(videos: Embeddings) -> dict[str, list[float]]:
    return {
        "uncertainty": videos.videos.uncertainty.tolist(),
        "total uncertainty": videos.videos.total_uncertainty.tolist(),
    }


def of_new_videos(encoder: Encoder, queries: Embeddings, gallery: Embeddings) -> dict[str, Any]:
    curve = encoder.match_curve().fixed()
    right, low = [], []
    for seed in SAMPLING_SEEDS:
        found, correct = hits_of(queries, SearchedEmbeddings(gallery, curve, Sampling(10, seed)), k=1)
        right.append(correct[:, 0].tolist())
        low.append((-found[:, 0]).tolist())
    cosine = F.normalize(queries.videos.mean, dim=1) @ F.normalize(gallery.videos.mean, dim=1).T
    best = [gallery.labels[row] for row in cosine.argmax(dim=1).tolist()]
    told = told_labels(cosine, gallery.labels)
    return {
        "groups": [group or name for group, name in zip(queries.groups, queries.ids, strict=True)],
        "right by match": right,
        "right by cosine": [hit == label for hit, label in zip(best, queries.labels, strict=True)],
        "doubts": doubts_of(queries) | {"low match probability": low[0], ORACLE: told},
    }


def of_training_videos(videos: Embeddings) -> dict[str, Any]:
    groups = [group or name for group, name in zip(videos.groups, videos.ids, strict=True)]
    directions = F.normalize(videos.videos.mean, dim=1)
    similarity = directions @ directions.T
    names = np.array(groups)
    similarity[torch.from_numpy(names[:, None] == names)] = -2
    best, hit = similarity.max(dim=1)
    return {
        "groups": groups,
        "right by cosine": [
            videos.labels[at] == label for at, label in zip(hit.tolist(), videos.labels, strict=True)
        ],
        "doubts": doubts_of(videos)
        | {"far from its nearest": (-best).tolist(), ORACLE: told_labels(similarity, videos.labels)},
    }


def told_labels(cosine: torch.Tensor, labels: Sequence[str | None]) -> list[float]:
    """The share of the ten nearest videos with another label than the nearest: kinds, if they were known."""
    _, number = np.unique(np.array(labels, str), return_inverse=True)
    nearest = torch.from_numpy(number)[cosine.topk(10, dim=1).indices]
    return (nearest != nearest[:, :1]).double().mean(dim=1).tolist()


def of_junk(data: Path, *parts: Embeddings) -> dict[str, Any]:
    with (data / "ground_truth.csv").open(newline="") as file:
        kinds = {Path(row["video"]).name: row["ambiguity"] for row in csv.DictReader(file)}
    return {
        "kinds": [kinds[Path(name).name] for part in parts for name in part.ids],
        "groups": [group for part in parts for group in part.groups],
        "doubts": {
            name: [value for part in parts for value in doubts_of(part)[name]] for name in doubts_of(parts[0])
        },
    }


def of_steps(encoder: Encoder, test: Catalog, library: Library) -> dict[str, Any]:
    rows = np.random.default_rng(0).permutation(len(test))[:MOST_CORRUPTED]
    test = test.subset(sorted(rows.tolist()))
    return {
        kind: measure_levels(encoder, test, levels_for(kind, encoder, len(test)), corrupt, library=library)
        for kind, corrupt in (("mixed", mixed), ("masked", masked))
    }


if __name__ == "__main__":
    main()
