"""Pixels that a network of transformers is shown: those that its own preprocessor would make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from provico.data.clips import ClipSpec, uniform_clips
from provico.data.frames.encode import write_video
from provico.data.frames.video import read_frames
from provico.data.library import Library
from provico.embedding.clips import FileClips, clip_settings
from provico.models import Encoder, EncoderConfig

from ..tiny_networks import MEAN, NETWORKS, PATCH, SIDE, STD, Network


@pytest.fixture(scope="session")
def some_videos(made_once) -> Path:
    """Of three aspects, with smooth shapes that move."""

    def make(folder: Path) -> None:
        folder.mkdir()
        for name, (height, width) in {"wide": (50, 88), "tall": (76, 42), "square": (54, 54)}.items():
            y, x = np.mgrid[:height, :width]
            frames = [
                np.stack([np.sin((x + 3 * t) / 7), np.cos((y - 2 * t) / 5), np.sin((x + y) / 9 + t)], axis=-1)
                for t in range(40)
            ]
            write_video(folder / f"{name}.mp4", (127 + 120 * np.array(frames)).astype(np.uint8))

    return made_once("some-videos", make)


def shown(encoder: Encoder, path: Path, library: Library) -> tuple[torch.Tensor, np.ndarray]:
    """What a network is shown of a video "clips 3 time height width", and the frames it was made of."""
    config, index = encoder.config, library.index(path)
    spec = ClipSpec(config.input.num_frames, config.input.frame_step)
    numbers = uniform_clips(index.num_frames, num_clips=2, spec=spec)
    clips = FileClips(path, numbers, index, clip_settings(config, num_clips=2), library)
    return encoder.normalisation(torch.cat(list(clips.pixels()))), read_frames(path, numbers, index=index)


def normalised(pixels: np.ndarray) -> np.ndarray:
    """Levels "... 3" to what the tiny networks were made for, written out."""
    return ((pixels.astype(np.float64) / 255 - MEAN) / STD).astype(np.float32)


# SigLIP 2 keeps any aspect, but videos are cut to squares: only of those all is the same.
WITH_PILLOW = [
    (name, video)
    for name, (_, _, processor, _) in NETWORKS.items()
    for video in (("square",) if name == "siglip2" else ("wide", "tall", "square"))
    if processor
]


@pytest.mark.parametrize(("model_type", "video"), WITH_PILLOW)
def test_pixels_are_those_of_the_preprocessor(
    model_type: str, video: str, network: Network, some_videos: Path, library: Library
) -> None:
    import transformers

    encoder = Encoder(EncoderConfig.for_backbone(str(network(model_type)), dim=4))
    seen, frames = shown(encoder, some_videos / f"{video}.mp4", library)
    processor = getattr(transformers, NETWORKS[model_type][2]).from_pretrained(network(model_type))
    for clip, expected in zip(seen, frames, strict=True):
        given = processor(list(expected), return_tensors="np")["pixel_values"]
        if model_type == "siglip2":
            side = SIDE // PATCH
            given = given.reshape(-1, side, side, PATCH, PATCH, 3).transpose(0, 5, 1, 3, 2, 4)
            given = given.reshape(-1, 3, SIDE, SIDE)
        given = given[0] if given.ndim == 5 else given
        np.testing.assert_allclose(clip.transpose(0, 1).numpy(), given, atol=1e-6, rtol=0)


def test_patches_of_siglip2_are_those_of_its_preprocessor(network: Network) -> None:
    """Of a frame that is a square already, all of it is the same."""
    import transformers

    folder = network("siglip2")
    backbone = Encoder(EncoderConfig.for_backbone(str(folder), dim=4)).backbone
    frame = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    processor = transformers.Siglip2ImageProcessorPil.from_pretrained(folder)
    wanted = processor([frame] * 4, return_tensors="pt")
    met: dict[str, Any] = {}
    handle = backbone.network.model.register_forward_pre_hook(
        lambda module, args, given: met.update(given), with_kwargs=True
    )
    backbone(torch.from_numpy(normalised(frame)).permute(2, 0, 1)[None, :, None].expand(-1, -1, 4, -1, -1))
    handle.remove()
    torch.testing.assert_close(met["pixel_values"], wanted["pixel_values"].float(), atol=1e-6, rtol=0)
    assert met["pixel_attention_mask"].tolist() == wanted["pixel_attention_mask"].tolist()
    assert met["spatial_shapes"].tolist() == wanted["spatial_shapes"].tolist()


def triangle(num_from: int, num_to: int) -> np.ndarray:
    """The weights of bilinear resizing with a kernel that widens where pixels shrink, "to from"."""
    step = num_from / num_to
    centres = (np.arange(num_to) + 0.5) * step - 0.5
    weights = np.clip(1 - np.abs(np.arange(num_from) - centres[:, None]) / max(1.0, step), 0, None)
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("video", ["wide", "tall"])
@pytest.mark.parametrize(
    # Torch rounds between rows and columns too; DINOv3's own preprocessor not even at the end.
    ("model_type", "levels"),
    [("vjepa2", 1.01), ("dinov3_vit", 0.501), ("dinov3_convnext", 0.501)],
)
def test_pixels_of_preprocessors_that_need_torchvision(
    model_type: str, levels: float, video: str, network: Network, some_videos: Path, library: Library
) -> None:
    encoder = Encoder(EncoderConfig.for_backbone(str(network(model_type)), dim=4))
    seen, frames = shown(encoder, some_videos / f"{video}.mp4", library)
    height, width = frames.shape[2:4]
    if model_type == "vjepa2":
        short = 36
        shape = (
            (short, int(short * width / height)) if height < width else (int(short * height / width), short)
        )
    else:
        shape = (SIDE, SIDE)
    resized = triangle(height, shape[0]) @ frames.astype(np.float64).transpose(0, 1, 4, 2, 3)
    resized = (resized @ triangle(width, shape[1]).T).transpose(0, 1, 3, 4, 2)
    top, left = int((shape[0] - SIDE) / 2), int((shape[1] - SIDE) / 2)
    expected = normalised(resized[:, :, top : top + SIDE, left : left + SIDE])
    found = seen.permute(0, 2, 3, 4, 1).numpy()
    assert np.abs((found - expected) * STD).max() * 255 < levels
    if model_type == "vjepa2":  # the very call that torchvision makes
        planes = torch.from_numpy(frames).flatten(0, 1).permute(0, 3, 1, 2)
        planes = torch.nn.functional.interpolate(planes, shape, mode="bilinear", antialias=True)
        exact = planes.permute(0, 2, 3, 1)[:, top : top + SIDE, left : left + SIDE].numpy()
        np.testing.assert_allclose(found.reshape(exact.shape), normalised(exact), atol=1e-6, rtol=0)
