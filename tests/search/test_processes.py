"""Processes that are started together write one index, which is the one that a single process writes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from provico.data.catalog import open_catalog
from provico.data.library import Library
from provico.search.index import Index
from provico.search.store.folder import IndexFolder
from provico.search.store.video_store import BLOBS, TEXT, Rows

from ..warm_processes import all_succeed


def rows_of(index: Index) -> Rows:
    names = [*TEXT, *index.settings.columns, *BLOBS]
    return IndexFolder(index.path).open_store(index.settings).read(names)


@pytest.mark.parametrize("engine", ["lancedb", "postgres"])
def test_two_processes_write_the_index_of_one(engine, encoder, colour_videos, tmp_path, request, fork_server):
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
    environment = os.environ | {"PROVICO_HOME": str(home)}
    processes = fork_server.start_together(*words, *options, environment=environment)
    all_succeed(processes)
    assert processes[1].stdout == ""
    report = json.loads(processes[0].stdout)
    together = Index.open(out)
    mine, theirs = rows_of(alone), rows_of(together)
    assert together.ids == alone.ids
    assert len(together.ids) == 12
    for name, values in mine.items():
        if isinstance(values, list) or values.dtype.kind != "f":
            assert np.array_equal(values, theirs[name]), name
        else:  # batches are cut elsewhere, which may round otherwise
            np.testing.assert_allclose(theirs[name], values, rtol=1e-5, atol=1e-7, err_msg=name)
    assert report == expected.summary() | {"path": str(out), "failed": report["failed"]}
    assert set(report["failed"]) == {"black/a.mp4", "black/b.mp4"}
    if engine == "postgres":
        assert together.version == 3  # empty, and one commit of each process
