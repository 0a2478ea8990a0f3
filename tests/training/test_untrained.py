"""A frozen network without pretraining: principal axes, a variance and a match curve from the collection."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from provico import open_catalog, open_encoder, untrained_encoder
from provico.cli import main
from provico.data.library import Library
from provico.embedding.features import clip_features
from provico.errors import ConfigError, WeightsError
from provico.models.encoder import Encoder, encoder_hash
from provico.models.heads import WHITENING
from provico.search.open_or_create import open_or_create

from ..tiny_networks import saver

FEW = ["--num-clips", "2", "--num-workers", "0"]


@pytest.fixture(scope="module")
def dino(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    return made_once("network-dinov2", saver("dinov2"))


@pytest.fixture(scope="module")
def made(colour_videos: Path, dino: Path, library: Library) -> Encoder:
    catalog = open_catalog(colour_videos / "train")
    return untrained_encoder(str(dino), catalog, dim=8, num_clips=2, library=library)


def test_means_are_softly_whitened_principal_axes(
    made: Encoder, colour_videos: Path, library: Library
) -> None:
    found = clip_features(made, open_catalog(colour_videos / "train"), num_clips=2, library=library)
    assert found.num_computed == 0, "what the encoder was made from is remembered"
    standardised = made.head.standardisation(found.features).mean(dim=1).double().numpy()
    blocks = made.config.backbone_spec.feature_blocks
    assert blocks == (16, 16)
    centred = standardised - standardised.mean(axis=0)
    share = [part.var(axis=0, ddof=1).sum() for part in np.split(centred, [16], axis=1)]
    np.testing.assert_allclose(share, [16, 16], rtol=1e-4)  # no block outweighs the other
    spread, axes = np.linalg.eigh(centred.T @ centred)
    layer = made.head.mean.layers[0]
    for number in range(4):
        axis, own = axes[:, -1 - number], layer.weight[number].detach().double().numpy()
        assert abs(axis @ own) / np.linalg.norm(own) == pytest.approx(1, abs=1e-4)
    lengths = layer.weight.detach().norm(dim=1)[:4].numpy()
    np.testing.assert_allclose(
        lengths / lengths[0], (spread[::-1][:4] / spread[-1]) ** (-WHITENING / 2), rtol=1e-3
    )


def test_it_has_a_variance_and_a_curve(made: Encoder, colour_videos: Path, library: Library) -> None:
    assert made.config.untrained_on == 12
    assert made.config.num_remembered == 12
    assert made.config.training == "not trained: principal axes of 12 videos"
    start = made.config.scale.initial_a(made.config.dim)
    assert float(made.match_curve().a.detach()) != pytest.approx(start), "the curve was fitted"
    whole = made.embed(colour_videos / "test" / "red" / "0.mp4", num_clips=2, library=library)
    assert whole.gaussians.log_var.isfinite().all()


def test_the_same_videos_give_the_same_encoder(
    made: Encoder, colour_videos: Path, dino: Path, library: Library
) -> None:
    catalog = open_catalog(colour_videos / "train")
    again = untrained_encoder(str(dino), catalog, dim=8, num_clips=2, library=library)
    assert encoder_hash(again) == encoder_hash(made)


def test_a_name_alone_gives_features_as_they_are(dino: Path, colour_videos: Path) -> None:
    encoder = open_encoder(str(dino))
    assert encoder.config.untrained_on == 0
    assert encoder.config.dim == encoder.head.feature_dim == 32
    assert encoder.config.training == "not trained: features as they are, one variance for all"
    pixels = torch.randint(0, 256, (3, 4, 32, 32, 3), dtype=torch.uint8)
    features = encoder.features(pixels)
    clips = encoder.encode_clips(pixels)
    centred = features - features.mean(dim=1, keepdim=True)
    cosine = torch.nn.functional.cosine_similarity
    torch.testing.assert_close(cosine(clips.mean, centred), torch.ones(3), atol=1e-4, rtol=0)
    assert clips.log_var.unique().numel() == 1
    found = encoder.embed(colour_videos / "test" / "red" / "0.mp4", num_clips=2)
    assert found.gaussians.mean.shape == (2, 32)
    assert open_encoder("efficientnet_motion").config.dim == 416


def test_it_can_be_saved_and_opened(made: Encoder, tmp_path: Path) -> None:
    made.save_pretrained(tmp_path / "encoder")
    assert encoder_hash(open_encoder(tmp_path / "encoder")) == encoder_hash(made)


def test_an_index_without_pretraining(
    colour_videos: Path, dino: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    videos, index = str(colour_videos / "train"), str(tmp_path / "index")
    command = ["index", videos, "--backbone", str(dino), "--out", index, *FEW]
    main([*command, "--json"])
    said = capsys.readouterr()
    assert json.loads(said.out)["num_added"] == 12
    assert "principal axes of 12 videos; nothing is trained" in said.err
    main(["info", index, "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["training"] == "not trained: principal axes of 12 videos"
    assert facts["backbone"] == str(dino)
    main([*command, "--json"])
    assert json.loads(capsys.readouterr().out)["num_added"] == 0
    main(["search", index, str(colour_videos / "test" / "red" / "0.mp4"), "--max-chance", "inf", "--json"])
    hits = json.loads(capsys.readouterr().out)[0]["hits"]
    assert hits[0]["id"].startswith("red/")
    for wrong, message in (
        (["--backbone", "efficientnet_motion"], "was made with"),
        (["--backbone", str(dino), "--checkpoint", index], "Give only one of them"),
    ):
        with pytest.raises(SystemExit):
            main(["index", videos, "--out", index, *wrong])
        assert message in capsys.readouterr().err


def test_what_cannot_be_used_untrained(colour_videos: Path, dino: Path, tmp_path: Path) -> None:
    catalog = open_catalog(colour_videos / "train")
    with pytest.raises(ConfigError, match="tiny is a network that must be trained"):
        untrained_encoder("tiny", catalog)
    with pytest.raises(ConfigError, match="tiny is a network that must be trained"):
        open_encoder("tiny")
    with pytest.raises(ConfigError, match="principal axes need at least 2"):
        untrained_encoder(str(dino), catalog.subset([0]), num_clips=2)
    with pytest.raises(WeightsError, match="does not exist"):
        open_encoder(tmp_path / "none")
    with pytest.raises(WeightsError, match="does not exist"):
        open_encoder("efficientnet_moton")
    with pytest.raises(ConfigError, match="or a frozen network, with --backbone efficientnet_motion"):
        open_or_create(tmp_path / "index", None)
