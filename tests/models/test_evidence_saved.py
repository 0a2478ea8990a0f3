"""An encoder is saved with its evidence."""

from __future__ import annotations

import pytest
import torch

from provico.errors import ConfigError
from provico.models import Encoder, EncoderConfig
from provico.models.backbones.frozen import FrozenSpec


def test_an_encoder_keeps_its_evidence(tmp_path):
    spec = FrozenSpec(feature_dim=27, blocks=(15, 12))
    config = EncoderConfig(
        backbone="features", input=EncoderConfig.for_backbone("features", frozen=spec).input, dim=18,
        frozen=spec, num_remembered=24,
    )  # fmt: skip
    torch.manual_seed(0)
    encoder = Encoder(config).eval()
    features = torch.randn(24, 3, 27)
    with torch.no_grad():
        encoder.evidence.remember(features, encoder.head(features))
        encoder.save_pretrained(tmp_path / "encoder")
        again = Encoder.from_pretrained(tmp_path / "encoder")
        found, expected = again.from_features(features), encoder.from_features(features)
    assert torch.equal(found.clips.log_var, expected.clips.log_var)
    assert not torch.equal(expected.clips.log_var, encoder.head(features).log_var)


def test_settings_of_0_1_0_with_landmarks_are_refused():
    config = EncoderConfig.for_backbone("tiny")
    text = config.to_json().replace('"num_remembered": null', '"num_landmarks": 32')
    with pytest.raises(ConfigError, match=r"landmarks, as in provico 0\.1\.0.*Run `provico pretrain`"):
        EncoderConfig.from_json(text)
    assert EncoderConfig.from_json(text.replace("32", "null")) == config
