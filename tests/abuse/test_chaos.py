"""Long work that is killed, has a full disk or a mad clock ends as undisturbed, or in one sentence."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from provico.data.catalog import open_catalog
from provico.models import Encoder
from provico.search.index import Index

from ..warm_processes import ForkServer
from .chaos import CLOCK, FULL_DISK, PRETRAIN, Chaos, said_once, same_embeddings, same_index, same_run
from .open_chaos import OpenChaos


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


def test_disturbed_pretraining_comes_to_the_same(
    colour_videos: Path, tmp_path: Path, fork_server: ForkServer
) -> None:
    """A full disk, a kill, a clock that jumps: losses and weights are those of an undisturbed run."""
    videos = Path(shutil.copytree(colour_videos / "test", tmp_path / "videos"))
    chaos = Chaos(fork_server, tmp_path / "home", random.Random())
    peaceful, out = tmp_path / "peaceful", tmp_path / "disturbed"
    seconds = chaos.in_peace(*PRETRAIN, videos, "--out", peaceful)
    words = (*PRETRAIN, videos, "--num-workers", "0", "--out", out)
    full = chaos.start("-c", FULL_DISK.format(most=20_000), *words)
    assert full.wait() == 2, full.stderr
    said_once(full.stderr)
    chaos.disturbed_run(seconds, 2, out, *PRETRAIN, videos)
    same_run(out, peaceful)


def test_a_folder_that_is_opened_used_and_killed(
    colour_videos: Path, shaded_encoder: Path, tmp_path: Path, fork_server: ForkServer
) -> None:
    """What the page has answered as done is done, whatever was killed when; and the work ends as in peace."""
    videos, arriving = tmp_path / "videos", tmp_path / "arriving"
    for number, video in enumerate(sorted(colour_videos.rglob("*.mp4"))[:12]):
        place = arriving if number < 4 else videos
        place.mkdir(exist_ok=True)
        shutil.copy(video, place / f"{number}.mp4")
    words = ["--watch", "--checkpoint", shaded_encoder]
    chaos = OpenChaos(fork_server, videos, [*arriving.iterdir()], tmp_path / "home", random.Random(1), *words)
    for _ in range(3):
        chaos.round(8.0)
    found = chaos.finish()
    peaceful = Index.create(tmp_path / "peaceful", Encoder.from_pretrained(shaded_encoder), num_clips=10)
    peaceful.add(open_catalog(videos))
    same_index(found.path, peaceful.path)
