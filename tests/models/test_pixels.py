"""uint8 pixels are normalised by the definition; floats pass."""

from __future__ import annotations

import pytest
import torch

from provico.errors import ConfigError
from provico.models import Encoder, EncoderConfig, InputSpec, PixelNormalisation


def test_normalisation_by_the_definition() -> None:
    spec = InputSpec(pixel_mean=(0.1, 0.2, 0.3), pixel_std=(0.5, 0.25, 2.0))
    pixels = torch.randint(0, 256, (2, 3, 4, 5, 3), dtype=torch.uint8)
    found = PixelNormalisation(spec)(pixels)
    expected = (pixels.double() / 255 - torch.tensor(spec.pixel_mean).double()) / torch.tensor(spec.pixel_std)
    torch.testing.assert_close(found.double(), expected.permute(0, 4, 1, 2, 3), rtol=1e-5, atol=1e-6)
    assert found.is_contiguous(memory_format=torch.channels_last_3d)


def test_floats_pass_unchanged_and_uncopied() -> None:
    pixels = torch.randn(2, 3, 4, 5, 3)
    found = PixelNormalisation(InputSpec())(pixels)
    assert found.data_ptr() == pixels.data_ptr()
    assert torch.equal(found, pixels.permute(0, 4, 1, 2, 3))


def test_motion_is_the_difference_of_neighbouring_frames() -> None:
    spec = InputSpec(pixel_mean=(0.1, 0.2, 0.3), pixel_std=(0.5, 0.25, 2.0), motion=True)
    pixels = torch.randint(0, 256, (2, 4, 5, 6, 3), dtype=torch.uint8)
    found = PixelNormalisation(spec)(pixels)
    assert found.shape == (2, 3, 3, 5, 6)
    for clip in range(2):
        for time in range(3):
            after, before = pixels[clip, time + 1].double(), pixels[clip, time].double()
            expected = (after - before) / 255 / torch.tensor(spec.pixel_std).double()
            torch.testing.assert_close(
                found[clip, :, time].double(), expected.permute(2, 0, 1), rtol=1e-5, atol=1e-5
            )
    assert found.is_contiguous(memory_format=torch.channels_last_3d)
    normalised = torch.randn(2, 4, 5, 6, 3)
    differences = normalised[:, 1:] - normalised[:, :-1]
    assert torch.equal(PixelNormalisation(spec)(normalised), differences.permute(0, 4, 1, 2, 3))


def test_a_network_that_sees_motion_does_not_see_the_scenery() -> None:
    torch.manual_seed(0)
    spec = InputSpec(size=16, num_frames=4, motion=True)
    encoder = Encoder(EncoderConfig.for_backbone("tiny", dim=8, input=spec)).eval()
    scenery = torch.randint(0, 100, (2, 1, 16, 16, 3), dtype=torch.uint8)
    change = torch.randint(0, 100, (1, 4, 16, 16, 3), dtype=torch.uint8)
    one, two = encoder.features(scenery + change)
    torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)
    still = encoder.features(scenery.expand(-1, 4, -1, -1, -1))
    assert torch.equal(still[0], still[1])
    assert not torch.allclose(one, still[0], atol=1e-3)


def test_motion_is_kept_with_the_encoder() -> None:
    config = EncoderConfig.for_backbone("tiny", input=InputSpec(motion=True))
    assert EncoderConfig.from_json(config.to_json()) == config
    # Encoders that were saved before there was a choice saw frames.
    assert not EncoderConfig.from_json(config.to_json().replace(',\n    "motion": true', "")).input.motion


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 0}, "size is 0"),
        ({"num_frames": -1}, "num_frames is -1"),
        ({"frame_step": 0}, "frame_step is 0"),
        ({"pixel_std": (1.0, 0.0, 1.0)}, "must be positive"),
        ({"motion": True, "num_frames": 1}, "num_frames must be at least 2"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message) -> None:
    with pytest.raises(ConfigError, match=message):
        InputSpec(**settings)
