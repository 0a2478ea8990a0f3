"""Files of four and of twenty-four hours in bounded memory: only what is kept of each clip may grow.

Each command runs in a process of its own, with the memory limits of commands. What it needs at most is
compared between the two files, so that what torch and the engine take by themselves does not count.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from provico.data.frames.encode import write_video
from provico.models import Encoder, EncoderConfig, InputSpec

from ..warm_processes import ForkServer, all_succeed

DIM = 8
SQUARE = np.ones((8, 8, 1), np.uint8)
CLIPS = {hours: 3600 * hours for hours in (4, 24)}
KEPT = DIM * (4 + 4 + 8) + 8 * (2 + 5)
"""Bytes a clip in the index: mean and log-variance, the mean of the samples; its times, their spread."""
MOST_BYTES = {
    # 12 of each frame in its index, and copies of that.
    "scan": 128,
    # LanceDB takes several times what it writes.
    "index": 8 * KEPT,
    # Here every segment is near to the query, and all of them are looked at from both sides.
    "search": 3600,
    # The index of the file and that of what was cut out.
    "cut": 256,
}
RUN = """
import resource, sys
from provico.cli import main
try:
    main()
finally:
    used = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(1024 * used, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """A frame a second, a keyframe every ten minutes, a new picture every half minute, and a white end."""
    rng, paths = np.random.default_rng(0), {}
    pictures = rng.integers(0, 160, (2880, 3, 4, 3), np.uint8)
    for hours, num_frames in CLIPS.items():
        paths[hours] = tmp_path_factory.mktemp("long") / f"{hours}.mp4"
        shown = [*pictures[: num_frames // 30 - 1], np.full_like(pictures[0], 255)]
        frames = (np.kron(shown[number // 30], SQUARE) for number in range(num_frames))
        write_video(paths[hours], frames, fps=1, gop_size=600, encoder_options={"preset": "ultrafast"})
    return paths


@pytest.fixture(scope="module")
def small_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("encoder") / "encoder"
    spec = InputSpec(size=16, num_frames=2, frame_step=1)
    Encoder(EncoderConfig.for_backbone("tiny", dim=DIM, input=spec)).eval().save_pretrained(folder)
    return folder


def test_a_day_takes_no_more_memory_than_is_kept_of_its_clips(
    day: dict[int, Path], small_encoder: Path, tmp_path: Path, fork_server: ForkServer
) -> None:
    peaks: dict[str, dict[int, int]] = {verb: {} for verb in MOST_BYTES}
    for hours, path in day.items():
        out = tmp_path / str(hours)
        last = f"{hours - 1}:59:50-{hours}:00:00"
        commands = {
            "scan": ("scan", path.parent, "--out", out / "scan", "--json"),
            "index": (
                *("index", path.parent, "--checkpoint", small_encoder, "--out", out / "index"),
                *("--device", "cpu", "--json"),
            ),
            "search": (
                *("search", out / "index", path, "--span", last, "--exclude-same", "nothing"),
                *("--max-chance", "inf", "--json"),
            ),
            "cut": ("cut", path, "--span", f"0:10:00-{hours}:00:00", "--out", out / "cut.mp4", "--json"),
        }
        said = {}
        for verb, command in commands.items():
            process = fork_server.start("-c", RUN, *command)
            all_succeed([process])
            said[verb] = json.loads(process.stdout)
            peaks[verb][hours] = int(process.stderr.split()[-1])
        assert said["scan"]["frames"] == CLIPS[hours]
        assert said["index"]["num_added"] == 1
        (hit,) = said["search"][0]["hits"]
        assert hit["id"] == path.name
        assert hit["moment"]["end_seconds"] > CLIPS[hours] - 30
        assert said["cut"]["num_frames"] == CLIPS[hours] - 600
        assert said["cut"]["is_copy"]
    more_clips = CLIPS[24] - CLIPS[4]
    for verb, most in MOST_BYTES.items():
        assert (peaks[verb][24] - peaks[verb][4]) / more_clips < most, verb
