"""Long work that is killed, has a full disk or a mad clock ends as undisturbed, or in one sentence."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ..warm_processes import ForkServer
from .chaos import CLOCK, FULL_DISK, Chaos, said_once, same_embeddings, same_index


@pytest.mark.parametrize(("verb", "same"), [("index", same_index), ("embed", same_embeddings)])
def test_disturbed_work_comes_to_the_same(
    verb: str,
    same: Callable[[Path, Path], None],
    colour_videos: Path,
    shaded_encoder: Path,
    tmp_path: Path,
    fork_server: ForkServer,
) -> None:
    videos = Path(shutil.copytree(colour_videos / "test", tmp_path / "videos"))
    ending = ".parquet" if verb == "embed" else ""
    chaos = Chaos(fork_server, tmp_path / "home", random.Random())
    words = [verb, videos, "--checkpoint", shaded_encoder, "--num-clips", "2", "--out"]
    peaceful, out = tmp_path / f"peaceful{ending}", tmp_path / f"disturbed{ending}"
    seconds = chaos.in_peace(*words, peaceful)

    chaos.home = tmp_path / "other-home"
    full = chaos.start("-c", FULL_DISK.format(most=20_000), *words, out)
    assert full.wait() == 2, full.stderr
    said_once(full.stderr)
    chaos.disturbed(seconds, 2, *words, out)
    same(out, peaceful)

    # Files that seem to be of another century, and a clock that says anything, change nothing.
    for number, video in enumerate(sorted(videos.rglob("*.mp4"))):
        os.utime(video, (number * 4e8, number * 4e8))
    mad = chaos.start("-c", CLOCK, *words, out)
    assert mad.wait() == 0, mad.stderr
    same(out, peaceful)
