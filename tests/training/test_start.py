"""What is fitted before the first step, and what stays as it is."""

from __future__ import annotations

import pytest
import torch

from provico.config import ModelSettings
from provico.models import Encoder, EncoderConfig, FrozenSpec
from provico.models.saved import build_encoder
from provico.training.start import settle_batch_norm, start_heads

SMALL = ModelSettings(backbone="tiny", size=32, num_frames=5, dim=16, motion=True)


def test_settled_statistics_are_those_of_videos_and_weights_stay(catalog):
    torch.manual_seed(0)
    encoder = build_encoder(SMALL).eval()
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    settle_batch_norm(encoder, catalog)
    assert not encoder.training
    after = encoder.state_dict()
    running = [name for name in after if name.endswith(("running_mean", "running_var"))]
    assert running
    assert all(not torch.equal(after[name], before[name]) for name in running)
    learnt = [name for name, _ in encoder.named_parameters()]
    assert all(torch.equal(after[name], before[name]) for name in learnt)


@pytest.mark.parametrize("hidden_dim", [None, 5])
def test_heads_start_in_the_units_of_their_features(hidden_dim):
    torch.manual_seed(0)
    frozen = FrozenSpec(feature_dim=6)
    options = {"dim": 4, "hidden_dim": hidden_dim}
    encoder = Encoder(EncoderConfig.for_backbone("features", frozen=frozen, **options))
    before = {name: value.clone() for name, value in encoder.head.mean.named_parameters()}
    features = 7 + 5 * torch.randn(40, 4, 6)
    start_heads(encoder, features)
    standardised = encoder.head.standardisation(features).mean(dim=1)
    torch.testing.assert_close(standardised.mean(dim=0), torch.zeros(6), atol=1e-4, rtol=0)
    kept = all(torch.equal(value, before[name]) for name, value in encoder.head.mean.named_parameters())
    assert kept == (hidden_dim is not None)  # a single layer starts at the principal axes
