"""Files that would take all memory are refused by name, whoever reads them, and the rest goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from provico.data.memory import MAX_STREAMS

from ..warm_processes import ForkServer, all_succeed
from .swollen import write_growing, write_line, write_many_references, write_many_streams, write_slow

HOSTILE = {
    "references.mp4": "takes more memory",
    "growing.ts": "takes more memory",
    "streams.mp4": f"over {MAX_STREAMS} streams",
    "line.gif": "32768 x 2 pixels",
    "day.mkv": "at most 30 clips per video",
}
RUN = """
import sys
from provico.cli import main
from provico.data import memory
from provico.embedding import long_videos
memory.DECODING_BYTES = 16 * 2**20  # instead of gigabytes, which take long to make and to decode
long_videos.MAX_TIMELINE_CLIPS = 30
main()
"""


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory, colour_videos: Path) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    for number, video in enumerate(sorted(colour_videos.rglob("*.mp4"))[:6]):
        shutil.copy(video, folder / f"{number}.mp4")
    write_many_references(folder / "references.mp4", 2560, 1440)
    write_growing(folder / "growing.ts", 3840, 2160)
    write_many_streams(folder / "streams.mp4", MAX_STREAMS + 1)
    write_line(folder / "line.gif")
    write_slow(folder / "day.mkv", 40, 40)
    write_slow(folder / "years.mkv", 10**9, 20)
    return folder


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("verb", ["index", "embed", "pretrain"])
def test_hostile_files_are_named_and_the_rest_is_read(
    verb: str, num_workers: int, videos: Path, shaded_encoder: Path, tmp_path: Path, fork_server: ForkServer
) -> None:
    options = {
        "index": ["--checkpoint", shaded_encoder, "--num-clips", "2"],
        "embed": ["--checkpoint", shaded_encoder, "--num-clips", "2"],
        "pretrain": [
            *("--recipe", "tiny", "--num-frames", "4", "--size", "32", "--dim", "8", "--epochs", "1"),
            *("--batch-size", "3", "--max-broken-share", "0.9", "--store", "none"),
        ],
    }[verb]
    out = tmp_path / ("embeddings.parquet" if verb == "embed" else "out")
    given = ["--out", out, "--num-workers", num_workers, *options, "--device", "cpu", "--json"]
    process = fork_server.start("-c", RUN, verb, videos, *given)
    all_succeed([process])
    said = json.loads(process.stdout)
    # Only an index looks at all of a long video.
    expected = {name: why for name, why in HOSTILE.items() if verb == "index" or name != "day.mkv"}
    if verb == "pretrain":
        assert said["num_broken"] == len(expected)
        return
    assert said["failed"].keys() == expected.keys()
    for name, why in expected.items():
        assert why in said["failed"][name]
