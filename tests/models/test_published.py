"""Networks of transformers: every family gives what its own model gives, and nothing is trusted blindly."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from provico.embedding.clips import clip_settings
from provico.embedding.features import maker_name
from provico.errors import ConfigError, MissingDependencyError, WeightsError
from provico.models import Encoder, EncoderConfig, InputSpec
from provico.models.backbones import hub
from provico.models.backbones.registry import made_for, source_of

from ..tiny_networks import NETWORKS, PATCH, SIDE, Network, save_network


def direction(maps: torch.Tensor) -> torch.Tensor:
    """Of the mean change of maps "clips steps places channels", one step and one clip at a time."""
    changes = []
    for clip in maps:
        steps = [(after - before).abs().mean(dim=0) for before, after in itertools.pairwise(clip)]
        mean = torch.stack(steps).mean(dim=0)
        changes.append(mean / mean.norm())
    return torch.stack(changes)


@torch.no_grad()
def expected_features(
    model_type: str, folder: Path, clips: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pooled features and maps of clips "clips time 3 height width", with the whole model of transformers."""
    import transformers

    model = transformers.AutoModel.from_pretrained(folder, local_files_only=True).eval()
    num_clips, num_frames = clips.shape[:2]
    frames = clips.flatten(0, 1)
    if model_type in ("videomae", "vjepa2"):
        tokens = (
            model(clips).last_hidden_state if model_type == "videomae" else model.get_vision_features(clips)
        )
        return tokens.mean(dim=1), tokens.view(num_clips, num_frames // 2, -1, tokens.shape[-1])
    if model_type == "timesformer":
        tokens = model(clips).last_hidden_state
        places = torch.stack(
            [tokens[:, 1 + time :: num_frames] for time in range(num_frames)], dim=1
        )  # places follow each other at a distance of all frames
        return tokens[:, 0], places
    if model_type == "xclip":
        found = model.get_video_features(clips)
        pooled = found.pooler_output
    elif model_type in ("clip", "siglip"):
        found = model.get_image_features(pixel_values=frames)
        pooled = found.pooler_output.view(num_clips, num_frames, -1).mean(dim=1)
    elif model_type == "siglip2":
        patches = torch.nn.functional.unfold(frames, PATCH, stride=PATCH)  # channel by channel
        patches = patches.unflatten(1, (3, PATCH * PATCH)).permute(0, 3, 2, 1).flatten(2)
        shape = torch.full((len(frames), 2), SIDE // PATCH)
        found = model.get_image_features(
            pixel_values=patches, pixel_attention_mask=torch.ones(patches.shape[:2]), spatial_shapes=shape
        )
        pooled = found.pooler_output.view(num_clips, num_frames, -1).mean(dim=1)
    else:
        found = model(pixel_values=frames)
        pooled = found.pooler_output.view(num_clips, num_frames, -1).mean(dim=1)
    num_before = {"dinov2_with_registers": 3, "dinov3_vit": 3, "siglip": 0, "siglip2": 0}.get(model_type, 1)
    tokens = found.last_hidden_state[:, num_before:]
    return pooled, tokens.view(num_clips, num_frames, *tokens.shape[1:])


@pytest.mark.parametrize("model_type", NETWORKS)
def test_features_are_those_of_the_model(model_type: str, network: Network) -> None:
    folder = network(model_type)
    encoder = Encoder(EncoderConfig.for_backbone(str(folder), dim=4))
    assert encoder.config.input.size == SIDE
    assert encoder.config.input.num_frames == 4
    clips = torch.randn(3, 4, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    pooled, maps = expected_features(model_type, folder, clips)
    found = encoder.backbone(clips.transpose(1, 2))
    assert encoder.config.frozen is not None
    assert encoder.config.frozen.blocks == (pooled.shape[1], maps.shape[3])
    assert encoder.config.backbone_spec.views == encoder.config.frozen.blocks
    torch.testing.assert_close(found, torch.cat([pooled, direction(maps)], dim=1), atol=2e-5, rtol=1e-4)
    assert found.std(dim=0).min() > 0


@pytest.mark.parametrize(
    ("model_type", "clips", "message"),
    [
        ("videomae", {"num_frames": 8}, "takes clips of 4 frames of 32 x 32 pixels, but .* 8 frames"),
        ("videomae", {"size": 64}, "takes clips of 4 frames of 32 x 32 pixels, but .* 64 x 64"),
        ("xclip", {"num_frames": 3}, "takes clips of 4 frames"),
        ("timesformer", {"num_frames": 8}, "takes clips of 4 frames"),
        ("vjepa2", {"num_frames": 3}, r"4 frames \(or another multiple of 2\) of"),
        ("dinov2", {"size": 30}, r"any number of frames of .* \(or another multiple of 8\), but"),
        ("clip", {"motion": True}, "Leave out --motion"),
    ],
)
def test_clips_that_a_model_cannot_take_are_refused(
    model_type: str, clips: dict[str, Any], message: str, network: Network
) -> None:
    folder = str(network(model_type))
    with pytest.raises(ConfigError, match=message):
        Encoder(EncoderConfig.for_backbone(folder, input=made_for(folder).changed(**clips)))


@pytest.mark.parametrize(
    ("model_type", "clips"),
    [
        ("dinov2", {"size": 48}),
        ("clip", {"size": 48}),
        ("siglip", {"size": 48}),
        ("vjepa2", {"num_frames": 8}),
        ("dinov2", {"num_frames": 1}),
    ],
)
def test_clips_that_a_model_can_take_too(model_type: str, clips: dict[str, Any], network: Network) -> None:
    folder = str(network(model_type))
    spec = made_for(folder).changed(**clips)
    encoder = Encoder(EncoderConfig.for_backbone(folder, input=spec, dim=4))
    pixels = torch.zeros(2, spec.num_frames, spec.size, spec.size, 3, dtype=torch.uint8)
    assert encoder.features(pixels).isfinite().all()
    assert encoder.config.frozen is not None
    assert (encoder.config.frozen.blocks is None) == (spec.num_frames == 1), "one frame has no change"


def test_weights_are_read_as_float32(network: Network, tmp_path: Path) -> None:
    import transformers

    model = transformers.Dinov2Model.from_pretrained(network("dinov2"), dtype=torch.bfloat16)
    model.save_pretrained(tmp_path)
    shutil.copy(network("dinov2") / "preprocessor_config.json", tmp_path)
    encoder = Encoder(EncoderConfig.for_backbone(str(tmp_path), dim=4))
    assert {value.dtype for value in encoder.backbone.parameters()} == {torch.float32}


def test_weights_and_settings_make_the_identity(network: Network, tmp_path: Path) -> None:
    def hash_of(folder: Path) -> str | None:
        return Encoder(EncoderConfig.for_backbone(str(folder), dim=4)).config.network_hash

    folder = tmp_path / "copy"
    shutil.copytree(network("dinov2"), folder)
    own = hash_of(folder)
    assert hash_of(network("dinov2")) == own, "it does not matter where a network lies"
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(values | {"transformers_version": "0", "dtype": "float16"})
    )
    assert hash_of(folder) == own
    (folder / "config.json").write_text(json.dumps(values | {"hidden_act": "relu"}))
    assert hash_of(folder) != own

    from safetensors.torch import load_file, save_file

    (folder / "config.json").write_text(json.dumps(values))
    weights = load_file(folder / "model.safetensors")
    weights["layernorm.bias"] += 1e-3
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert hash_of(folder) != own


def test_features_are_remembered_by_weights_and_preprocessing(network: Network, tmp_path: Path) -> None:
    def remembered_as(folder: Path) -> str:
        encoder = Encoder(EncoderConfig.for_backbone(str(folder), dim=4))
        return maker_name(encoder, clip_settings(encoder.config, num_clips=2))

    folder = tmp_path / "copy"
    shutil.copytree(network("dinov2"), folder)
    own = remembered_as(folder)
    assert remembered_as(network("dinov2")) == own, "it does not matter where a network lies"
    path = folder / "preprocessor_config.json"
    values = json.loads(path.read_text())
    others = set()
    for change in ({"resample": 2}, {"image_mean": [0.5, 0.5, 0.5]}, {"size": {"shortest_edge": 40}}):
        path.write_text(json.dumps(values | change))
        others.add(remembered_as(folder))
    assert len(others | {own}) == 4


def test_an_encoder_refuses_its_network_with_other_weights(network: Network, tmp_path: Path) -> None:
    save_network("dinov2", tmp_path / "network")
    encoder = Encoder(EncoderConfig.for_backbone(str(tmp_path / "network"), dim=4))
    encoder.save_pretrained(tmp_path / "encoder")
    opened = Encoder.from_pretrained(tmp_path / "encoder")  # no code is run, so nothing is to be allowed
    pixels = torch.randint(0, 256, (2, 4, SIDE, SIDE, 3), dtype=torch.uint8)
    assert torch.equal(opened.encode_clips(pixels).mean, encoder.encode_clips(pixels).mean)
    shutil.rmtree(tmp_path / "network")
    save_network("dinov2", tmp_path / "network", seed=1)
    with pytest.raises(WeightsError, match="its weights or its code have changed"):
        Encoder.from_pretrained(tmp_path / "encoder")


def test_weights_that_are_missing_or_could_run_code_are_refused(network: Network, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "copy"
    shutil.copytree(network("dinov2"), folder)
    weights = load_file(folder / "model.safetensors")
    del weights["layernorm.bias"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"lack 1 tensors of the network \(layernorm.bias\)"):
        Encoder(EncoderConfig.for_backbone(str(folder)))
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(WeightsError, match=r"has only pytorch_model.bin, but weights as .safetensors"):
        Encoder(EncoderConfig.for_backbone(str(folder)))


def test_code_in_a_folder_is_never_run(network: Network, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(network("dinov2"), folder)
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    values = json.loads((folder / "config.json").read_text())
    values |= {"model_type": "evil", "auto_map": {"AutoModel": "evil.Evil", "AutoConfig": "evil.Config"}}
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.raises(ConfigError, match="cannot be opened with transformers"):
        Encoder(EncoderConfig.for_backbone(str(folder)))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has no config.json"),
        ({"config.json": "{}"}, "neither of transformers"),
        ({"config.json": '{"model_type": "dinov2"}'}, "neither preprocessor_config.json nor"),
        ({"config.json": '{"model_type": "dinov2"}', "preprocessor_config.json": "{}"}, "cannot be used"),
        ({"config.json": '{"backbone": "tiny", "input": {}}'}, "Use it as --checkpoint"),
        ({"config.json": "[]"}, "holds a list"),
        ({"config.json": "{"}, "cannot be read as JSON"),
    ],
)
def test_folders_that_hold_no_network(files: dict[str, str], message: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=message):
        EncoderConfig.for_backbone(str(tmp_path))


def test_what_a_name_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "tiny").mkdir()
    meant = {
        "hf:a/b": "hf:",
        "hf:a/b@main": "hf:",
        "timm:resnet18": "timm:",
        "net.onnx": ".onnx",
        "folder": "FOLDER",
        "./no-such": "FOLDER",
        "package.module:Net": "package.module:name",
        "tiny": None,
        "features": None,
        "no_such": None,
    }
    assert {name: source_of(name) for name in meant} == meant
    for wrong in ("hf:b", "hf:a/b/c", "hf:a/b@", "hf:../b c"):
        with pytest.raises(ConfigError, match="Write hf:OWNER/NAME"):
            hub.parse(wrong)
    assert hub.parse("hf:a/b@v1.0") == ("a/b", "v1.0")


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("hf:a/b", "huggingface_hub", "hf"),
        ("timm:resnet18", "timm", "timm"),
        ("n.onnx", "onnxruntime", "onnx"),
    ],
)
def test_a_missing_extra_is_one_sentence(
    name: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda one: None if one == package else found(one))
    with pytest.raises(MissingDependencyError, match=rf"Run: pip install 'provico\[{extra}\]'") as caught:
        made_for(name)
    assert package in str(caught.value)


