"""Balanced batches, and the toy's loop on pixels as well as on stored features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from provico.data.library import Library
from provico.reproduce.bench import Bench
from provico.reproduce.experiment import Size
from provico.reproduce.toy_mining import balanced_batches, looked_at, mine_while_training, toy_config


def test_batches_have_as_many_of_every_class():
    labels = [0] * 19 + [1] * 30 + [2] * 17
    batches = balanced_batches(labels, per_class=8, seed=(0,))
    assert len(batches) == 2
    used = np.concatenate(batches)
    assert len(set(used.tolist())) == len(used)
    for batch in batches:
        assert np.bincount(np.array(labels)[batch]).tolist() == [8, 8, 8]
    assert not np.array_equal(batches[0], balanced_batches(labels, per_class=8, seed=(1,))[0])


def test_the_papers_batch_has_308_hard_positive_pairs():
    (batch,) = balanced_batches(np.repeat(range(11), 8).tolist(), per_class=8, seed=(0,))
    labels = np.repeat(range(11), 8)[batch]
    same = labels[:, None] == labels
    assert np.triu(same, 1).sum() == 308


def test_the_paper_looks_every_20_epochs_from_epoch_40():
    assert sorted(looked_at(200)) == [40, 60, 80, 100, 120, 140, 160, 180, 200]


@pytest.mark.parametrize("recipe", ["frozen", "scratch"])
def test_precision_and_recall_are_of_the_mined_pairs(
    recipe: str, videos: Path, library: Library, tmp_path: Path
):
    size = Size(recipe=recipe, epochs=2, num_stored=4)
    bench = Bench(videos, tmp_path, preset="smoke", size=size, library=library)
    config = toy_config(bench, "squared_euclidean_sampled", 0)
    assert config.mining.threshold == "adaptive"
    assert config.mining.mutual_top is None
    found = mine_while_training(bench, config, bench.sets(1).train)
    assert found["failure"] == ""
    assert [point["epoch"] for point in found["curve"]] == [1, 2]
    for point in found["curve"]:
        # Four classes of four videos each: 24 of 120 pairs share a class.
        assert point["base"] == pytest.approx(24 / 120)
        assert 0 <= point["recall"] <= 1
        mined_right = point["recall"] * point["base"]
        assert np.isnan(point["precision"]) == (point["share"] == 0)
        if point["share"]:
            assert point["precision"] * point["share"] == pytest.approx(mined_right)
