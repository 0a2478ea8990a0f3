"""Landmarks lie where the training videos lie, and what is far from all of them says so."""

from __future__ import annotations

import math

import pytest
import torch

from provico.errors import ConfigError
from provico.models import Encoder, EncoderConfig, FrozenSpec
from provico.models.heads import GaussianHead
from provico.models.landmarks import Landmarks
from provico.probability import PARAMETRISATIONS

SQRT_DIM = PARAMETRISATIONS["sqrt_dim"]


def videos(
    num_videos: int, *, num_kinds: int = 3, clips: int = 4, dim: int = 8, seed: int = 0
) -> torch.Tensor:
    """Clips of videos of a few kinds; a kind is a direction."""
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.eye(dim)[torch.arange(num_videos) % num_kinds]
    video = kinds + 0.1 * torch.randn(num_videos, dim, generator=generator)
    return 3 * video.unsqueeze(1) + 0.1 * torch.randn(num_videos, clips, dim, generator=generator)


def test_distances_are_those_to_the_nearest_in_units_of_training():
    landmarks = Landmarks(8, 3)
    seen = videos(60)
    landmarks.fit(seen)
    directions = seen / seen.norm(dim=-1, keepdim=True)
    squared = (directions.unsqueeze(-2) - landmarks.places).square().sum(dim=-1).amin(dim=-1).log()
    expected = (squared - squared.mean()) / squared.std(correction=0)
    torch.testing.assert_close(landmarks(seen).squeeze(-1), expected, atol=1e-3, rtol=1e-3)


def test_what_was_never_seen_is_farther_whatever_its_direction():
    landmarks = Landmarks(8, 6)
    landmarks.fit(videos(60))
    new_of_known_kinds = landmarks(videos(60, seed=1))
    # Five directions in which no video was, and the opposites of the three kinds.
    strangers = landmarks(torch.cat([torch.eye(8)[3:], -torch.eye(8)[:3]]))
    assert float(strangers.min()) > float(new_of_known_kinds.max())
    # A feature's length is a matter of the network's units.
    torch.testing.assert_close(landmarks(7 * torch.eye(8)), landmarks(torch.eye(8)))


def test_a_few_videos_get_fewer_landmarks_and_none_of_its_own():
    landmarks = Landmarks(8, 6)
    landmarks.fit(videos(12))
    assert len(torch.unique(landmarks.places, dim=0)) == 3
    landmarks.fit(videos(2))
    assert len(torch.unique(landmarks.places, dim=0)) == 1


@pytest.mark.parametrize("same", [torch.zeros(5, 2, 8), torch.ones(5, 2, 8), torch.ones(1, 1, 8)])
def test_features_that_are_all_the_same_are_no_error(same: torch.Tensor):
    landmarks = Landmarks(8, 4)
    landmarks.fit(same)
    assert landmarks(same).isfinite().all()
    assert landmarks(torch.eye(8)).isfinite().all()


def test_the_variance_then_depends_on_the_distance_alone():
    torch.manual_seed(0)
    head = GaussianHead(8, 5, parametrisation=SQRT_DIM, log_var_hidden_dim=7, num_landmarks=3)
    assert head.landmarks is not None
    head.landmarks.fit(videos(60))
    equally_far = torch.eye(8)[3:]
    far = head.landmarks(equally_far)
    order = far.squeeze(-1).argsort()
    found = head(equally_far)
    torch.testing.assert_close(found.log_var, head.log_var(far))
    assert not torch.allclose(found.mean[order[0]], found.mean[order[1]])
    assert not any("landmarks" in name for name, _ in head.named_parameters())


def test_as_built_all_clips_start_about_equally_unsure():
    torch.manual_seed(0)
    head = GaussianHead(64, 128, parametrisation=SQRT_DIM, log_var_hidden_dim=64, num_landmarks=32)
    assert head.landmarks is not None
    features = videos(200, num_kinds=20, dim=64)
    head.landmarks.fit(features)
    total_noise = float(head(features).var.detach().sum(-1).mean())
    assert total_noise == pytest.approx(128 * math.exp(SQRT_DIM.initial_log_var(128)), rel=0.2)


def test_an_encoder_keeps_its_landmarks(tmp_path):
    config = EncoderConfig.for_backbone("features", num_landmarks=3, frozen=FrozenSpec(feature_dim=8))
    encoder = Encoder(config).eval()
    assert encoder.head.landmarks is not None
    encoder.head.landmarks.fit(videos(60))
    encoder.save_pretrained(tmp_path / "encoder")
    again = Encoder.from_pretrained(tmp_path / "encoder")
    new = videos(5, seed=2)
    assert torch.equal(again.from_features(new).clips.log_var, encoder.from_features(new).clips.log_var)


def test_a_network_that_learns_has_none():
    with pytest.raises(ConfigError, match=r"num_landmarks is 3, but .* frozen network, and tiny learns"):
        EncoderConfig.for_backbone("tiny", num_landmarks=3)
    with pytest.raises(ConfigError, match=r"num_landmarks is 0, but it must be at least 1"):
        EncoderConfig.for_backbone("features", num_landmarks=0, frozen=FrozenSpec(feature_dim=8))
