"""What a classifier says of a video depends on that video alone, and is the mean over all its samples."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from provico.config.evaluation import FinetuneSettings
from provico.data.catalog import Catalog, open_catalog
from provico.data.frames.encode import write_video
from provico.data.library import Library
from provico.data.loader import ClipLoader
from provico.embedding.clips import clip_settings
from provico.errors import OutputExistsError, TooManyBrokenError, WeightsError
from provico.models import Encoder, EncoderConfig, InputSpec
from provico.training.classifier import Classifier, Predictions

NUM_SAMPLES = 200_000
"""Enough for the mean of as many probabilities to be known to 0.001."""

SETTINGS = FinetuneSettings(num_clips=4, num_samples=4)


@pytest.fixture(scope="module")
def catalog(colour_videos: Path) -> Catalog:
    return open_catalog(colour_videos / "test")


@pytest.fixture(scope="module")
def encoder(catalog: Catalog, library: Library) -> Encoder:
    """Untrained, but it has seen these videos: with the statistics of none, all clips would look alike."""
    torch.manual_seed(0)
    spec = InputSpec(size=16, num_frames=2, frame_step=2)
    encoder = Encoder(EncoderConfig.for_backbone("tiny", dim=16, input=spec))
    (batch,) = ClipLoader(catalog, clip_settings(encoder.config, num_clips=4), batch_size=6, library=library)
    with torch.no_grad():
        for _ in range(20):
            encoder(batch.pixels)
    return encoder


@pytest.fixture
def classifier(encoder: Encoder, catalog: Catalog) -> Classifier:
    """With opinions of its own."""
    made = Classifier(encoder, catalog.classes, SETTINGS)
    torch.nn.init.normal_(made.linear.weight, generator=torch.Generator().manual_seed(0))
    return made.eval()


def test_the_probability_is_the_mean_over_all_samples_of_all_mixtures(classifier, library, tmp_path):
    """By definition: pairs of neighbours, one Gaussian each, and torch's own samples of it."""
    colours = [(200, 40, 40), (200, 40, 40), (40, 40, 200), (200, 200, 40)]
    frames = [np.full((40, 52, 3), colour, np.uint8) for colour in colours for _ in range(6)]
    write_video(tmp_path / "changing.mp4", frames)
    catalog = open_catalog(tmp_path / "changing.mp4")
    settings = clip_settings(classifier.encoder.config, num_clips=4)
    (batch,) = ClipLoader(catalog, settings, batch_size=1, library=library)
    with torch.no_grad():
        clips = classifier.encoder.encode_clips(batch.pixels[0])
        # The nearest of six points, at the clips and between them: which mixtures there are then matters.
        red, _, blue, yellow = clips.mean
        points = [red, blue, yellow, (red + blue) / 2, (red + yellow) / 2, (blue + yellow) / 2]
        classifier.linear.weight.copy_(torch.stack(points))
        classifier.linear.bias.copy_(-classifier.linear.weight.square().sum(dim=1) / 2)
    classifier.settings = dataclasses.replace(SETTINGS, num_samples=NUM_SAMPLES)
    said = classifier.predict(catalog, library=library)

    def probability(*mixtures: list[int]) -> torch.Tensor:
        found = []
        for part in mixtures:
            mean = clips.mean[part].mean(dim=0)
            var = (clips.var[part] + clips.mean[part].square()).mean(dim=0) - mean.square()
            samples = torch.distributions.Normal(mean, var.sqrt()).sample((NUM_SAMPLES,))
            found.append(classifier.linear(samples).softmax(dim=1))
        return torch.cat(found).mean(dim=0).detach()

    expected = probability([0, 1], [2, 3])
    torch.testing.assert_close(said.log_probabilities.exp()[0], expected, atol=0.005, rtol=0)
    for other in (probability([0, 1, 2, 3]), probability([0, 2], [1, 3]), probability([0, 1])):
        assert (other - expected).abs().max() > 0.02, "the video must tell the right mixtures from others"
    assert said.predicted[0] == classifier.classes[int(expected.argmax())]
    assert float(said.probability[0]) == pytest.approx(float(expected.max()), abs=0.005)


