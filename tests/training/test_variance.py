"""What the last step of a run learns, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from provico.data.catalog import Catalog, open_catalog
from provico.data.feature_file import FeatureFile
from provico.data.library import Library
from provico.embedding.driver import embed
from provico.models import Encoder, EncoderConfig, InputSpec
from provico.models.backbones.frozen import FrozenSpec
from provico.models.evidence import BASE, SHARE
from provico.reproduce.corruption import masked, read_test_clips, uncertainties
from provico.training.variance import learn_variance, with_evidence


@pytest.fixture(scope="module")
def catalog(demo_set: Path) -> Catalog:
    return open_catalog(demo_set, subset="train")


@pytest.fixture(scope="module")
def plain() -> Encoder:
    torch.manual_seed(0)
    spec = InputSpec(size=32, num_frames=4, frame_step=2)
    return Encoder(EncoderConfig.for_backbone("tiny", dim=8, input=spec)).eval()


@pytest.fixture(scope="module", autouse=True)
def _long_enough() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("provico.training.variance._STEPS", 300)
        yield


@pytest.fixture(scope="module")
def learnt(plain: Encoder, catalog: Catalog, library: Library) -> Encoder:
    return learn_variance(plain, catalog, num_looks=160, library=library)


def weights(encoder: Encoder, *, of_evidence: bool) -> dict[str, Tensor]:
    return {
        name: value
        for name, value in encoder.state_dict().items()
        if name.startswith("evidence.") == of_evidence and not name.startswith("match_scale.")
    }


def test_means_and_heads_stay_as_they_are(
    plain: Encoder, learnt: Encoder, catalog: Catalog, library: Library
):
    before, after = (embed(encoder, catalog, library=library).videos.clips for encoder in (plain, learnt))
    assert torch.equal(before.mean, after.mean)
    assert not torch.equal(before.log_var, after.log_var)
    for name, value in weights(plain, of_evidence=False).items():
        assert torch.equal(value, learnt.state_dict()[name]), name
    assert plain.evidence is None  # the encoder that was given is left alone


def test_a_seed_repeats(plain: Encoder, catalog: Catalog, library: Library, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("provico.training.variance._STEPS", 20)
    first, again, other = (
        weights(learn_variance(plain, catalog, num_looks=16, seed=seed, library=library), of_evidence=True)
        for seed in (0, 0, 1)
    )
    for name, value in first.items():
        assert torch.equal(value, again[name]), name
    assert any(not torch.equal(value, other[name]) for name, value in first.items())


def test_noise_raises_the_uncertainty_of_videos_that_were_not_learnt_from(
    learnt: Encoder, demo_set: Path, library: Library
):
    clips, _ = read_test_clips(learnt, open_catalog(demo_set, subset="test"), library)
    levels = [
        uncertainties(learnt, masked(clips, share, np.random.default_rng(0))) for share in (0.0, 0.4, 0.8)
    ]
    means = [float(np.mean(level["uncertainty"])) for level in levels]
    assert means[0] < means[1] < means[2]


def test_usual_videos_have_the_base_variance(learnt: Encoder, catalog: Catalog, library: Library):
    assert learnt.evidence is not None
    without = with_evidence(learnt, num_remembered=None)
    assert without.evidence is None
    videos = embed(learnt, catalog, library=library).videos
    relative = videos.uncertainty / (SHARE * learnt.evidence.unit)
    assert BASE / 3 < float(relative.median()) < 3 * BASE


def test_stored_features_get_a_variance_without_pixels(tmp_path: Path):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(30, 1, 6, generator=generator) + 0.3 * torch.randn(30, 4, 6, generator=generator)
    FeatureFile(tuple(f"video {row}" for row in range(30)), features).save(tmp_path / "feats.npz")
    torch.manual_seed(0)
    encoder = Encoder(EncoderConfig.for_backbone("features", dim=4, frozen=FrozenSpec(feature_dim=6))).eval()
    learnt = learn_variance(encoder, open_catalog(tmp_path / "feats.npz"), features=features)
    with torch.no_grad():
        found = learnt.from_features(features).uncertainty / (SHARE * learnt.evidence.unit)
    assert found.std() > 0  # some videos are better supported than others
    torch.testing.assert_close(found.median(), torch.tensor(BASE), rtol=0.4, atol=0)
