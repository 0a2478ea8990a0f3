"""A small collection, its index and a real server, made once; and the application in this process."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from provico.data.catalog import open_catalog
from provico.data.frames.encode import write_video
from provico.data.library import Library
from provico.explorer.app import create_app
from provico.explorer.settings import ExplorerSettings
from provico.models import Encoder, EncoderConfig, InputSpec
from provico.search.index import Index

from .. import mixed_folder
from ..warm_processes import ForkServer, WarmProcess
from .found_duplicates import keep_duplicates, same
from .worded import make_worded_index

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of a successor of httpx, which we do not need
    from starlette.testclient import TestClient

ADDRESS = "http://127.0.0.1"
COLOURS = {"Rain": (40, 80, 200), "Fire": (220, 90, 30), "Grass": (60, 170, 60)}
VIDEOS_PER_CLASS = 4
ODD_NAME = "Rain/50% off & more #1?.mp4"
FPS, SECONDS = 12, 3


def draw(colour: tuple[int, int, int], seed: int, *, num_frames: int = FPS * SECONDS) -> np.ndarray:
    """A bright bar that wanders over a noisy ground: something to see, and to seek in."""
    rng = np.random.default_rng(seed)
    frames = np.clip(rng.normal(colour, 12, (num_frames, 72, 96, 3)), 0, 255)
    for number, frame in enumerate(frames):
        left = (7 * seed + 3 * number) % 84
        frame[10 + 4 * seed % 40 :, left : left + 12] = 240
    return frames.astype(np.uint8)


@dataclass(frozen=True)
class Collection:
    """What is served."""

    videos: Path
    index: Path
    runs: Path
    home: Path


@pytest.fixture(scope="session")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    """Twelve videos of three classes, an untrained encoder, and a run that looks like one."""
    folder = tmp_path_factory.mktemp("explorer")
    videos = folder / "videos"
    seed = 0
    for label, colour in COLOURS.items():
        (videos / label).mkdir(parents=True)
        for number in range(VIDEOS_PER_CLASS):
            is_odd = (label, number) == ("Rain", 0)
            path = videos / (ODD_NAME if is_odd else f"{label}/{number}.mp4")
            seed += 1
            write_video(path, draw(colour, seed), fps=FPS, gop_size=6)
    torch.manual_seed(0)
    spec = InputSpec(size=32, num_frames=4, frame_step=2)
    encoder = Encoder(EncoderConfig.for_backbone("tiny", dim=8, input=spec)).eval()
    home = folder / "home"
    index = Index.create(folder / "index", encoder, num_clips=4, num_samples=4)
    index.add(open_catalog(videos), library=Library(home))
    run = folder / "runs" / "first"
    run.mkdir(parents=True)
    (run / "config.json").write_text(
        json.dumps({"optimiser": {"epochs": 4}, "objective": {"method": "provico"}})
    )
    records = [{"step": 5 * n, "epoch": n / 2, "loss": 9 / (1 + n), "health/x": None} for n in range(7)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (run / "report.html").write_text("<!doctype html><title>run</title><p>The story of a run.</p>")
    return Collection(videos, folder / "index", folder / "runs", home)


@pytest.fixture(scope="session")
def worded_index(collection: Collection, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index whose encoder knows words."""
    return make_worded_index(tmp_path_factory.mktemp("worded"), collection.home)


@pytest.fixture(scope="session")
def mixed() -> ModuleType:
    """What writes a folder as people have it, and says what is in it."""
    return mixed_folder


@dataclass(frozen=True)
class Server:
    """A running `provico serve`."""

    url: str
    process: WarmProcess
    index: Path

    def reset_curation(self) -> None:
        """Forget all decisions."""
        shutil.rmtree(self.index / "curation", ignore_errors=True)

    def reset_judgements(self) -> None:
        """Forget all judgements."""
        for name in ("judgements.csv", "lots.json", "calibration.json"):
            (self.index / name).unlink(missing_ok=True)


@contextmanager
def serving(
    fork_server: ForkServer,
    collection: Collection,
    *options: str,
    index: Path | None = None,
    folder: Path | None = None,
) -> Iterator[Server]:
    """The real command on a free port, ended by Ctrl-C."""
    environment = {**os.environ, "PROVICO_HOME": str(collection.home)}
    index = index or collection.index
    command = ["-m", "provico", "serve", index, "--port", "0", "--run", collection.runs, *options]
    process = fork_server.start(*command, environment=environment, folder=folder)
    try:
        while not (said := process.stderr).endswith("\n"):
            assert process.poll() is None, said
            time.sleep(0.05)
        found = re.search(r"http://\S+", said)
        assert found, said
        yield Server(found.group(), process, index)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait()


@pytest.fixture(scope="session")
def server(fork_server: ForkServer, collection: Collection) -> Iterator[Server]:
    """One server for all tests that change nothing but decisions."""
    with serving(fork_server, collection) as running:
        yield running


@pytest.fixture
def start_server(fork_server: ForkServer, collection: Collection) -> Iterator[Callable[..., Server]]:
    """Starts servers with other options, and ends them after the test."""
    with ExitStack() as stack:
        yield lambda *options, **others: stack.enter_context(
            serving(fork_server, collection, *options, **others)
        )


def open_app(collection: Collection, curation: Path, **options: object) -> TestClient:
    """The application in this process; it has as much time as it needs on a busy machine."""
    values = {"index": collection.index, "runs": (collection.runs,), "curation": curation}
    values |= {"upload_seconds": 600.0, "frame_seconds": 600.0}
    app = create_app(ExplorerSettings(**values | options))
    return TestClient(app, base_url=ADDRESS, raise_server_exceptions=False, follow_redirects=False)


@pytest.fixture
def open_client(collection: Collection, tmp_path: Path) -> Iterator[Callable[..., TestClient]]:
    """Opens the application with other options, and closes it after the test."""
    with ExitStack() as stack:
        folder = tmp_path / "curation"
        yield lambda **options: stack.enter_context(open_app(collection, **{"curation": folder, **options}))


@pytest.fixture
def client(open_client: Callable[..., TestClient]) -> TestClient:
    """For tests that decide something."""
    return open_client()


@pytest.fixture(scope="session")
def shared_client(collection: Collection, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """For tests that only look; its child processes are started once."""
    with open_app(collection, tmp_path_factory.mktemp("looking") / "curation") as opened:
        yield opened


@pytest.fixture
def keep_pair() -> Callable[[Path, str, str], Path]:
    """Keep two videos as duplicates with an index; returns the file."""
    return lambda index, first, second: keep_duplicates(index, same(first, second))
