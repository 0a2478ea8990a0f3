"""Files of features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from provico.data.catalog import open_catalog
from provico.data.feature_file import FeatureFile
from provico.errors import CatalogError, ConfigError, OutputExistsError, WeightsError


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_features_come_back_as_written(tmp_path: Path, suffix: str) -> None:
    ids = ("a/één.avi", "b", "c")
    written = FeatureFile(ids, torch.randn(3, 2, 4))
    path = tmp_path / f"features{suffix}"
    written.save(path)
    read = FeatureFile.load(path)
    assert read.ids == ids
    assert torch.equal(read.features, written.features)
    assert torch.equal(read.of(["c", "a/één.avi"]), written.features[[2, 0]])
    with pytest.raises(CatalogError, match="1 of 2 videos have no stored features, the first of them 'd'"):
        read.of(["a/één.avi", "d"])
    with pytest.raises(OutputExistsError, match="exists already"):
        written.save(path)


def test_files_that_are_no_features_are_refused(tmp_path: Path) -> None:
    objects = tmp_path / "objects.npz"
    np.savez(objects, ids=np.array([{"a": 1}], dtype=object), features=np.zeros((1, 1, 1)))
    other = tmp_path / "other.npz"
    np.savez(other, names=np.zeros(1))
    noise = tmp_path / "noise.safetensors"
    noise.write_bytes(b"not a file of tensors")
    for path in (objects, other, noise, tmp_path / "absent.npz"):
        with pytest.raises(WeightsError, match="cannot be read as stored features"):
            FeatureFile.load(path)
    with pytest.raises(ConfigError, match="must end in"):
        FeatureFile(("a",), torch.zeros(1, 1, 1)).save(tmp_path / "features.csv")


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_what_is_known_of_the_videos_comes_back_and_makes_a_catalog(tmp_path: Path, suffix: str) -> None:
    written = FeatureFile(
        ("a", "b", "c"),
        torch.randn(3, 2, 4),
        labels=("run", None, "walk"),
        groups=("1", "1", None),
        subsets=("train", "test", None),
        blocks=(1, 3),
    )
    path = tmp_path / f"features{suffix}"
    written.save(path)
    read = FeatureFile.load(path)
    names = ("ids", "labels", "groups", "subsets", "blocks")
    assert [getattr(read, name) for name in names] == [getattr(written, name) for name in names]
    catalog = open_catalog(path)
    assert (catalog.layout, catalog.classes) == ("features", ("run", "walk"))
    assert [(video.id, video.label, video.group, video.subset) for video in catalog] == [
        ("a", "run", "1", "train"),
        ("b", None, "1", "test"),
        ("c", "walk", None, None),
    ]
    assert [video.id for video in open_catalog(path, subset="test")] == ["b"]


def test_ids_and_features_must_agree() -> None:
    with pytest.raises(ConfigError, match="There are 1 ids"):
        FeatureFile(("a",), torch.zeros(2, 1, 1))
    with pytest.raises(ConfigError, match="There are 2 labels, but 1 videos"):
        FeatureFile(("a",), torch.zeros(1, 1, 1), labels=("x", "y"))
    with pytest.raises(ConfigError, match="have 3 features, but there are 2"):
        FeatureFile(("a",), torch.zeros(1, 1, 2), blocks=(1, 2))
    with pytest.raises(ConfigError, match="1 of 2 videos are not finite, the first of them 'b'"):
        FeatureFile(("a", "b"), torch.tensor([[[0.0]], [[float("nan")]]]))
    with pytest.raises(ConfigError, match="'a' occurs more than once"):
        FeatureFile(("a", "a"), torch.zeros(2, 1, 1))
