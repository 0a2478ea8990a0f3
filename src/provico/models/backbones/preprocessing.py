"""The clips that a published network expects, from the settings of its preprocessor.

`preprocessor_config.json` is for images and `video_preprocessor_config.json` for videos. Neither the
preprocessor itself nor torchvision is needed: the file describes how to resize, crop and normalise. Image
preprocessors resize with Pillow and video preprocessors with torch; the kernels round differently, so
`InputSpec.scaling` says which to use.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from provico.defaults import SCALINGS
from provico.errors import ConfigError
from provico.models.pixels import Channels, InputSpec

VIDEO_CONFIG, IMAGE_CONFIG = "video_preprocessor_config.json", "preprocessor_config.json"

FLOAT_PROCESSORS = ("DINOv3ViTImageProcessor", "DINOv3ViTImageProcessorFast")
"""They resize values from 0 to 1 without rounding; here the result is rounded to integers up to 255."""

_KERNELS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}  # of Pillow


def read_preprocessing(folder: Path, *, num_frames: int, frame_step: int, called: str) -> InputSpec:
    """The clips that the network in a folder expects: size, scaling and normalisation from its own files.

    called: the name of the network in errors.
    """
    video = folder / VIDEO_CONFIG
    path = video if video.is_file() else folder / IMAGE_CONFIG
    if not path.is_file():
        raise ConfigError(
            f"{called} has neither {IMAGE_CONFIG} nor {VIDEO_CONFIG}, so its preprocessing is unknown. Put "
            "the one that was published with the network beside its weights."
        )
    values = read_json(path)
    try:
        return _input_spec(values, path.name == VIDEO_CONFIG, num_frames, frame_step)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"The {path.name} of {called} cannot be used: {type(error).__name__} {error}. It must state "
            "the size, the mean and the standard deviation of its pixels."
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """Read the settings in a JSON file; raise ConfigError for anything else."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as JSON: {error}.") from error
    if not isinstance(values, dict):
        raise ConfigError(
            f"{path} holds a {type(values).__name__}, but a mapping of names to values is needed."
        )
    return values


def _input_spec(values: dict[str, Any], is_video: bool, num_frames: int, frame_step: int) -> InputSpec:
    short_side, size, squash = _sizes(values)
    mean, std = _normalisation(values)
    return InputSpec(
        size=size,
        num_frames=num_frames,
        frame_step=frame_step,
        pixel_mean=mean,
        pixel_std=std,
        scaling=_scaling(values, is_video),
        short_side=short_side,
        squash=squash,
    )


def _sizes(values: dict[str, Any]) -> tuple[int, int, bool]:
    """Short side before the crop, side of the crop, and whether frames are squashed instead of cropped."""
    if "max_num_patches" in values:  # any aspect: squares, which all videos can be cropped to
        side = math.isqrt(int(values["max_num_patches"])) * _square(values["patch_size"])
        return side, side, False
    crop = _square(values["crop_size"]) if values.get("do_center_crop", "crop_size" in values) else None
    wanted = values["size"] if values.get("do_resize", True) else crop
    if isinstance(wanted, dict) and "shortest_edge" in wanted:
        short_side = int(wanted["shortest_edge"])
        return short_side, crop or short_side, False
    side = _square(wanted)
    # A plain number is the short side if a crop follows, and a square if not.
    return side, crop or side, crop is None or isinstance(wanted, dict)


def _square(value: Any) -> int:
    if isinstance(value, dict):
        if value["height"] != value["width"]:
            raise ValueError(f"{value['height']} x {value['width']} pixels are not a square")
        return int(value["height"])
    return int(value)


def _normalisation(values: dict[str, Any]) -> tuple[Channels, Channels]:
    """Mean and standard deviation on a scale from 0 to 1, whatever the preprocessor's scale."""
    # A pixel p becomes (p * factor - mean) / std, and here (p / 255 - m) / s.
    factor = float(values.get("rescale_factor", 1 / 255)) if values.get("do_rescale", True) else 1.0
    mean, std = [0.0] * 3, [1.0] * 3
    if values.get("do_normalize", True):
        mean, std = _channels(values["image_mean"]), _channels(values["image_std"])
    unit = 255 * factor
    return _three(value / unit for value in mean), _three(value / unit for value in std)


def _channels(value: Any) -> list[float]:
    return [float(one) for one in value] if isinstance(value, list) else [float(value)] * 3


def _three(values: Any) -> Channels:
    # Rounded: noise in the last digits would make equal settings different.
    red, green, blue = (float(f"{value:.12g}") for value in values)
    return red, green, blue


def _scaling(values: dict[str, Any], is_video: bool) -> str:
    kernel = _KERNELS[int(values.get("resample", 2))]
    kind = values.get("image_processor_type")
    library = "float" if kind in FLOAT_PROCESSORS else "torch" if is_video else "pil"
    scaling = f"{library}-{kernel}"
    if scaling not in SCALINGS:
        raise ValueError(f"the kernel {kernel} is not one of {', '.join(SCALINGS[1:])}")
    return scaling
