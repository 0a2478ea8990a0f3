"""Fixtures shared by all tests.

What they need is imported in them: pytest also reads this file in the process that only hands out tests.
"""

from __future__ import annotations

import fcntl
import gc
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from .warm_processes import ForkServer

if TYPE_CHECKING:
    from provico.data.library import Library
    from provico.embedding.embeddings import Embeddings
    from provico.models import Encoder

# Two OpenMP threads per process are many times slower than one when tests run in parallel, also in the
# processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Some virtual machines announce the matrix unit AMX and die of "illegal instruction" when bfloat16 uses it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

# An export takes longer than what most tests compute with it, and each test has a home of its own.
os.environ.setdefault("PROVICO_ENGINE", "torch")

# No test asks the Hugging Face Hub for anything; read when huggingface_hub is first imported.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# How long an example takes depends on what else the machine does.
settings.register_profile("provico", deadline=None, max_examples=20)
settings.load_profile("provico")


# What the tests import stays: to look through it for garbage again and again takes a tenth of all imports,
# and later some of every test.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Also where the environment says otherwise."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what ProViCo remembers between runs away from the user's own cache."""
    monkeypatch.setenv("PROVICO_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all test processes of this run."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def made_once(shared_folder: Path) -> Callable[[str, Callable[[Path], object]], Path]:
    """Makes a folder for all test processes of this run; no test may change what is in it.

    The process that needs it first makes it, and the others wait.
    """

    def made(name: str, make: Callable[[Path], object]) -> Path:
        folder, done = shared_folder / name, shared_folder / f"{name}.done"
        with (shared_folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                make(folder)
                done.touch()
        return folder

    return made


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Starts processes in which torch is there already."""
    server = ForkServer(tmp_path_factory.mktemp("processes"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def demo_set(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """Two classes of nine videos each: in every split twelve to learn from and six to test on."""
    from .short_demo_set import write_short_demo_set

    return made_once("demo-set", lambda out: write_short_demo_set(out, num_classes=2, videos_per_class=9))


@pytest.fixture(scope="module")
def without_charts() -> Iterator[Callable[..., str | None]]:
    """Runs write their page without its charts, which take longer to draw than a small run to train.

    Gives the function that draws them, to those that want them nevertheless.
    """
    from provico.training import report

    from .short_runs import no_chart

    drawn = report._draw
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "_draw", no_chart)
        yield drawn


@pytest.fixture(scope="session", autouse=True)
def _short_last_step() -> Iterator[None]:
    """Runs end with a short last step."""
    from provico.training import variance

    from .short_runs import SHORT_LAST_STEP

    with pytest.MonkeyPatch.context() as patch:
        for name, value in SHORT_LAST_STEP.items():
            patch.setattr(variance, name, value)
        yield


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real videos, which is never part of the repository."""
    here = os.environ.get("PROVICO_DATA")
    folder = Path(here) if here else Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real videos at {folder}; set PROVICO_DATA to their folder to run this test")
    return folder


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """What is remembered of videos, for all tests of a file."""
    from provico.data.library import Library

    return Library(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session")
def make_encoder() -> Callable[..., Encoder]:
    """Make a small encoder without training; each seed gives its own."""
    import torch

    from provico.models import Encoder, EncoderConfig, InputSpec

    def make(seed: int = 0) -> Encoder:
        torch.manual_seed(seed)
        spec = InputSpec(size=32, num_frames=4, frame_step=2)
        return Encoder(EncoderConfig.for_backbone("tiny", dim=8, input=spec)).eval()

    return make


# Not for the whole session: a test that changes it must not reach the tests of other files.
@pytest.fixture(scope="module")
def encoder(make_encoder: Callable[..., Encoder]) -> Encoder:
    return make_encoder()


@pytest.fixture(scope="session")
def colour_videos(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """Noise around the colour of the class: train/CLASS/0.mp4, train/CLASS/1.mp4 and test/CLASS/0.mp4."""
    import numpy as np

    from provico.data.frames.encode import write_video

    colours = {
        "black": (20, 20, 20),
        "blue": (40, 40, 200),
        "green": (40, 200, 40),
        "grey": (120, 120, 120),
        "red": (200, 40, 40),
        "yellow": (200, 200, 40),
    }

    def make(folder: Path) -> None:
        rng = np.random.default_rng(0)
        for name, colour in colours.items():
            for place in ("train/{}/0.mp4", "train/{}/1.mp4", "test/{}/0.mp4"):
                path = folder / place.format(name)
                path.parent.mkdir(parents=True, exist_ok=True)
                frames = rng.normal(colour, 30, size=(16, 40, 52, 3))
                write_video(path, np.clip(frames, 0, 255).astype(np.uint8))

    return made_once("colours", make)


@pytest.fixture(scope="session")
def shaded_videos(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """Class folders of ten videos of each of four colours; videos are darker in the first half."""
    import numpy as np

    from provico.data.frames.encode import write_video

    colours = {"blue": (70, 70, 150), "green": (70, 150, 70), "grey": (110, 110, 110), "red": (150, 70, 70)}

    def make(folder: Path) -> None:
        rng = np.random.default_rng(0)
        for name, colour in colours.items():
            (folder / name).mkdir(parents=True)
            for number in range(10):
                light = np.linspace(0.7, 1.3, 16)[:, None, None, None]
                shade = rng.normal(0, 30, size=3)
                frames = light * rng.normal(np.array(colour) + shade, 30, size=(16, 40, 52, 3))
                write_video(folder / name / f"{number}.mp4", np.clip(frames, 0, 255).astype(np.uint8), fps=8)

    return made_once("shades", make)


@pytest.fixture(scope="session")
def shaded_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder without training that tells colours apart well enough, as --checkpoint accepts it."""
    import torch

    from provico.models import Encoder, EncoderConfig, InputSpec

    torch.manual_seed(0)
    spec = InputSpec(size=32, num_frames=4, frame_step=1)
    folder = tmp_path_factory.mktemp("encoder") / "encoder"
    Encoder(EncoderConfig.for_backbone("tiny", dim=8, input=spec)).eval().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def make_embeddings() -> Callable[..., Embeddings]:
    """Random videos of which some share labels and groups; `prefix` tells the ids of two sets apart."""
    import torch

    from provico.embedding.embeddings import Embeddings
    from provico.probability.gaussian import Gaussian
    from provico.probability.mixture import Mixture

    def make(
        num_videos: int,
        *,
        seed: int,
        prefix: str = "video",
        num_labels: int = 3,
        num_clips: int = 2,
        dim: int = 4,
        log_var: float = -1.0,
        groups: Sequence[str | None] | None = None,
    ) -> Embeddings:
        generator = torch.Generator().manual_seed(seed)
        mean = torch.randn(num_videos, num_clips, dim, generator=generator)
        spread = torch.randn(num_videos, num_clips, dim, generator=generator)
        labels = torch.randint(num_labels, (num_videos,), generator=generator).tolist()
        return Embeddings(
            ids=tuple(f"{prefix}{number}" for number in range(num_videos)),
            videos=Mixture(Gaussian(mean, log_var + 0.3 * spread)),
            labels=tuple(f"class{label}" for label in labels),
            groups=tuple(groups or [None] * num_videos),
        )

    return make


@pytest.fixture(scope="session")
def object_store() -> Iterator[dict[str, str]]:
    """A server that speaks S3, and what the environment must say for it to be used."""
    import urllib.request

    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    urllib.request.urlopen(urllib.request.Request(f"{address}/videos", method="PUT")).close()  # a bucket
    yield {
        "AWS_ENDPOINT": address,
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    server.stop()
