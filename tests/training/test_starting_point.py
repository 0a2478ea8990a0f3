"""Untrained encoders are given their due, and weights are taken from where they are."""

from __future__ import annotations

import torch

from provico.config import ModelSettings
from provico.training.starting_point import build_encoder, settle_batch_norm

SMALL = ModelSettings(backbone="tiny", size=32, num_frames=5, dim=16, motion=True)


def test_settings_that_are_not_given_are_those_of_the_backbone():
    encoder = build_encoder(ModelSettings(backbone="tiny"))
    assert (encoder.config.input.size, encoder.config.input.motion) == (64, False)
    encoder = build_encoder(SMALL)
    assert (encoder.config.input.size, encoder.config.input.num_frames) == (32, 5)
    assert encoder.config.input.motion
    assert encoder.config.input.frame_step == 2


def test_settled_statistics_are_those_of_videos_and_weights_stay(catalog):
    torch.manual_seed(0)
    encoder = build_encoder(SMALL).eval()
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    settle_batch_norm(encoder, catalog, num_rounds=2)
    assert not encoder.training
    after = encoder.state_dict()
    running = [name for name in after if name.endswith(("running_mean", "running_var"))]
    assert running
    assert all(not torch.equal(after[name], before[name]) for name in running)
    learnt = [name for name, _ in encoder.named_parameters()]
    assert all(torch.equal(after[name], before[name]) for name in learnt)