def assert_same(found: Predictions, expected: Predictions) -> None:
    assert found.videos == expected.videos
    torch.testing.assert_close(found.log_probabilities, expected.log_probabilities, atol=1e-5, rtol=1e-4)


@pytest.fixture
def said(classifier, catalog, library) -> Predictions:
    said = classifier.predict(catalog, library=library)
    assert said.videos == catalog.videos
    assert len(set(said.predicted)) > 1
    return said


@pytest.mark.parametrize(("at_once", "num_workers"), [(1, 0), (4, 2)])
def test_batches_and_workers_change_nothing(
    classifier, catalog, library, said, monkeypatch, at_once, num_workers
):
    monkeypatch.setattr("provico.training.classifier.VIDEOS_AT_ONCE", at_once)
    assert_same(classifier.predict(catalog, library=library, num_workers=num_workers), said)


def test_processes_share_the_videos(classifier, catalog, library, said, monkeypatch):
    monkeypatch.setattr("provico.training.classifier.VIDEOS_AT_ONCE", 1)
    parts = [classifier.predict_part(catalog, rank=rank, world_size=8, library=library) for rank in range(8)]
    assert [len(part) for part in parts] == [1] * 6 + [0] * 2
    assert_same(Predictions.joined(parts[::-1], catalog), said)


def test_batch_normalisation_does_not_see_the_test(classifier, catalog, library, said):
    """In training mode a batch would be normalised by itself, and its statistics remembered."""
    before = {name: value.clone() for name, value in classifier.state_dict().items()}
    classifier.train()
    assert_same(classifier.predict(catalog, library=library), said)
    assert all(module.training for module in classifier.modules())
    assert all(torch.equal(value, before[name]) for name, value in classifier.state_dict().items())


def test_a_saved_classifier_is_asked_about_files(classifier, colour_videos, library, tmp_path):
    file = colour_videos / "test" / "blue" / "0.mp4"
    said = classifier.predict(file, library=library)
    classifier.save(tmp_path / "saved")
    again = Classifier.from_folder(tmp_path / "saved")
    assert not again.training
    assert (again.settings, again.classes) == (SETTINGS, classifier.classes)
    assert_same(again.predict(file, library=library), said)
    with pytest.raises(OutputExistsError):
        classifier.save(tmp_path / "saved")


def test_what_is_no_classifier_is_refused(classifier, tmp_path):
    with pytest.raises(WeightsError, match="not a completely saved classifier"):
        Classifier.from_folder(tmp_path)
    classifier.save(tmp_path / "saved")
    path = tmp_path / "saved" / "classifier.json"
    whole = path.read_text()
    path.write_text(whole.replace('"epochs"', '"epoch"'))
    with pytest.raises(WeightsError, match="cannot be read as the settings of a classifier"):
        Classifier.from_folder(tmp_path / "saved")
    path.write_text(whole.replace('"black",', ""))
    with pytest.raises(WeightsError, match="do not fit"):
        Classifier.from_folder(tmp_path / "saved")


def test_failed_videos_are_named_and_without_any_other_nothing_is_said(classifier, library, said, tmp_path):
    path = tmp_path / "broken.mp4"
    path.write_text("no video")
    broken = dataclasses.replace(said.videos[0], path=path, id="broken.mp4")
    both = Catalog(tmp_path, "folder", (broken, said.videos[3]), classifier.classes)
    found = classifier.predict(both, library=library)
    assert found.videos == (said.videos[3],)
    torch.testing.assert_close(found.log_probabilities[0], said.log_probabilities[3], atol=1e-5, rtol=1e-4)
    ((video, reason),) = found.failed
    assert video == broken
    assert "cannot be opened" in reason
    with pytest.raises(TooManyBrokenError, match="None of 1 videos can be read"):
        classifier.predict(both.subset([0]), library=library)


def test_a_diverged_network_is_named(classifier, catalog, library):
    with torch.no_grad():
        classifier.linear.bias[2] = float("nan")
    with pytest.raises(WeightsError, match="its training has diverged"):
        classifier.predict(catalog, library=library)
