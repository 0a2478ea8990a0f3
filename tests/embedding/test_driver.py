"""Videos become the distributions that the network gives for their clips; broken ones are named."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from provico.data.catalog import Catalog, open_catalog
from provico.data.clips import ClipSpec, uniform_clips
from provico.data.frames.video import index_video, read_frames
from provico.data.library import Library
from provico.embedding.driver import embed, embed_batches, embed_features
from provico.embedding.embeddings import Embeddings
from provico.errors import ConfigError, TooManyBrokenError, WeightsError
from provico.evaluation.retrieval import retrieve
from provico.models import Encoder, EncoderConfig, FrozenSpec, InputSpec
from provico.probability import Gaussian, Mixture

NUM_CLIPS = 2


@pytest.fixture(scope="module")
def catalog(demo_set) -> Catalog:
    """Three videos of each class."""
    return open_catalog(demo_set).subset(range(0, 18, 3))


@pytest.fixture(scope="module")
def encoder(make_encoder) -> Encoder:
    return make_encoder().train()  # as a careless caller might leave it


@pytest.fixture(scope="module")
def embeddings(encoder, catalog) -> Embeddings:
    return embed(encoder, catalog, num_clips=NUM_CLIPS)


@pytest.fixture
def with_broken(catalog, tmp_path) -> Catalog:
    """The videos of the catalog with one in the middle that is none."""
    path = tmp_path / "broken.mp4"
    path.write_text("no video")
    broken = dataclasses.replace(catalog[0], path=path, id="broken.mp4")
    return dataclasses.replace(catalog, videos=(*catalog.videos[:3], broken, *catalog.videos[3:]))


def assert_same(found: Embeddings, expected: Embeddings) -> None:
    assert (found.ids, found.labels, found.groups) == (expected.ids, expected.labels, expected.groups)
    torch.testing.assert_close(found.videos.clips.mean, expected.videos.clips.mean)
    torch.testing.assert_close(found.videos.clips.log_var, expected.videos.clips.log_var)


def test_each_video_is_what_the_network_says_of_its_clips(encoder, catalog, embeddings):
    """Frame by frame: evenly spaced clips, the short side at 36 pixels, the middle 32 x 32 of it."""
    assert embeddings.ids == tuple(video.id for video in catalog)
    assert embeddings.labels == tuple(video.label for video in catalog)
    assert embeddings.groups == tuple(video.group for video in catalog)
    for number in (0, 5):
        path = catalog[number].path
        index = index_video(path)
        frames = uniform_clips(index.num_frames, num_clips=NUM_CLIPS, spec=ClipSpec(4, 2))
        pixels = read_frames(path, frames, index=index, short_side=36)
        top, left = ((np.array(pixels.shape[2:4]) - 32) // 2).tolist()
        pixels = pixels[:, :, top : top + 32, left : left + 32]
        with torch.no_grad():
            expected = encoder.eval()(torch.from_numpy(pixels.copy()).unsqueeze(0)).clips
        clips = embeddings.videos.clips
        torch.testing.assert_close(clips.mean[number], expected.mean[0], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(clips.log_var[number], expected.log_var[0], atol=1e-5, rtol=1e-4)


def test_batches_and_workers_change_nothing(encoder, catalog, embeddings, monkeypatch):
    again = embed(encoder, catalog, num_clips=NUM_CLIPS)
    assert torch.equal(again.videos.clips.mean, embeddings.videos.clips.mean)
    assert torch.equal(again.videos.clips.log_var, embeddings.videos.clips.log_var)
    monkeypatch.setattr("provico.embedding.features.VIDEOS_AT_ONCE", 3)
    assert_same(embed(encoder, catalog, num_clips=NUM_CLIPS, num_workers=1), embeddings)
    monkeypatch.setattr("provico.embedding.features.CLIPS_AT_ONCE", 3)
    assert_same(embed(encoder, catalog, num_clips=NUM_CLIPS), embeddings)


def test_a_broken_video_is_named_counted_and_not_replaced(encoder, with_broken, embeddings, monkeypatch):
    monkeypatch.setattr("provico.embedding.features.CLIPS_AT_ONCE", NUM_CLIPS)
    reports = []

    def progress(done: int, total: int) -> None:
        reports.append((done, total))

    monkeypatch.setattr("provico.embedding.features.VIDEOS_AT_ONCE", 1)
    found = embed(encoder, with_broken, num_clips=NUM_CLIPS, max_broken_share=0.2, progress=progress)
    assert_same(found, embeddings)
    ((name, reason),) = found.failed
    assert name == "broken.mp4"
    assert "video" in reason
    assert found.failure_line == "1 of 7 videos failed: broken.mp4"
    assert reports == [(done, 7) for done in (1, 2, 3, 5, 6, 7)]  # the broken one with the next
    assert retrieve(found, found, metric="cosine", ks=(1,), exclude_same="video").num_failed == 1


def test_too_many_broken_videos_end_it(encoder, with_broken):
    with pytest.raises(TooManyBrokenError, match=r"1 of 7 videos cannot be read.*broken\.mp4"):
        embed(encoder, with_broken, num_clips=NUM_CLIPS)
    with pytest.raises(TooManyBrokenError, match=r"None of 1 videos can be read.*broken\.mp4"):
        embed(encoder, with_broken.subset([3]), max_broken_share=1.0)


def test_few_failures_are_named_and_more_are_counted(embeddings):
    assert embeddings.failure_line == "0 of 6 videos failed"
    failed = tuple((f"{letter}.avi", "no frames") for letter in "abcd")
    line = dataclasses.replace(embeddings, failed=failed).failure_line
    assert line == "4 of 10 videos failed: a.avi, b.avi, c.avi, ..."


def test_the_encoder_is_left_as_it_was(encoder, catalog, with_broken):
    """Also where some of its modules were in another mode than the rest, and where it ends in an error."""
    encoder.train()
    encoder.backbone.eval()
    before = {name: module.training for name, module in encoder.named_modules()}
    state = {name: value.clone() for name, value in encoder.state_dict().items()}
    try:
        embed(encoder, catalog.subset([0]), num_clips=1, device="cpu")
        with pytest.raises(TooManyBrokenError):
            embed(encoder, with_broken, num_clips=1)
        assert {name: module.training for name, module in encoder.named_modules()} == before
        for name, value in encoder.state_dict().items():
            assert torch.equal(value, state[name]), f"{name} changed"
        assert not any(parameter.is_inference() for parameter in encoder.parameters())
    finally:
        encoder.eval()


def test_a_probe_can_learn_from_embeddings(embeddings):
    clips = embeddings.videos.clips
    assert clips.mean.dtype == clips.log_var.dtype == torch.float32
    layer = torch.nn.Linear(8, 2)
    layer(clips.mean * clips.log_var).sum().backward()
    assert layer.weight.grad.abs().sum() > 0


def test_stored_features_give_what_the_heads_make_of_them(catalog, monkeypatch):
    torch.manual_seed(1)
    config = EncoderConfig.for_backbone("features", dim=8, frozen=FrozenSpec(feature_dim=5))
    encoder = Encoder(config).train()
    features = torch.randn(6, 3, 5)
    monkeypatch.setattr("provico.embedding.driver.FEATURES_AT_ONCE", 4)
    found = embed_features(encoder, features, catalog, failed=(("x.avi", "no frames"),))
    assert encoder.training
    assert found.ids == tuple(video.id for video in catalog)
    assert found.failure_line == "1 of 7 videos failed: x.avi"
    with torch.no_grad():
        for number in range(6):
            for clip in range(3):
                expected = encoder.eval().head(features[number, clip])
                torch.testing.assert_close(found.videos.clips.mean[number, clip], expected.mean)
                torch.testing.assert_close(found.videos.clips.log_var[number, clip], expected.log_var)
    with pytest.raises(ConfigError, match=r"shape \(5, 3, 5\) and the catalog has 6 videos"):
        embed_features(encoder, features[:5], catalog)
    with pytest.raises(ConfigError, match="has no network for the videos"):
        embed(encoder, catalog)


def test_the_network_sees_full_batches_whichever_videos_clips_are_of(
    encoder, with_broken, embeddings, monkeypatch, sizes_seen
):
    monkeypatch.setattr("provico.embedding.features.CLIPS_AT_ONCE", 5)
    for at_once in (1, 3):
        sizes_seen.clear()
        monkeypatch.setattr("provico.embedding.features.VIDEOS_AT_ONCE", at_once)
        found = embed(encoder, with_broken, num_clips=NUM_CLIPS, max_broken_share=0.2)
        assert sizes_seen == [5, 5, 2]
        assert_same(found, embeddings)


def test_batches_are_given_out_as_they_are_computed(encoder, with_broken, embeddings, monkeypatch):
    monkeypatch.setattr("provico.embedding.features.CLIPS_AT_ONCE", 2 * NUM_CLIPS)
    monkeypatch.setattr("provico.embedding.features.VIDEOS_AT_ONCE", 1)
    batches = embed_batches(encoder, with_broken, num_clips=NUM_CLIPS, max_broken_share=0.2)
    encoder.train()
    found = [next(batches)]
    assert not encoder.training
    assert not torch.is_inference_mode_enabled()
    assert torch.is_grad_enabled()
    found += batches
    assert encoder.training
    encoder.eval()
    ids = [video.id for video in with_broken]
    assert [batch.ids for batch in found] == [(ids[0], ids[1]), (ids[2], ids[4]), (ids[5], ids[6])]
    assert [[name for name, _ in batch.failed] for batch in found] == [[], ["broken.mp4"], []]
    means = torch.cat([batch.videos.clips.mean for batch in found])
    torch.testing.assert_close(means, embeddings.videos.clips.mean)


def test_clips_have_their_times(encoder, catalog, embeddings):
    for number in (0, 5):
        index = index_video(catalog[number].path)
        last = index.num_frames - 7  # a clip is 4 frames, every second
        seconds = [*index.frame_seconds, index.duration_seconds]
        expected = torch.tensor([[seconds[0], seconds[7]], [seconds[last], seconds[-1]]]).double()
        torch.testing.assert_close(embeddings.clip_seconds[number], expected)
    with pytest.raises(ValueError, match="needs a start and an end"):
        dataclasses.replace(embeddings, clip_seconds=embeddings.clip_seconds[:, :1])


def test_clips_of_frozen_networks_have_their_times_too(catalog, embeddings, tmp_path, monkeypatch):
    """When they are computed, and when they are remembered."""
    (tmp_path / "colour.py").write_text("def colour(clips):\n    return clips.mean(dim=(2, 3, 4))\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = InputSpec(size=32, num_frames=4, frame_step=2)
    frozen = FrozenSpec(feature_dim=3)
    encoder = Encoder(EncoderConfig.for_backbone("colour:colour", dim=8, input=spec, frozen=frozen))
    library = Library(tmp_path / "home")
    first = embed(encoder, catalog.subset([3, 1]), num_clips=NUM_CLIPS, library=library)
    again = embed(encoder, catalog, num_clips=NUM_CLIPS, library=library)
    assert again.ids == embeddings.ids
    assert torch.equal(again.clip_seconds, embeddings.clip_seconds)
    assert torch.equal(first.clip_seconds, embeddings.clip_seconds[[3, 1]])
    torch.testing.assert_close(first.videos.mean, again.videos.mean[[3, 1]])


def test_numbers_that_are_not_finite_are_refused(embeddings):
    clips = embeddings.videos.clips
    mean = clips.mean.clone()
    mean[2, 0, 3] = torch.nan
    with pytest.raises(WeightsError, match=f"1 of 6 videos, the first of them {embeddings.ids[2]}"):
        dataclasses.replace(embeddings, videos=Mixture(Gaussian(mean, clips.log_var)))
    with pytest.raises(ValueError, match="one id, distribution, label and group"):
        dataclasses.replace(embeddings, ids=embeddings.ids[1:])
