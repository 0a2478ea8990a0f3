"""What would a user write instead? A plain loop of torch over decoded frames, beside ours, in CPU seconds.

    pip install decord2==3.4.0 torchcodec==0.13.0
    python benchmarks/plain_loop.py DATA --num-videos 30

The network (EfficientNet-Lite0 up to its middle layers), the frames and their size are the same. The loop
asks a decoder for the frames of ten clips, scales them with torch, and runs the network on all of them at
once, in a process that keeps freed memory, as ours does. Ours also checks every frame, and makes a frame
index and a thumbnail, which a loop does not; files are met for the first time. One thread; the sides take
turns, video by video.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from provico import Library, open_catalog, open_encoder
from provico.data.clips import ClipSpec, uniform_clips
from provico.processes import keep_freed_memory

NUM_CLIPS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--num-videos", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/plain_loop.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    catalog = open_catalog(options.data)
    paths = [video.path for video in catalog][:: max(1, len(catalog) // options.num_videos)]
    paths = paths[: options.num_videos]
    encoder = open_encoder("efficientnet_motion")
    network, spec = encoder.backbone.network, encoder.config.input
    assert callable(network)

    def plain(decode: Callable[[Path], Tensor]) -> Callable[[Path], Tensor]:
        @torch.no_grad()
        def embed(path: Path) -> Tensor:
            frames = decode(path).float()
            height, width = frames.shape[2:]
            scale = spec.size / min(height, width)
            shape = (max(spec.size, round(height * scale)), max(spec.size, round(width * scale)))
            frames = F.interpolate(frames, shape, mode="bilinear", antialias=True)
            top, left = (shape[0] - spec.size) // 2, (shape[1] - spec.size) // 2
            frames = frames[:, :, top : top + spec.size, left : left + spec.size] / 255
            mean, std = (torch.tensor(values).view(3, 1, 1) for values in (spec.pixel_mean, spec.pixel_std))
            clips = ((frames - mean) / std).view(NUM_CLIPS, spec.num_frames, *frames.shape[1:])
            features: Tensor = network(clips.transpose(1, 2))
            return features

        return embed

    def numbers(num_frames: int) -> list[int]:
        clips = ClipSpec(spec.num_frames, spec.frame_step)
        found: list[int] = uniform_clips(num_frames, num_clips=NUM_CLIPS, spec=clips).ravel().tolist()
        return found

    def by_decord(path: Path) -> Tensor:
        import decord

        reader = decord.VideoReader(str(path), num_threads=1)
        return torch.from_numpy(reader.get_batch(numbers(len(reader))).asnumpy()).permute(0, 3, 1, 2)

    def by_torchcodec(path: Path) -> Tensor:
        from torchcodec.decoders import VideoDecoder

        decoder = VideoDecoder(str(path), num_ffmpeg_threads=1, seek_mode="exact")
        return decoder.get_frames_at(numbers(len(decoder))).data

    with tempfile.TemporaryDirectory() as folder:
        os.environ["PROVICO_HOME"] = folder
        library = Library(Path(folder))
        ways: dict[str, Callable[[Path], object]] = {
            "ours": lambda path: encoder.embed(path, num_clips=NUM_CLIPS, library=library),
            "torch and decord2": plain(by_decord),
            "torch and torchcodec": plain(by_torchcodec),
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        failed: dict[str, str] = {}
        for path in [paths[-1], *paths[:-1]]:  # the first warms up, and is left out below
            for name, embed in ways.items():
                if name in failed:
                    continue
                began = time.process_time()
                try:
                    embed(path)
                except Exception as error:  # whatever others may raise
                    failed[name] = f"{type(error).__name__}: {str(error)[:200]}"
                seconds[name].append(time.process_time() - began)
    report: dict[str, object] = {"videos": len(paths) - 1, "failed": failed}
    ours = float(np.sum(seconds["ours"][1:]))
    for name in [name for name in ways if name not in failed]:
        values = seconds[name][1:]
        report[name] = {
            "CPU milliseconds a video, mean": round(1e3 * float(np.mean(values)), 1),
            "median": round(1e3 * median(values), 1),
            "times ours": round(float(np.sum(values)) / ours, 2),
        }
    print(json.dumps(report, indent=1))
    options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
