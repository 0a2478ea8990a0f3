"""uint8 pixels are normalised by the definition; floats pass."""

from __future__ import annotations

import pytest
import torch

from provico.errors import ConfigError
from provico.models import InputSpec, PixelNormalisation


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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 0}, "size is 0"),
        ({"num_frames": -1}, "num_frames is -1"),
        ({"frame_step": 0}, "frame_step is 0"),
        ({"pixel_std": (1.0, 0.0, 1.0)}, "positive numbers"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message) -> None:
    with pytest.raises(ConfigError, match=message):
        InputSpec(**settings)
