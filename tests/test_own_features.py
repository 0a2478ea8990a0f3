"""Features of the user's own through the command line: heads learn on them, and are used on them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

import provico
from provico.cli import main
from provico.errors import ConfigError

CLASSES = ("jump", "run", "walk")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, without_charts: object) -> Path:
    """Two files of features around their class, and a run on the one with labels."""
    folder = tmp_path_factory.mktemp("features")
    generator = torch.Generator().manual_seed(0)
    centres = 3 * torch.randn(3, 1, 10, generator=generator)
    labels = [number % 3 for number in range(30)]
    features = centres[labels] + torch.randn(30, 6, 10, generator=generator)
    names = tuple(f"{number}.mp4" for number in range(30))
    words = tuple(CLASSES[label] for label in labels)
    groups = tuple(f"take {number // 6}" for number in range(30))
    file = provico.FeatureFile(names, features, labels=words, groups=groups, blocks=(4, 6))
    file.save(folder / "known.npz")
    file.save(folder / "known.safetensors")
    provico.FeatureFile(names, features).save(folder / "plain.safetensors")
    pretrain(folder / "known.npz", folder / "run")
    return folder


def pretrain(data: Path, out: Path, *more: str) -> None:
    main(
        ["pretrain", str(data), "--out", str(out), "--dim", "8", "--epochs", "3", "--num-workers", "0", *more]
    )


def said_of(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """What a refused command says."""
    with pytest.raises(SystemExit):
        main([str(argument) for argument in arguments])
    return capsys.readouterr().err


def test_heads_learn_on_features(place: Path, tmp_path: Path) -> None:
    encoder = provico.open_encoder(place / "run")
    assert encoder.config.backbone == "features"
    assert encoder.config.frozen is not None
    assert (encoder.config.frozen.feature_dim, encoder.config.frozen.blocks) == (10, (4, 6))
    # Checkpoints know as much, and both formats are the same data.
    (checkpoint,) = (place / "run" / "checkpoints").iterdir()
    unfinished = dataclasses.replace(encoder.config, num_remembered=None)  # evidence comes at the end
    assert provico.open_encoder(checkpoint).config == unfinished
    pretrain(place / "known.safetensors", tmp_path / "again")
    weights = [folder / "encoder" / "model.safetensors" for folder in (place / "run", tmp_path / "again")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    pretrain(place / "plain.safetensors", tmp_path / "plain")
    assert provico.open_encoder(tmp_path / "plain").config.frozen == type(encoder.config.frozen)(
        feature_dim=10
    )


def test_features_are_embedded(place: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "embeddings.parquet"
    main(["embed", str(place / "known.npz"), "--checkpoint", str(place / "run"), "--out", str(out)])
    found = provico.read_embeddings(out)
    file = provico.FeatureFile.load(place / "known.npz")
    assert (found.ids, found.labels, found.groups) == (file.ids, file.labels, file.groups)
    encoder = provico.open_encoder(place / "run")
    with torch.no_grad():
        expected = encoder.from_features(file.features)
    torch.testing.assert_close(found.videos.clips.mean, expected.clips.mean)
    assert found.videos.clips.mean.shape == (30, 6, 8)
    capsys.readouterr()
    main(["info", str(out), "--json"])
    assert json.loads(capsys.readouterr().out)["num_clips"] == 6
    few = tmp_path / "few.npz"
    main(
        [
            "embed",
            str(place / "known.npz"),
            "--checkpoint",
            str(place / "run"),
            "--out",
            str(few),
            "--num-clips",
            "2",
        ]
    )
    torch.testing.assert_close(provico.read_embeddings(few).videos.clips.mean, expected.clips.mean[:, [0, 5]])


def test_features_are_evaluated(place: Path, tmp_path: Path, capsys) -> None:
    run = ["--checkpoint", str(place / "run"), "--json"]
    main(["evaluate", "retrieval", str(place / "known.npz"), *run])
    report = json.loads(capsys.readouterr().out)
    assert "R@1 cosine" in json.dumps(report)
    linear = ["evaluate", "linear", str(place / "known.npz"), "--hold-out", "0.3", "--epochs", "2", *run]
    main(linear)
    assert "top-1" in json.dumps(json.loads(capsys.readouterr().out)).lower()
    main(["uncertainty", str(place / "known.npz"), *run, "--out", str(tmp_path / "uncertainty")])
    assert json.loads(capsys.readouterr().out)["num_videos"] == 30
    assert (tmp_path / "uncertainty" / "histogram.png").is_file()
    assert not list((tmp_path / "uncertainty").glob("timeline*"))


def test_what_needs_videos_is_refused(place: Path, tmp_path: Path, colour_videos: Path, capsys) -> None:
    features, run, out = place / "known.npz", place / "run", tmp_path / "out"
    video = colour_videos / "test" / "red" / "0.mp4"
    said = said_of(capsys, "embed", colour_videos, "--checkpoint", run, "--out", tmp_path / "e.parquet")
    assert "trained on stored features and has no network for the videos" in said
    assert "holds features, but this command needs videos" in said_of(capsys, "scan", features)
    for data in (features, video):
        assert "An index needs videos" in said_of(capsys, "index", data, "--checkpoint", run, "--out", out)
    assert "cannot be joined" in said_of(capsys, "pretrain", features, "--also", colour_videos, "--out", out)
    said = said_of(capsys, "pretrain", features, "--recipe", "tiny", "--out", out)
    assert "only heads can be trained, but --backbone is tiny_two_streams" in said
    said = said_of(capsys, "pretrain", features, "--num-clips", "7", "--out", out)
    assert "has 6 clips of each video, but a step compares 7" in said
    with pytest.raises(ConfigError, match="has no"):
        provico.open_encoder(run).embed(video)


def test_features_that_do_not_fit_are_refused(place: Path, tmp_path: Path, capsys) -> None:
    other = tmp_path / "other.npz"
    provico.FeatureFile(("a", "b"), torch.zeros(2, 3, 4)).save(other)
    said = said_of(capsys, "embed", other, "--checkpoint", place / "run", "--out", tmp_path / "e.parquet")
    assert "has 4 features per clip, but the encoder was trained on 10" in said
    (tmp_path / "noise.npz").write_bytes(b"nothing")
    said = said_of(capsys, "pretrain", tmp_path / "noise.npz", "--out", tmp_path / "run")
    assert "cannot be read as stored features" in said