def test_a_name_without_its_network_on_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match="is not in the local cache and cannot be downloaded now"):
        made_for("hf:nobody/nothing")


def test_a_network_in_the_cache_of_the_hub(
    network: Network, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As `hf download` leaves it: found without a network, by name and by revision."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    repo = tmp_path / "models--own--dino"
    shutil.copytree(network("dinov2"), repo / "snapshots" / ("0" * 40))
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("0" * 40)
    hub.fetch.cache_clear()
    for name in ("hf:own/dino", f"hf:own/dino@{'0' * 40}"):
        encoder = Encoder(EncoderConfig.for_backbone(name, dim=4))
        assert encoder.config.backbone == name
        assert encoder.config.input == made_for(str(network("dinov2")))
    local = Encoder(EncoderConfig.for_backbone(str(network("dinov2")), dim=4))
    assert encoder.config.network_hash == local.config.network_hash
    assert encoder.config.frozen == local.config.frozen


def test_clips_of_a_network_come_from_its_files(network: Network) -> None:
    assert made_for(str(network("vjepa2"))) == InputSpec(
        size=SIDE,
        num_frames=4,
        frame_step=2,
        pixel_mean=(0.48, 0.45, 0.4),
        pixel_std=(0.26, 0.25, 0.27),
        scaling="torch-bilinear",
        short_side=36,
    )
    assert made_for(str(network("siglip"))).squash
