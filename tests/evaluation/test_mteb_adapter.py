"""A small task in the format of mteb: rows of a data set whose videos are files or bytes, in a DataLoader."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from provico.data.catalog import open_catalog
from provico.embedding.driver import embed
from provico.errors import ConfigError, MissingDependencyError, TooManyBrokenError
from provico.evaluation.mteb_adapter import MtebEncoder
from provico.models.encoder import Encoder


@dataclasses.dataclass(frozen=True)
class Column:
    """What `datasets.Video` and `datasets.Value` have in common here."""

    decode: bool = True


class Rows:
    """The part of `datasets.Dataset` that tasks of videos are made of."""

    def __init__(self, rows: list[dict[str, Any]], features: dict[str, Column]) -> None:
        self.rows, self.features = rows, features

    def cast_column(self, name: str, feature: Column) -> Rows:
        return Rows(self.rows, self.features | {name: feature})

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> dict[str, Any]:
        assert not self.features["video"].decode, "frames that others chose"
        return self.rows[row]


def test_a_row_is_embedded_as_its_file_is(
    colour_videos: Path, make_encoder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder: Encoder = make_encoder().eval()
    catalog = open_catalog(colour_videos)
    expected = embed(encoder, catalog, num_clips=2).videos.mean.numpy()
    files = [video.path for video in catalog]
    cells = [
        {"path": "a.mp4", "bytes": path.read_bytes()} if number % 2 else {"path": str(path), "bytes": None}
        for number, path in enumerate(files)
    ]
    monkeypatch.setattr("provico.evaluation.mteb_adapter.VIDEOS_AT_ONCE", 4)
    columns = {"video": Column(), "label": Column()}
    task = DataLoader(Rows([{"video": cell, "label": 0} for cell in cells], columns), batch_size=3)
    model = MtebEncoder(encoder, "us/small", num_clips=2)
    found = model.encode(task, task_metadata=None, hf_split="test", hf_subset="default")
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

    cosines = model.similarity(found, found)
    assert torch.allclose(cosines.diagonal(), torch.ones(len(files)), atol=1e-6)
    pairwise = model.similarity_pairwise(found, found[::-1].copy())
    assert torch.allclose(pairwise, cosines.flip(1).diagonal(), atol=1e-6)
    with pytest.raises(ConfigError, match="columns video, text, but this encoder takes only videos"):
        model.encode(DataLoader(Rows([], {"video": Column(), "text": Column()}), batch_size=1))
    broken = Rows([{"video": {"path": None, "bytes": b"no video"}}], {"video": Column()})
    with pytest.raises(TooManyBrokenError, match="cannot be opened as a video"):
        model.encode(DataLoader(broken, batch_size=1))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'provico\[mteb\]'"):
        _ = model.mteb_model_meta
