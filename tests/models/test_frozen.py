"""Networks of the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from provico.errors import ConfigError
from provico.models import (
    Encoder,
    EncoderConfig,
    FrozenBackbone,
    FrozenSpec,
    InputSpec,
    import_network,
)

OWN_NETWORKS = '''
import torch
from torch import nn

class Frames(nn.Module):
    """Colour means of images, through a batch norm whose statistics must stay frozen."""
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
    def forward(self, images):
        assert images.ndim == 4
        return self.norm(images.mean(dim=(2, 3)))

def clips(videos):
    assert videos.ndim == 5
    return videos.mean(dim=(3, 4)).flatten(1)

ready = Frames()
number = 3
'''


@pytest.fixture(autouse=True)
def _own_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_networks.py").write_text(OWN_NETWORKS)
    monkeypatch.syspath_prepend(tmp_path)


def frames_config(path: str = "own_networks:Frames") -> EncoderConfig:
    return EncoderConfig.for_backbone(
        path,
        dim=8,
        input=InputSpec(size=6, num_frames=2),
        frozen=FrozenSpec(feature_dim=3, takes="frames"),
    )


@pytest.mark.parametrize("path", ["own_networks:Frames", "own_networks:ready"])
def test_an_image_network_is_averaged_over_the_frames(path: str) -> None:
    encoder = Encoder(frames_config(path)).train()
    pixels = torch.randn(4, 2, 6, 6, 3)
    expected = pixels.mean(dim=(1, 2, 3)) / (1 + 1e-5) ** 0.5  # batch norm with the statistics of a new one
    torch.testing.assert_close(encoder.features(pixels), expected)


def test_a_function_of_clips() -> None:
    config = EncoderConfig.for_backbone("own_networks:clips", frozen=FrozenSpec(feature_dim=6))
    encoder = Encoder(config)
    pixels = torch.randn(4, 2, 6, 6, 3)
    torch.testing.assert_close(encoder.features(pixels), pixels.mean(dim=(2, 3)).transpose(1, 2).flatten(1))


def test_training_leaves_a_frozen_network_alone() -> None:
    encoder = Encoder(frames_config()).train()
    before = {key: value.clone() for key, value in encoder.backbone.state_dict().items()}
    optimiser = torch.optim.SGD((p for p in encoder.parameters() if p.requires_grad), lr=1.0)
    encoder(torch.randn(2, 2, 2, 6, 6, 3)).moment_matched.log_var.sum().backward()
    optimiser.step()
    assert not encoder.backbone.training
    assert not encoder.backbone.network.training
    for key, value in encoder.backbone.state_dict().items():
        assert torch.equal(value, before[key]), key


def test_a_frozen_network_is_named_in_the_checkpoint_not_copied(tmp_path: Path) -> None:
    encoder = Encoder(frames_config()).eval()
    folder = tmp_path / "encoder"
    encoder.save_pretrained(folder)
    with safe_open(folder / "model.safetensors", "pt") as weights:
        assert not [name for name in weights.keys() if name.startswith("backbone")]  # noqa: SIM118
    with pytest.raises(ConfigError, match="allow_import=True"):
        Encoder.from_pretrained(folder)
    loaded = Encoder.from_pretrained(folder, allow_import=True)
    videos = torch.randn(2, 2, 2, 6, 6, 3)
    assert torch.equal(loaded(videos).mean, encoder(videos).mean)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_package:net", "No network was found"),
        ("own_networks:absent", "No network was found"),
        ("own_networks:number", "is a int"),
    ],
)
def test_a_path_without_a_network_is_refused(path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        import_network(path)


def test_a_network_that_gives_something_else_is_refused() -> None:
    clips = torch.randn(4, 3, 2, 6, 6)
    wrong_dim = FrozenBackbone(lambda pixels: pixels.mean(dim=(2, 3, 4)), FrozenSpec(feature_dim=5))
    with pytest.raises(ConfigError, match=r"returned \(4, 3\) for 4 clips, but a tensor of shape \(4, 5\)"):
        wrong_dim(clips)
    no_tensor = FrozenBackbone(lambda pixels: [pixels], FrozenSpec(feature_dim=5, takes="frames"))
    with pytest.raises(ConfigError, match="returned list for 8 frames"):
        no_tensor(clips)
    with pytest.raises(ConfigError, match="at least one feature"):
        FrozenSpec(feature_dim=0)
