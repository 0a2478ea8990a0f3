"""One of each kind of file that ProViCo reads, whole, and how each is read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from provico.cli import main
from provico.curation.decisions import DecisionLog
from provico.data.catalog import open_catalog
from provico.data.feature_file import FeatureFile
from provico.data.frames.prepared import prepare
from provico.data.frames.stores import read_copy
from provico.data.frames.video import index_video
from provico.data.library import Library
from provico.duplicates import find_duplicates
from provico.duplicates.kept import KeptDuplicates
from provico.embedding.file import read_embeddings
from provico.files import Signature
from provico.models import Encoder
from provico.models.saved import load_checkpoint, save_checkpoint
from provico.renamed import note_names
from provico.search.follow import Names, read_gone
from provico.search.index import Index
from provico.search.judgements import JudgementLog
from provico.search.lots import LotFile
from provico.training.run_log import read_metrics
from provico.workspace.actions import ActionLog, ActionTarget
from provico.workspace.folder import Workspace
from provico.workspace.status import Status, StatusWriter
from provico.workspace.store import NotRead, read_not_read, write_not_read


def write_whole_files(folder: Path, videos: Path, encoder: Path) -> None:
    """Into a new folder; of labelled videos, at least 20."""
    folder.mkdir()
    shutil.copytree(encoder, folder / "encoder")
    catalog = open_catalog(videos)
    catalog = catalog.subset(range(0, len(catalog), max(1, len(catalog) // 20)))
    index = Index.create(folder / "index", Encoder.from_pretrained(encoder), num_clips=1)
    index.add(catalog, library=Library(folder / "home"))
    index.keep_chance()
    index.calibrate()
    JudgementLog(index.path).path.write_text("query,hit,verdict,time\na,b,right,2026\na,c,wrong,2026\n")
    log = DecisionLog(folder / "curation" / "decisions.jsonl")
    log.record("a", "trim", segments=[(1.0, 2.0)])
    log.record("b", "keep")
    log.undo()
    listing = folder / "list.txt"
    listing.write_text("".join(f"{video.path} {video.label}\n" for video in catalog.subset(range(3))))
    out = str(folder / "embeddings.parquet")
    main(["embed", str(listing), "--checkpoint", str(encoder), "--out", out, "--num-clips", "1"])
    shutil.copy(catalog[0].path, folder / "video.mp4")
    np.savez(folder / "features.npz", features=np.ones((4, 3), np.float32), ids=np.array(list("abcd")))
    FeatureFile(tuple("abcd"), torch.ones(4, 2, 3)).save(folder / "features.safetensors")
    save_checkpoint(folder / "run", {"step": 1, "weights": {"a": torch.ones(3)}, "name": "x"}, step=1, keep=1)
    (folder / "run" / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.0}\n')
    report = prepare(catalog.subset([0]), library=Library(folder / "home"), folder=folder, short_side=16)
    assert report.num_prepared == 1
    (copy,) = (path for path in folder.glob("??/*") if path.is_file())
    copy.rename(folder / "frames")
    KeptDuplicates(index.path).write(find_duplicates(index, library=Library(folder / "home")))
    KeptDuplicates(index.path).reject([("a", "b"), ("c", "d")])
    known = {"a": (5, "f00"), "b": (6, "ba5")}
    with Names(index.path, known).changing({"a": "e", "b": "f"}, indexed=(), vanished=known):
        pass
    note_names(folder, {"a": "e"}, key="1")
    write_collection(folder / "collection", catalog[0].path)


def write_collection(folder: Path, video: Path) -> None:
    """What is written down of a folder that was opened, and used."""
    folder.mkdir()
    shutil.copy(video, folder / "a.mp4")
    workspace = Workspace.open(folder, folder=folder)
    write_not_read(folder / "not_read.csv", [NotRead("b.mp4", 10**9, "no room"), NotRead("c,d", 1, "why")])
    StatusWriter(workspace.path, stages=["list", "read"], is_watching=False)
    log = ActionLog(folder, root=folder)
    target = ActionTarget(id="a.mp4", path=folder / "a.mp4", file=Signature.of(folder / "a.mp4"))
    for verb in ("tag", "trash"):
        log.do(verb, [target], to="red")
    log.undo()


def search(folder: Path) -> None:
    index = Index.open(folder)
    if len(index):
        index.search(index.ids[0], k=3).summary()


JSON_FILES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "config.json": ("encoder", Encoder.from_pretrained),
    "index.json": ("index", search),
    "calibration.json": ("index", search),
}


def remembered(path: Path) -> None:
    library = Library(path.parent)
    video = path.parent.parent / "video.mp4"
    for _ in range(2):
        library.recall(video)
        library.features(video, maker="m")
        library.prepared(video, short_side=8)
        library.remember_features(video, np.ones((1, 2), np.float32), maker="m")
    shutil.rmtree(path.parent)


def replayed(path: Path) -> None:
    log = ActionLog(path.parent, root=path.parent)
    assert log.read().tags is not None
    log.gone()
    log.undo()


BINARY_FILES: dict[str, Callable[[Path], object]] = {
    "encoder/config.json": lambda path: Encoder.from_pretrained(path.parent),
    "encoder/model.safetensors": lambda path: Encoder.from_pretrained(path.parent),
    "index/index.json": lambda path: search(path.parent),
    "index/calibration.json": lambda path: search(path.parent),
    "index/chance.npz": lambda path: search(path.parent),
    "index/judgements.csv": lambda path: JudgementLog(path.parent).read(),
    "curation/decisions.jsonl": lambda path: DecisionLog(path).read(),
    "embeddings.parquet": read_embeddings,
    "features.npz": FeatureFile.load,
    "features.safetensors": FeatureFile.load,
    "frames": lambda path: read_copy(path, [[0, 1]]),
    "run/step-000000001.pt": load_checkpoint,
    "run/metrics.jsonl": read_metrics,
    "index/lots.json": lambda path: LotFile(path.parent).read(),
    "index/duplicates.json": lambda path: KeptDuplicates(path.parent).read(),
    "index/not_duplicates.jsonl": lambda path: KeptDuplicates(path.parent).rejected(),
    "index/gone.json": lambda path: read_gone(path.parent),
    "index/renaming.json": lambda path: Names(path.parent, {"a": (5, "f00")}),
    "collection/collection.json": lambda path: Workspace(path.parent).settings,
    "collection/status.json": lambda path: Status.read(path.parent),
    "collection/actions.jsonl": replayed,
    "collection/not_read.csv": read_not_read,
    "home/library.sqlite": remembered,
    "video.mp4": index_video,
}
