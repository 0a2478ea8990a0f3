"""The whole pipeline on the built-in demo set: `make demo` runs it."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path

import numpy as np
import simplejpeg

from provico.config import PretrainConfig
from provico.data.catalog import Catalog, open_catalog
from provico.data.demo_set.videos import write_demo_set
from provico.data.scan import scan
from provico.progress import progress_bar
from provico.recipes import find_recipe
from provico.show import show_before_and_after, show_pretrained, show_scan

SHOWN = ("R@1 cosine", "R@1 match", "R@5 cosine", "R@5 match")
_FRAMES_SHOWN = 8


def demo_recipe(*, seed: int = 0, num_workers: int | None = None) -> PretrainConfig:
    """The recipe `tiny-motion`, adapted to a small set (an epoch is two steps) whose classes differ only in
    motion."""
    tiny = find_recipe("tiny-motion")
    return dataclasses.replace(
        tiny,
        optimiser=dataclasses.replace(tiny.optimiser, epochs=60, warmup_epochs=5),
        mining=dataclasses.replace(tiny.mining, mine_from=36, mutual_top=1),
        run=dataclasses.replace(tiny.run, seed=seed, num_workers=num_workers),
    )


def run(out: Path, *, num_workers: int | None = None) -> None:
    """Write the demo set, scan it, pretrain on it without labels, and evaluate the result."""
    data = out / "data"
    if not data.exists():
        out.mkdir(parents=True, exist_ok=True)
        with progress_bar("Writing the demo set") as progress:
            write_demo_set(data, num_workers=num_workers, progress=progress)
    catalog = open_catalog(data, subset="train")
    test = open_catalog(data, subset="test")
    print(f"The demo set in {data} has the layout {catalog.layout}:")
    print(f"{len(catalog)} videos to train on, {len(test)} to test on; the classes differ only in motion.\n")
    with progress_bar("Scanning") as progress:
        report = scan(open_catalog(data), num_workers=num_workers, progress=progress)
    show_scan(report, report.write(out / "scan"))
    picture = out / "clips.jpg"
    classes = write_contact_sheet(picture, catalog)
    print(f"\n{picture} shows the first half second of one video of each class, one per row:")
    print(", ".join(classes) + ".\n")
    learn(data, out / "run")
    if (out / "run" / "encoder").is_dir():
        make_findable(data, out)
        # Print the command as it was called: its environment may not be active.
        command = sys.argv[0] if Path(sys.argv[0]).name == "provico" else "provico"
        print("\nSearch and clean it on a page:")
        print(f"{command} serve {out}/index --run {out}/run --open")


def make_findable(data: Path, out: Path) -> None:
    """Index the set with the trained encoder, and search with one of its test videos."""
    from provico.search.calibrate import LEAST_VIDEOS
    from provico.search.open_or_create import open_or_create
    from provico.show import show_added, show_answer

    catalog = open_catalog(data)
    with progress_bar("Indexing") as progress:
        index = open_or_create(out / "index", out / "run")
        report = index.add(catalog, progress=progress)
    print()
    show_added(report)
    index.keep_chance()
    if report.has_changed and len(index) >= LEAST_VIDEOS:
        index.calibrate()
    new = {video.id for video in open_catalog(data, subset="test")}
    known = index.loaded.store.read(("id", "uncertainty"))
    unsure = {
        name: value for name, value in zip(known["id"], known["uncertainty"], strict=True) if name in new
    }
    print("\nOf the new videos, the encoder is most certain of this one:")
    query = min(unsure, key=lambda name: unsure[name])
    show_answer(index.search(query, k=3, exclude_same="group", max_chance=math.inf), index)


def learn(data: Path, folder: Path) -> None:
    """Pretrain, or resume, and compare the evaluation before and after training."""
    from provico.config.evaluation import FeatureReading, LinearSettings, RetrievalSettings, SetsChoice
    from provico.evaluation.protocols import features_of, open_all, retrieval_result
    from provico.evaluation.recognition import probe
    from provico.models.encoder import Encoder
    from provico.models.saved import build_encoder
    from provico.processes import keep_freed_memory
    from provico.training.pretrain import pretrain
    from provico.training.start import settle_batch_norm

    keep_freed_memory()
    config = demo_recipe()
    (sets,) = open_all(SetsChoice(data=data))
    with progress_bar("Pretraining") as progress:
        resume = (folder / "config.json").is_file()
        report = pretrain(sets.train, out=folder, config=config, resume=resume, progress=progress)
    show_pretrained(report)
    if not report.is_finished:
        return
    before = build_encoder(config.model)
    settle_batch_norm(before, sets.train)
    scores = []
    retrieval, linear = RetrievalSettings(metrics=("cosine", "match")), LinearSettings()
    with progress_bar("Evaluating") as progress:
        for encoder in (before.eval(), Encoder.from_pretrained(report.encoder_folder)):
            features = features_of(encoder, [sets], FeatureReading(), retrieval.num_clips, progress=progress)
            found = retrieval_result(encoder, sets, features, retrieval)
            probed = probe(encoder, sets, features(sets.train), features(sets.test), settings=linear)
            scores.append(
                {name: found.scores[name] for name in SHOWN} | {"linear probe": probed.scores["top-1"]}
            )
    show_before_and_after(*scores, num_classes=len(sets.train.classes), failure_line=found.failure_line)


def write_contact_sheet(path: Path, catalog: Catalog) -> tuple[str, ...]:
    """One row of frames for the first video of each class; return the classes in the order of the rows."""
    from provico.data.clips import ClipSpec
    from provico.data.loader import ClipLoader, ClipSettings

    first = {video.label: number for number, video in reversed(list(enumerate(catalog)))}
    chosen = catalog.subset([first[name] for name in catalog.classes])
    settings = ClipSettings(num_clips=1, spec=ClipSpec(_FRAMES_SHOWN, 2), short_side=96, crop_size=96)
    (batch,) = ClipLoader(chosen, settings, batch_size=len(chosen), shuffle=False, max_broken_share=0.0)
    videos, _, frames, height, width, _ = batch.pixels.shape
    sheet = batch.pixels[:, 0].permute(0, 2, 1, 3, 4).reshape(videos * height, frames * width, 3)
    path.write_bytes(simplejpeg.encode_jpeg(np.ascontiguousarray(sheet.numpy()), quality=90))
    return catalog.classes
