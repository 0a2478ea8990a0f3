"""The experiment sees what there is to see: encoders whose uncertainty is known, on spoilt clips."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from provico.errors import WeightsError
from provico.models import Encoder, EncoderConfig
from provico.probability.gaussian import Gaussian
from provico.probability.mixture import Mixture
from provico.reproduce.corruption import levels_for, masked, mixed, uncertainties


class Oracle(nn.Module):
    """Its log variance is the mean change between frames, times a sign."""

    def __init__(self, sign: float) -> None:
        super().__init__()
        self.sign = nn.Parameter(torch.tensor(sign))

    def features(self, clips: Tensor) -> Tensor:
        change = (clips[:, 1:].float() - clips[:, :-1].float()).abs().mean(dim=(1, 2, 3, 4)) / 255
        return change.unsqueeze(1)

    def head(self, change: Tensor) -> Gaussian:
        return Gaussian(torch.zeros(len(change), 2), (self.sign * change).expand(-1, 2))

    def from_features(self, features: Tensor, recordings: object = None) -> Mixture:
        clips = self.head(features.flatten(0, 1))
        shape = (*features.shape[:2], 2)
        return Mixture(Gaussian(clips.mean.view(shape), clips.log_var.view(shape)))


@pytest.fixture
def still_clips() -> np.ndarray:
    """Ten videos, two clips each of eight frames, all of one colour of their own."""
    colours = np.random.default_rng(0).integers(256, size=(10, 1, 1, 1, 1, 3), dtype=np.uint8)
    return np.broadcast_to(colours, (10, 2, 8, 6, 6, 3)).copy()


def test_the_lowest_level_leaves_clips_as_they_are(still_clips):
    rng = np.random.default_rng(0)
    assert (mixed(still_clips, 1, rng) == still_clips).all()
    assert (masked(still_clips, 0.0, rng) == still_clips).all()


def test_a_mixed_clip_has_as_many_videos_as_its_level_says(still_clips):
    for level in (1, 2, 3, 4):
        for clip in mixed(still_clips, level, np.random.default_rng(1)).reshape(-1, 8, 6, 6, 3):
            colours = [tuple(frame[0, 0]) for frame in clip]
            assert len(set(colours)) == 2 ** (level - 1)
            assert sum(a != b for a, b in itertools.pairwise(colours)) == 2 ** (level - 1) - 1


def test_numbers_that_are_not_finite_are_refused(still_clips):
    with pytest.raises(WeightsError, match="not finite for 10 of 10 videos, the first of them number 1"):
        uncertainties(Oracle(float("nan")), still_clips)


@pytest.mark.parametrize(
    ("num_frames", "mixtures", "shares"),
    [
        (16, (1, 2, 3, 4, 5), (0.0, 0.2, 0.4, 0.6, 0.8)),
        (4, (1, 2, 3), (0.0, 0.2, 0.4, 0.8)),  # two of four frames are .4 and .6
    ],
)
def test_levels_that_are_the_same_number_of_frames_count_once(num_frames, mixtures, shares):
    config = EncoderConfig.for_backbone("tiny")
    encoder = Encoder(replace(config, input=replace(config.input, num_frames=num_frames)))
    assert levels_for("mixed", encoder, 100) == mixtures
    assert levels_for("masked", encoder, 100) == shares
    assert levels_for("mixed", encoder, 3) == (1, 2)


def test_a_masked_clip_has_as_many_noise_frames_as_its_share_says(still_clips):
    for share, count in ((0.2, 2), (0.4, 3), (0.6, 5), (0.8, 6)):
        for clip in masked(still_clips, share, np.random.default_rng(1)).reshape(-1, 8, 6, 6, 3):
            assert sum(frame.std(axis=(0, 1)).max() > 0 for frame in clip) == count


def test_an_encoder_that_notices_cuts_is_seen_to_notice(still_clips):
    for sign in (1.0, -1.0):
        levels = [
            np.mean(
                uncertainties(Oracle(sign), mixed(still_clips, level, np.random.default_rng(2)))[
                    "uncertainty"
                ]
            )
            for level in (1, 2, 3, 4)
        ]
        assert (sign * np.diff(levels) > 0).all()


def test_clips_that_disagree_add_to_the_total_alone(still_clips):
    class Disagrees(Oracle):
        def head(self, change: Tensor) -> Gaussian:
            place = torch.arange(len(change)).remainder(2).float().unsqueeze(1).expand(-1, 2)
            return Gaussian(place, super().head(change).log_var)

    agree, disagree = (uncertainties(kind(1.0), still_clips) for kind in (Oracle, Disagrees))
    assert disagree["uncertainty"] == pytest.approx(agree["uncertainty"])
    # Variance one of each clip, and means half a unit to each side: 1.25.
    assert disagree["total"] == pytest.approx([np.log(1.25)] * 10, abs=1e-5)
