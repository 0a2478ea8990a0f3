"""An encoder gives distributions, is saved and found again bit for bit, and refuses what does not fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from provico.errors import ConfigError, OutputExistsError, WeightsError
from provico.models import BACKBONES, Encoder, EncoderConfig, FrozenSpec, InputSpec, encoder_hash
from provico.probability import Mixture

CONFIG = EncoderConfig.for_backbone("tiny", dim=16, input=InputSpec(size=32, num_frames=4))


def make_encoder(config: EncoderConfig = CONFIG) -> Encoder:
    torch.manual_seed(0)
    return Encoder(config)


def make_videos(videos: int = 3, clips: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (videos, clips, 4, 32, 32, 3), dtype=torch.uint8, generator=generator)


def test_one_forward_gives_clips_and_videos() -> None:
    mixture = make_encoder()(make_videos())
    assert isinstance(mixture, Mixture)
    assert mixture.clips.mean.shape == (3, 2, 16)
    assert mixture.moment_matched.log_var.shape == (3, 16)
    norms = mixture.clips.mean.detach().norm(dim=-1)
    torch.testing.assert_close(norms, torch.full_like(norms, 4.0))


def test_gradients_reach_every_parameter_and_are_finite() -> None:
    encoder = make_encoder()
    video = encoder(make_videos()).moment_matched
    curve = encoder.match_curve()
    distances = (video.mean.unsqueeze(1) - video.mean).square().sum(-1)
    (curve.logits(distances).sum() + video.log_var.sum()).backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name


def test_the_order_of_clips_and_videos_does_not_matter() -> None:
    encoder, videos = make_encoder().eval(), make_videos(videos=3, clips=3)
    with torch.no_grad():
        there = encoder(videos).moment_matched
        other_clips = encoder(videos[:, [2, 0, 1]]).moment_matched
        other_videos = encoder(videos[[1, 2, 0]]).moment_matched
    torch.testing.assert_close(other_clips.mean, there.mean)
    torch.testing.assert_close(other_clips.log_var, there.log_var)
    torch.testing.assert_close(other_videos.mean, there.mean[[1, 2, 0]])


def test_uint8_and_normalised_floats_agree() -> None:
    encoder, videos = make_encoder().eval(), make_videos()
    mean, std = torch.tensor(CONFIG.input.pixel_mean), torch.tensor(CONFIG.input.pixel_std)
    with torch.no_grad():
        from_uint8 = encoder(videos).mean
        from_floats = encoder((videos.float() / 255 - mean) / std).mean
    torch.testing.assert_close(from_uint8, from_floats, rtol=1e-4, atol=1e-4)


def test_the_parts_make_up_the_whole() -> None:
    encoder, videos = make_encoder().eval(), make_videos()
    with torch.no_grad():
        whole = encoder(videos).clips.mean
        clips = encoder.encode_clips(videos.flatten(0, 1)).mean
        stored = encoder.from_features(encoder.features(videos.flatten(0, 1)).view(3, 2, -1)).clips.mean
    assert torch.equal(whole.flatten(0, 1), clips)
    assert torch.equal(whole, stored)


@pytest.mark.parametrize("hidden_dim", [None, 24])
def test_saved_and_loaded_bit_for_bit(tmp_path: Path, hidden_dim: int | None) -> None:
    encoder = make_encoder(replace(CONFIG, hidden_dim=hidden_dim, parametrisation="long"))
    encoder(make_videos())  # so that the batch statistics are not those of a new network
    encoder.save_pretrained(tmp_path / "encoder")
    loaded = Encoder.from_pretrained(tmp_path / "encoder")
    assert loaded.config == encoder.config
    assert not loaded.training
    assert loaded.state_dict().keys() == encoder.state_dict().keys()
    for key, value in encoder.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], value), key
    encoder.eval()
    with torch.no_grad():
        assert torch.equal(loaded(make_videos()).mean, encoder(make_videos()).mean)
    assert sorted(path.name for path in (tmp_path / "encoder").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]


def test_an_encoder_is_never_overwritten(tmp_path: Path) -> None:
    encoder = make_encoder()
    encoder.save_pretrained(tmp_path / "encoder")
    with pytest.raises(OutputExistsError, match="is not empty"):
        encoder.save_pretrained(tmp_path / "encoder")


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hiden_dim": 3}, r"no setting hiden_dim. Did you mean hidden_dim\?"),
        ({"input": {"siez": 3}}, r"no setting input.siez. Did you mean input.size\?"),
        ({"backbone": "tinny"}, r"Did you mean tiny\?"),
        ({"parametrisation": "sqrtdim"}, r"no parametrisation sqrtdim. Did you mean sqrt_dim\?"),
        ({"dim": 0}, "dim is 0, but it must be at least 1"),
        ({"backbone": "tiny_two_streams", "dim": 7}, "evenly among 2 networks. Give a multiple of 2"),
        ({"backbone": "tiny_two_streams", "input": {"motion": True}}, "motion is on.*Leave it out"),
        ({"backbone": "tiny_two_streams", "input": {"num_frames": 1}}, "num_frames is 1.*at least 2"),
        ({"backbone": "os:getcwd", "frozen": {"feature_dim": 3}}, "use allow_import=True"),
    ],
)
def test_a_config_that_cannot_work_is_refused(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    make_encoder().save_pretrained(tmp_path / "encoder")
    edit_config(tmp_path / "encoder", **changes)
    with pytest.raises(ConfigError, match=message):
        Encoder.from_pretrained(tmp_path / "encoder")


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is not JSON"), ("[]", "is a list"), ('{"dim": 3}', "lacks the setting backbone")],
)
def test_a_config_that_is_none_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EncoderConfig.from_json(text)


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "encoder"
    make_encoder().save_pretrained(folder)
    edit_config(folder, dim=17)
    with pytest.raises(WeightsError, match="dim is 17, but its weights have another size"):
        Encoder.from_pretrained(folder)

    weights = load_file(folder / "model.safetensors")
    del weights["match_scale.b"]
    save_file(weights, folder / "model.safetensors")
    edit_config(folder, dim=16)
    with pytest.raises(WeightsError, match=r"1 missing \(match_scale.b\)"):
        Encoder.from_pretrained(folder)

    (folder / "config.json").unlink()
    with pytest.raises(WeightsError, match=r"has no config\.json"):
        Encoder.from_pretrained(folder)


def test_stored_features_stand_in_for_the_backbone(tmp_path: Path) -> None:
    config = EncoderConfig.for_backbone("features", dim=8, frozen=FrozenSpec(feature_dim=5))
    encoder = make_encoder(config)
    features = torch.randn(4, 2, 5)
    assert encoder.from_features(features).mean.shape == (4, 8)
    with pytest.raises(ConfigError, match="has no backbone for pixels"):
        encoder(make_videos())
    encoder.save_pretrained(tmp_path / "encoder")
    loaded = Encoder.from_pretrained(tmp_path / "encoder")
    assert torch.equal(loaded.from_features(features).mean, encoder.from_features(features).mean)


@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone_has_a_config_that_survives_json(name: str) -> None:
    config = EncoderConfig.for_backbone(name)
    assert EncoderConfig.from_json(config.to_json()) == config


def test_the_short_side_fits_the_crop() -> None:
    sizes = {
        size: EncoderConfig.for_backbone("r3d18", input=InputSpec(size=size)).short_side
        for size in (112, 224, 64)
    }
    assert sizes == {112: 128, 224: 256, 64: 73}
    assert EncoderConfig.for_backbone("efficientnet_lite0").short_side == 128


# --- identity ----------------------------------------------------------------------------------------------


def test_the_hash_tells_encoders_apart_and_nothing_else(tmp_path: Path) -> None:
    encoder = make_encoder()
    own = encoder_hash(encoder)
    assert len(own) == 16
    assert int(own, 16) >= 0
    encoder.save_pretrained(tmp_path / "encoder")
    assert encoder_hash(Encoder.from_pretrained(tmp_path / "encoder")) == own
    assert encoder_hash(make_encoder().eval()) == own
    torch.manual_seed(7)
    assert encoder_hash(Encoder(CONFIG)) != own
    others = [
        replace(CONFIG, input=InputSpec(size=32, num_frames=4, frame_step=2)),
        replace(CONFIG, input=InputSpec(size=32, num_frames=4, pixel_std=(0.2, 0.2, 0.2))),
        replace(CONFIG, parametrisation="long"),
    ]
    assert len({own, *(encoder_hash(make_encoder(config)) for config in others)}) == 4
    with torch.no_grad():
        encoder.match_scale.b += 1
    assert encoder_hash(encoder) != own
    again = make_encoder()
    again(make_videos())  # which changes the batch statistics
    assert encoder_hash(again) != own


def test_a_setting_that_is_added_later_renames_no_encoder() -> None:
    """What is at its default is not in the hash, so this number must never change."""
    config = EncoderConfig.for_backbone("features", dim=2, frozen=FrozenSpec(feature_dim=3))
    encoder = Encoder(config)
    with torch.no_grad():
        for number, value in enumerate(encoder.state_dict().values()):
            value.fill_(number)
    assert encoder_hash(encoder) == "45b71d6e5a4dd612"
