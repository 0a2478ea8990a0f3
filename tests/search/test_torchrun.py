"""Processes that torchrun starts write one index together, which is the one that a single process writes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from provico.data.catalog import open_catalog
from provico.data.library import Library
from provico.search.index import Index
from provico.search.store.folder import IndexFolder
from provico.search.store.video_store import BLOBS, TEXT, Rows

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def rows_of(index: Index) -> Rows:
    names = [*TEXT, *index.settings.columns, *BLOBS]
    return IndexFolder(index.path).open_store(index.settings).read(names)


@pytest.mark.parametrize("engine", ["lancedb", "postgres"])
def test_two_processes_write_the_index_of_one(engine, encoder, colour_videos, tmp_path, request):
    store = ["--store", request.getfixturevalue("postgres")] if engine == "postgres" else []
    videos = Path(shutil.copytree(colour_videos / "train", tmp_path / "videos"))
    for name in ("a", "b"):  # neighbours, so that each process meets one
        (videos / "black" / f"{name}.mp4").write_bytes(b"no video")
    encoder.save_pretrained(tmp_path / "encoder")
    home = tmp_path / "home"
    alone = Index.create(tmp_path / "alone", encoder, num_clips=3)
    expected = alone.add(open_catalog(videos), library=Library(home))

    out = tmp_path / "together"
    words = ["-m", "provico", "index", videos, "--checkpoint", tmp_path / "encoder", "--out", out]
    options = ["--num-clips", "3", "--num-workers", "1", "--device", "cpu", "--json", *store]
    command = [*TORCHRUN, *map(str, words), *options]
    environment = os.environ | {"PROVICO_HOME": str(home), "OMP_NUM_THREADS": "1"}

    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)  # of the first process alone
    together = Index.open(out)
    mine, theirs = rows_of(alone), rows_of(together)
    assert together.ids == alone.ids
    assert len(together.ids) == 12
    for name, values in mine.items():
        assert np.array_equal(values, theirs[name]), name
    assert report == expected.summary() | {"path": str(out), "failed": report["failed"]}
    assert set(report["failed"]) == {"black/a.mp4", "black/b.mp4"}
    if engine == "postgres":
        assert together.version == 3  # empty, and one commit of each process
