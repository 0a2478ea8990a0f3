"""Every file that is read may be damaged or tampered with: a sentence or a result, never a traceback.

A few examples by default; PROVICO_FUZZ=1000 tries so many of each kind.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from provico.curation.decisions import DecisionLog
from provico.curation.folder import CurationFolder
from provico.data.feature_file import FeatureFile
from provico.data.frames.video import index_video
from provico.data.library import Library
from provico.embedding.file import read_embeddings
from provico.errors import ProvicoError
from provico.models import Encoder
from provico.search.index import Index
from provico.search.judgements import JudgementLog

from .damage import ODD_VALUES, changed, damaged_bytes, places, without

EXAMPLES = int(os.environ.get("PROVICO_FUZZ", "8"))
few = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
BYTES = st.tuples(
    st.sampled_from(["cut", "overwritten", "inserted", "replaced"]),
    st.floats(0, 1),
    st.binary(min_size=1, max_size=40),
)


@pytest.fixture(scope="module")
def files(
    made_once: Callable[[str, Callable[[Path], object]], Path],
    shaded_videos: Path,
    shaded_encoder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """One of each kind of file, whole."""
    from provico.cli import main
    from provico.data.catalog import open_catalog

    def make(folder: Path) -> None:
        folder.mkdir()
        shutil.copytree(shaded_encoder, folder / "encoder")
        catalog = open_catalog(shaded_videos).subset(range(0, 40, 2))
        library = Library(folder / "home")
        index = Index.create(folder / "index", Encoder.from_pretrained(shaded_encoder), num_clips=1)
        index.add(catalog, library=library)
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
        main(["embed", str(listing), "--checkpoint", str(shaded_encoder), "--out", out, "--num-clips", "1"])
        shutil.copy(catalog[0].path, folder / "video.mp4")
        (folder / "video").mkdir()
        np.savez(folder / "features.npz", features=np.ones((4, 3), np.float32), ids=np.array(list("abcd")))

    return made_once("files-to-damage", make)


def sentence_or_result(use: Callable[[], object]) -> None:
    """Nothing but an error of ours may come out of it."""
    with suppress(ProvicoError):
        use()


def search(folder: Path) -> None:
    index = Index.open(folder)
    if len(index):
        index.search(index.ids[0], k=3).summary()


JSON_FILES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "config.json": ("encoder", Encoder.from_pretrained),
    "index.json": ("index", search),
    "calibration.json": ("index", search),
}


@pytest.mark.parametrize("name", JSON_FILES)
def test_settings_with_other_values(files: Path, tmp_path: Path, name: str) -> None:
    folder_name, use = JSON_FILES[name]
    folder = shutil.copytree(files / folder_name, tmp_path / folder_name)
    whole = json.loads((folder / name).read_text())
    everywhere = [*places(whole)]

    @given(st.sampled_from(everywhere), st.sampled_from(ODD_VALUES) | st.just("without"))
    @few
    def check(place: tuple[object, ...], other: object) -> None:
        spoilt = without(whole, place) if other == "without" else changed(whole, place, other)
        (folder / name).write_text(json.dumps(spoilt))
        sentence_or_result(lambda: use(folder))

    check()


def remembered(path: Path) -> None:
    library = Library(path.parent)
    video = path.parent.parent / "video.mp4"
    for _ in range(2):
        library.recall(video)
        library.features(video, maker="m")
        library.prepared(video, short_side=8)
        library.remember_features(video, np.ones((1, 2), np.float32), maker="m")
    shutil.rmtree(path.parent)


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
    "home/library.sqlite": remembered,
    "video.mp4": index_video,
}


@pytest.mark.parametrize("name", BINARY_FILES)
def test_damaged_bytes(files: Path, tmp_path: Path, name: str) -> None:
    whole = (files / name).read_bytes()
    if name.startswith("index/"):
        shutil.copytree(files / "index", tmp_path / "index")
    elif name.startswith("encoder/"):
        shutil.copytree(files / "encoder", tmp_path / "encoder")
    shutil.copy(files / "video.mp4", tmp_path / "video.mp4")

    @given(BYTES)
    @few
    def check(damage: tuple[str, float, bytes]) -> None:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(damaged_bytes(whole, *damage))
        sentence_or_result(lambda: BINARY_FILES[name](path))

    check()


@given(st.text(max_size=200), st.text(max_size=200))
@few
def test_damaged_proposals(tmp_path: Path, proposals: str, segments: str) -> None:
    header = "path,id,label,group,split,duration_seconds,bucket,reason,uncertainty,disagreement\n"
    (tmp_path / "proposals.csv").write_text(header + proposals, encoding="utf-8", errors="surrogatepass")
    (tmp_path / "segments.csv").write_text(
        "id,start_seconds,end_seconds\n" + segments, encoding="utf-8", errors="surrogatepass"
    )
    sentence_or_result(lambda: CurationFolder(tmp_path).current())
