"""What an index holds can be taken elsewhere."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from provico.cli import main
from provico.data.catalog import open_catalog
from provico.data.library import Library
from provico.embedding.driver import embed
from provico.embedding.file import read_embeddings
from provico.models import Encoder
from provico.search.index import Index


@pytest.fixture(scope="module")
def index(
    encoder: Encoder, colour_videos: Path, library: Library, tmp_path_factory: pytest.TempPathFactory
) -> Index:
    index = Index.create(tmp_path_factory.mktemp("export") / "index", encoder, num_clips=3)
    index.add(open_catalog(colour_videos), library=library)
    return index


def export(index: Index, out: Path, format: str) -> None:
    main(["export", str(index.path), "--format", format, "--out", str(out)])
    assert [path.name for path in out.parent.iterdir()] == [out.name]  # nothing is left over


def test_csv_has_a_line_for_each_video(index, tmp_path):
    export(index, tmp_path / "videos.csv", "csv")
    with (tmp_path / "videos.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == list(index.ids)
    for row in rows:
        assert 0 < float(row["uncertainty"]) < 1e3
        assert 0 <= float(row["disagreement"]) < 1e3
        assert Path(row["path"]).stat().st_size == int(row["num_bytes"])
        assert Path(row["preview"]) == index.preview(row["id"])
        assert row["label"] == Path(row["path"]).parent.name


def test_parquet_is_a_file_of_embeddings(index, encoder, colour_videos, library, tmp_path):
    export(index, tmp_path / "videos.parquet", "parquet")
    found = read_embeddings(tmp_path / "videos.parquet")
    expected = embed(encoder, open_catalog(colour_videos), num_clips=3, library=library)
    order = [expected.ids.index(name) for name in found.ids]
    assert torch.equal(found.videos.clips.mean, expected.videos.clips.mean[order])
    assert found.labels == tuple(expected.labels[place] for place in order)


def test_fiftyone_is_given_what_its_importer_asks_for(index, tmp_path):
    """By what its source reads: FiftyOne itself is not installed here."""
    out = tmp_path / "fiftyone"
    export(index, out, "fiftyone")
    metadata = json.loads((out / "metadata.json").read_text())
    assert (metadata["name"], metadata["media_type"]) == (index.path.name, "video")
    assert "version" not in metadata  # by which the layout is recognised
    samples = json.loads((out / "samples.json").read_text())["samples"]
    assert [sample["video_id"] for sample in samples] == list(index.ids)
    for number, sample in enumerate(samples):
        assert Path(sample["filepath"]).is_absolute()
        assert Path(sample["filepath"]).is_file()
        assert json.loads((out / sample["frames"]).read_text()) == {"frames": {}}
        assert sample["ground_truth"]["_cls"] == "Classification"
        assert sample["metadata"]["duration"] == pytest.approx(16 / 25)
        mean = index.loaded.videos.mean[number].numpy()
        assert np.array_equal(np.array(sample["embedding"], np.float32), mean)


def test_nothing_is_overwritten(index, tmp_path, capsys):
    (tmp_path / "videos.csv").write_text("mine")
    with pytest.raises(SystemExit):
        main(["export", str(index.path), "--format", "csv", "--out", str(tmp_path / "videos.csv")])
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "videos.csv").read_text() == "mine"
    with pytest.raises(SystemExit):
        main(["export", str(tmp_path), "--format", "csv", "--out", str(tmp_path / "other.csv")])
    assert "is not an index" in capsys.readouterr().err
