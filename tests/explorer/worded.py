"""A collection whose encoder knows words: tiny towers of random weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from provico.data.catalog import open_catalog
from provico.data.frames.encode import write_video
from provico.data.library import Library
from provico.models.backbones.registry import made_for
from provico.models.encoder import Encoder
from provico.models.encoder_config import EncoderConfig
from provico.search.index import Index

from ..tiny_networks import save_network, save_tokenizer

WORDS = "a red blue green noise moving slowly quickly at night dog person diving seen water"
FPS = 10


def make_worded_index(folder: Path, home: Path) -> Path:
    """Ten short videos of two kinds, and one of 25 seconds, which has moments."""
    network, videos = folder / "clip", folder / "videos"
    save_network("clip", network)
    save_tokenizer(network, WORDS)
    rng = np.random.default_rng(0)

    def part(colour: tuple[int, int, int], num_frames: int) -> np.ndarray:
        return np.clip(rng.normal(colour, 40, size=(num_frames, 40, 48, 3)), 0, 255).astype(np.uint8)

    videos.mkdir(parents=True)
    for number in range(5):
        write_video(videos / f"IMG_{number} dusk.mp4", part((200, 60, 40), 20), fps=FPS)
        write_video(videos / f"IMG_{number} lake.mp4", part((30, 70, 220), 20), fps=FPS)
    changing = [part(tuple(rng.integers(0, 255, 3)), 10) for _ in range(25)]
    write_video(videos / "long.mp4", np.concatenate(changing), fps=FPS, gop_size=FPS)
    torch.manual_seed(0)
    clips = made_for(str(network))
    encoder = Encoder(EncoderConfig.for_backbone(str(network), dim=8, input=clips)).eval()
    index = Index.create(folder / "index", encoder, num_clips=3)
    index.add(open_catalog(videos), library=Library(home))
    return folder / "index"
