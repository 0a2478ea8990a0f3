"""Mining where views of a frozen network, or parallel networks, agree; in whole runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from provico import FeatureFile, pretrain
from provico.config import MiningSettings, PretrainConfig
from provico.errors import ConfigError
from provico.probability import Gaussian, Mixture
from provico.recipes import find_recipe
from provico.training.memory import VideoMemory
from provico.training.views import agreement_of_streams, recordings_of, view_directions

NUM_VIDEOS, SIZE = 120, 6


def write_features(path: Path, *, strength: float, shared: float, blocks: tuple[int, ...] | None) -> Path:
    """Two kinds of features of videos of twenty classes; `shared` is what both see of a scene."""
    generator = torch.Generator().manual_seed(0)
    kinds = torch.arange(NUM_VIDEOS) // SIZE
    scenes = torch.randn(NUM_VIDEOS, 24, generator=generator)
    parts = []
    for _ in range(2):
        of_kind = torch.randn(NUM_VIDEOS // SIZE, 24, generator=generator)[kinds]
        parts.append(strength * of_kind + shared * scenes + torch.randn(NUM_VIDEOS, 24, generator=generator))
    videos = torch.cat(parts, dim=1).unsqueeze(1)
    features = videos + 0.3 * torch.randn(NUM_VIDEOS, 4, 48, generator=generator)
    names = tuple(f"video {row:03}" for row in range(NUM_VIDEOS))
    FeatureFile(names, features, labels=tuple(f"kind {kind}" for kind in kinds.tolist()), blocks=blocks).save(
        path
    )
    return path


def run(features: Path, out: Path) -> tuple[list[str], list[dict]]:
    said: list[str] = []
    config = find_recipe("frozen")
    config = dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, dim=16),
        mining=dataclasses.replace(config.mining, mutual_top=8),
        optimiser=dataclasses.replace(config.optimiser, max_steps=4),
        run=dataclasses.replace(config.run, log_every=1),
    )
    pretrain(features, out=out, config=config, announce=said.append)
    return said, [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.usefixtures("without_charts")
def test_agreed_pairs_are_learnt_from_and_logged_beside_the_truth(tmp_path: Path) -> None:
    features = write_features(tmp_path / "f.npz", strength=2.0, shared=0.0, blocks=(24, 24))
    said, records = run(features, tmp_path / "run")
    assert any("they are used" in text for text in said)
    last = records[-1]
    assert last["mining/num_pairs"] > NUM_VIDEOS
    assert last["mining/precision"] > 0.9
    assert last["mining/precision"] - 0.2 < last["mining/estimated_precision"] <= 1
    assert "loss/mean_contrast" not in last


@pytest.mark.usefixtures("without_charts")
@pytest.mark.parametrize(
    ("blocks", "words"), [((24, 24), "they are not used"), (None, "The features are of one kind")]
)
def test_where_views_see_one_scene_or_are_one_the_means_are_contrasted(
    tmp_path: Path, blocks: tuple[int, ...] | None, words: str
) -> None:
    features = write_features(tmp_path / "f.npz", strength=0.2, shared=2.0, blocks=blocks)
    said, records = run(features, tmp_path / "run")
    assert any(words in text for text in said)
    assert records[-1]["mining/num_pairs"] == 0
    assert records[-1]["loss/mean_contrast"] > 0


def test_a_network_that_learns_has_no_views(colour_videos: Path, tmp_path: Path) -> None:
    config = find_recipe("tiny-motion")
    mining = MiningSettings(mine_from=0, threshold=None, mutual_top=3, among="views")
    with pytest.raises(ConfigError, match="--among views compares features of a frozen network, but tiny"):
        pretrain(
            colour_videos / "train",
            out=tmp_path / "run",
            config=dataclasses.replace(
                config, mining=mining, views=dataclasses.replace(config.views, store="none")
            ),
        )


def test_videos_that_look_alike_in_all_views_are_one_recording() -> None:
    generator = torch.Generator().manual_seed(0)
    videos = torch.randn(40, 48, generator=generator)
    videos[1::2] = videos[::2] + 0.01 * torch.randn(20, 48, generator=generator)
    views = view_directions(videos, (24, 24))
    for view in views:
        torch.testing.assert_close(view.norm(dim=1), torch.ones(40))
        assert F.cosine_similarity(view[::2], view[1::2]).min() > 0.99
    assert recordings_of(views, [None] * 40).tolist() == [row // 2 * 2 for row in range(40)]
    named = [f"film {row}" for row in range(40)]
    assert recordings_of(views, named).tolist() == list(range(40))


@pytest.mark.parametrize(("strength", "seed"), [(1.0, 0), *((0.0, seed) for seed in range(20))])
def test_streams_are_trusted_if_they_agree_beyond_chance(strength: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.arange(240) // 12
    means = torch.randn(240, 32, generator=generator)
    for stream in means.chunk(2, dim=1):
        stream += strength * torch.randn(20, 16, generator=generator)[kinds]
    memory = VideoMemory(250, 32)
    seen = Gaussian(means.unsqueeze(1), torch.zeros(240, 1, 32))
    memory.see(torch.arange(240), Mixture(seen))
    groups = [f"film {row}" for row in range(250)]
    found = agreement_of_streams(memory, groups, 2, num_nearest=12, seed=0)
    assert (found > 0) == (strength > 0)
    # Where every video is among the nearest of every other, agreement says nothing.
    assert agreement_of_streams(memory, groups, 2, num_nearest=240, seed=0) == 0


def test_streams_that_agree_on_everything_mine_nothing(colour_videos: Path, tmp_path: Path) -> None:
    config = PretrainConfig.from_dict(
        {
            "model": {"backbone": "tiny_two_streams", "size": 32, "num_frames": 4, "dim": 16},
            "views": {"store": "none"},
            "objective": {"num_samples": 4},
            "mining": {"mine_from": 1, "threshold": None, "mutual_top": 60, "among": "all"},
            "optimiser": {"epochs": 3, "batch_size": 6, "warmup_epochs": 1},
            "run": {"num_workers": 0, "log_every": 1, "device": "cpu"},
        }
    )
    pretrain(colour_videos / "train", out=tmp_path / "run", config=config)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    mining = [line for line in lines if line["epoch"] > 1]
    assert mining
    assert {line["mining/estimated_precision"] for line in mining} == {0.0}
    assert {line["mining/num_pairs"] for line in lines} == {0}
