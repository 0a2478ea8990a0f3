"""Image networks of timm."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from provico.errors import ConfigError
from provico.models import Encoder, EncoderConfig, InputSpec
from provico.models.backbones import timm_model
from provico.models.backbones.registry import made_for

from ..timm_alone import import_timm

SIDE = 32
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "maps": ("resnet10t", {}),
    "tokens": (
        "vit_tiny_patch16_224",
        {"img_size": SIDE, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2, "reg_tokens": 1},
    ),
    "channels_last": (
        "swin_tiny_patch4_window7_224",
        {"img_size": SIDE, "embed_dim": 8, "depths": (1, 1), "num_heads": (1, 2), "window_size": 4},
    ),
    "wide_head": ("mobilenetv4_conv_small_050", {}),
}


@pytest.fixture(scope="session")
def timm() -> Any:
    return import_timm()


@pytest.fixture(scope="session")
def network(made_once, timm: Any) -> Callable[[str], Path]:
    """The folder of a small network with random weights, as timm writes it for the Hub."""

    def make(kind: str, folder: Path) -> None:
        name, settings = KINDS[kind]
        torch.manual_seed(0)
        model = timm.create_model(name, pretrained=False, **settings).eval()
        model.pretrained_cfg |= {"input_size": (3, SIDE, SIDE), "crop_pct": 0.9, "interpolation": "bicubic"}
        timm.models.save_for_hf(model, folder, model_args=settings, safe_serialization=True)

    return lambda kind: made_once(f"timm-{kind}", lambda folder: make(kind, folder))


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_features_are_those_of_the_network(kind: str, network, timm: Any) -> None:
    folder = network(kind)
    encoder = Encoder(EncoderConfig.for_backbone(str(folder), dim=4))
    clips = torch.randn(2, 3, 4, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    model = timm.create_model(f"local-dir:{folder}", pretrained=True, num_classes=0).eval()
    frames = clips.transpose(1, 2).flatten(0, 1)
    pooled = model(frames).view(2, 4, -1).mean(dim=1)
    maps = model.forward_features(frames)
    if kind == "tokens":
        maps = maps[:, 2:]  # one for the class and one register
    elif kind == "channels_last":
        maps = maps.flatten(1, 2)
    else:
        maps = maps.flatten(2).transpose(1, 2)
    maps = maps.view(2, 4, *maps.shape[1:])
    change = torch.stack([(maps[:, t + 1] - maps[:, t]).abs().mean(dim=1) for t in range(3)]).mean(dim=0)
    expected = torch.cat([pooled, change / change.norm(dim=1, keepdim=True)], dim=1)
    torch.testing.assert_close(encoder.backbone(clips), expected, atol=1e-5, rtol=1e-4)
    assert encoder.config.frozen is not None
    assert encoder.config.frozen.blocks == (pooled.shape[1], maps.shape[3])


def test_pixels_are_those_that_timm_would_make(network) -> None:
    spec = made_for(str(network("tokens")))
    assert spec == InputSpec(
        size=SIDE,
        num_frames=4,
        frame_step=3,
        pixel_mean=(0.5, 0.5, 0.5),
        pixel_std=(0.5, 0.5, 0.5),
        scaling="pil-bicubic",
        short_side=35,
    )


def test_weights_make_the_identity(network, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    def hash_of(folder: Path) -> str | None:
        return Encoder(EncoderConfig.for_backbone(str(folder), dim=4)).config.network_hash

    folder = tmp_path / "copy"
    shutil.copytree(network("tokens"), folder)
    own = hash_of(folder)
    assert hash_of(network("tokens")) == own
    weights = load_file(folder / "model.safetensors")
    weights["norm.bias"] += 1e-3
    save_file(weights, folder / "model.safetensors")
    assert hash_of(folder) != own


def test_a_published_name(network, timm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clips are known without fetching anything, and its weights are what timm's `pretrained` gives."""
    spec = made_for("timm:resnet18.a1_in1k")
    assert (spec.size, spec.short_side, spec.scaling) == (224, 235, "pil-bicubic")
    created = timm.create_model
    asked: list[tuple[str, dict[str, Any]]] = []

    def create(name: str, **options: Any) -> Any:
        asked.append((name, options))
        return created(f"local-dir:{network('maps')}", **options)

    monkeypatch.setattr(timm, "create_model", create)
    encoder = Encoder(EncoderConfig.for_backbone("timm:resnet10t", dim=4, input=spec.changed(size=64)))
    assert asked[0] == ("resnet10t", {"pretrained": True, "num_classes": 0, "img_size": 64}), "size as asked"
    assert asked[-1] == ("resnet10t", {"pretrained": True, "num_classes": 0}), "convolutions take any size"
    assert encoder.config.frozen is not None
    with pytest.raises(ConfigError, match=r"has no network 'resnet1'\. Did you mean timm:.*resnet1"):
        made_for("timm:resnet1")


def test_what_cannot_be_shown_is_refused(network, tmp_path: Path) -> None:
    folder = str(network("tokens"))
    with pytest.raises(ConfigError, match="Leave out --motion"):
        Encoder(EncoderConfig.for_backbone(folder, input=made_for(folder).changed(motion=True)))
    with pytest.raises(ConfigError, match="or multiples of 8, but frames have 30 x 30 pixels"):
        Encoder(EncoderConfig.for_backbone(folder, input=made_for(folder).changed(size=30)))
    shutil.copytree(network("tokens"), tmp_path / "flat")
    values = json.loads((tmp_path / "flat" / "config.json").read_text())
    values["pretrained_cfg"]["input_size"] = [3, 32, 64]
    (tmp_path / "flat" / "config.json").write_text(json.dumps(values))
    with pytest.raises(ConfigError, match="3 channels of 32 x 64 pixels"):
        made_for(str(tmp_path / "flat"))
    assert timm_model.PREFIX == "timm:"
