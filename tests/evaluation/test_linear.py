"""The probe finds what is there and nothing that is not; the encoder stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from provico.config.evaluation import LinearSettings
from provico.data.catalog import Catalog, Video
from provico.embedding.features import ClipFeatures
from provico.errors import ConfigError, UnhealthyRunError, VideoError
from provico.evaluation.recognition import probe
from provico.evaluation.sets import Sets
from provico.models import Encoder, EncoderConfig, FrozenSpec
from provico.training.probe import LabelledFeatures, fit, log_probabilities

CLASSES = ("a", "b", "c")
FAST = {"epochs": 10, "num_clips": 4, "learning_rates": (0.1, 1.0), "batch_size": 32}


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    torch.manual_seed(0)
    config = EncoderConfig.for_backbone("features", dim=8, frozen=FrozenSpec(feature_dim=12))
    return Encoder(config).eval()


def made_up(num_videos: int, *, seed: int, signal: float, shuffled: bool = False) -> ClipFeatures:
    """Features whose class is a direction of length `signal` in unit noise; groups of three videos."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(num_videos) // 3 % len(CLASSES)
    directions = torch.eye(len(CLASSES), 12)
    features = torch.randn(num_videos, 4, 12, generator=generator) + signal * directions[labels].unsqueeze(1)
    if shuffled:
        labels = labels[torch.randperm(num_videos, generator=generator)]
    videos = tuple(
        Video(Path(f"{seed}-{n}.mp4"), f"{seed}-{n}.mp4", CLASSES[label], f"{seed}-{n // 3}")
        for n, label in enumerate(labels.tolist())
    )
    return ClipFeatures(features, Catalog(Path("made-up"), "manifest", videos, CLASSES), {}, 0)


def probed(encoder, train, test, **settings):
    sets = Sets(train.catalog, test.catalog, "made up")
    return probe(encoder, sets, train, test, settings=LinearSettings(**FAST | settings))


@pytest.mark.parametrize("options", [{}, {"features": "pooled"}, {"train_heads": True}])
def test_what_is_separable_is_separated(encoder, options):
    train, test = made_up(120, seed=0, signal=12.0), made_up(63, seed=1, signal=12.0)
    result = probed(encoder, train, test, **options)
    assert result.scores["top-1"].value == 1.0
    assert "top-5" not in result.scores, "of three classes five are always right"
    assert result.confusion.tolist() == [[21 if i == j else 0 for j in range(3)] for i in range(3)]
    assert all(guess.is_correct and guess.score > 0.5 for guess in result.predictions)


def test_shuffled_labels_give_chance(encoder):
    train = made_up(150, seed=0, signal=12.0, shuffled=True)
    test = made_up(300, seed=1, signal=12.0, shuffled=True)
    value = probed(encoder, train, test).scores["top-1"].value
    assert abs(value - 1 / 3) < 0.12  # more than four standard errors of 300 guesses


@pytest.mark.parametrize("options", [{}, {"train_heads": True}])
def test_the_encoder_is_not_touched(encoder, options):
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    train, test = made_up(60, seed=0, signal=3.0), made_up(30, seed=1, signal=3.0)
    probed(encoder, train, test, **options)
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    assert not any(module.training for module in encoder.modules())


def test_heads_learn_only_when_told(encoder):
    train = LabelledFeatures.of(made_up(60, seed=0, signal=3.0))
    for train_heads in (False, True):
        settings = LinearSettings(**FAST | {"train_heads": train_heads})
        (fitted,) = fit(encoder, train, 3, (0.1,), settings)
        same = all(
            torch.equal(mine, theirs)
            for mine, theirs in zip(fitted.head.parameters(), encoder.head.parameters(), strict=True)
        )
        assert same != train_heads


def test_a_rate_trained_beside_others_is_the_rate_trained_alone(encoder):
    train = LabelledFeatures.of(made_up(60, seed=0, signal=2.0))
    settings = LinearSettings(**FAST)
    together, alone = fit(encoder, train, 3, (0.1, 1.0), settings), fit(encoder, train, 3, (1.0,), settings)
    torch.testing.assert_close(together[1].linear.weight, alone[0].linear.weight)
    assert not torch.allclose(together[0].linear.weight, alone[0].linear.weight)


def test_a_video_is_judged_by_itself(encoder):
    """Neither the other test videos nor their order change what is said of one."""
    (fitted,) = fit(
        encoder, LabelledFeatures.of(made_up(60, seed=0, signal=2.0)), 3, (0.1,), LinearSettings(**FAST)
    )
    test = LabelledFeatures.of(made_up(9, seed=1, signal=2.0))
    settings = LinearSettings(**FAST)
    together = log_probabilities(fitted, test, settings)
    for number in (0, 8):
        alone = LabelledFeatures(
            test.ids[number : number + 1], test.features[[number]], test.labels[[number]]
        )
        torch.testing.assert_close(log_probabilities(fitted, alone, settings)[0], together[number])


def test_the_test_videos_do_not_choose(encoder):
    """Other test labels, the same learning rate and the same predictions."""
    train, test = made_up(90, seed=0, signal=1.0), made_up(30, seed=1, signal=1.0)
    other = made_up(30, seed=1, signal=1.0, shuffled=True)
    results = [probed(encoder, train, each) for each in (test, other)]
    assert results[0].notes == results[1].notes
    guesses = [[guess.predicted for guess in result.predictions] for result in results]
    assert guesses[0] == guesses[1]
    assert results[0].notes["held-out training videos"] == 18


def test_broken_videos_are_counted(encoder):
    train, test = made_up(60, seed=0, signal=3.0), made_up(30, seed=1, signal=3.0)
    errors = {"1-0.mp4": VideoError("1-0.mp4", "no frames")}
    broken = ClipFeatures(test.features[1:], test.catalog.subset(range(1, 30)), errors, 0)
    result = probe(
        encoder, Sets(train.catalog, test.catalog, "x"), train, broken, settings=LinearSettings(**FAST)
    )
    assert result.failed == (("1-0.mp4", "no frames"),)
    assert result.failure_line == "1 of 90 videos failed"
    assert len(result.predictions) == 29


def test_what_cannot_work_is_refused(encoder):
    with pytest.raises(ConfigError, match="--train-heads"):
        LinearSettings(features="pooled", train_heads=True)
    with pytest.raises(ConfigError, match="multiple of --num-train-clips"):
        LinearSettings(num_clips=5)
    with pytest.raises(ConfigError, match="--learning-rates"):
        LinearSettings(learning_rates=())
    train = LabelledFeatures.of(made_up(30, seed=0, signal=1.0))
    with pytest.raises(UnhealthyRunError, match="Lower the largest"):
        fit(encoder, train, 3, (1e38,), LinearSettings(**FAST))
