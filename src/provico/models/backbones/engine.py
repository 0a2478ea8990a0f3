"""A frozen network on a CPU, by onnxruntime instead of torch: the same numbers in less time.

A network that can `write_graph` does so at once. Another one is exported once, when so many clips have gone
through it that this is worth its time. The file is kept beside what else is remembered between runs, under
the hash of the network. Whenever it is opened, a probe goes through both: where they differ by more than
`TOLERANCE`, or where onnxruntime is not installed, or the network cannot be exported, torch goes on. So
features are the same, and are remembered as such.

PROVICO_ENGINE=torch turns it off; PROVICO_ENGINE=onnxruntime exports before the first clip.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import warnings
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from provico.extras import missing
from provico.files import home_folder, replace_text, replacing

VARIABLE = "PROVICO_ENGINE"
TOLERANCE = 1e-4
"""Largest difference allowed on the probe, relative to the largest feature of torch."""
WORTH_IT = 256
"""Clips or frames after which an export is expected to pay."""
PIXELS_A_WEIGHT, LEAST_PIXELS = 1 / 16, 2**17
"""How many pixels go through a network together: a small one is fastest where what it computes stays in the
processor's cache, a large one where its weights are read for many images."""
VERSION = 1
"""Raised when a network of the same hash comes to compute something else."""
_INPUT, _OUTPUT = "inputs", "features"


def open_session(path: Path) -> Any:
    """An ONNX file, ready to run, with as many threads as torch has."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    # Threads that wait in a loop would take the cores from torch.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@runtime_checkable
class LooksAtFrames(Protocol):
    """A network of clips that sees each frame by itself first, so that clips can share what is seen."""

    def frame_features(self, frames: Tensor) -> Tensor:
        """What is seen of each frame "frames channels height width", as "frames numbers"."""
        ...

    def of_frames(self, seen: Tensor) -> Tensor:
        """Features of clips, from what was seen of their frames "clips time numbers"."""
        ...


@runtime_checkable
class WritesGraph(Protocol):
    """A network that can be written as an ONNX file without an export, which takes half a minute."""

    def write_graph(self, inputs: Tensor, path: Path) -> None:
        """Write what is run on such inputs."""
        ...


class Engine:
    """Runs a network by onnxruntime, as soon as that pays and as long as it is equal."""

    def __init__(self, network: nn.Module, hash: str) -> None:
        self.network, self.hash = network, hash
        self.reason: str | None = None
        """Why torch is used, once that is decided."""
        weights = sum(weight.numel() for weight in network.parameters())
        self._pixels_at_once = max(LEAST_PIXELS, round(PIXELS_A_WEIGHT * weights))
        self._num_seen = 0
        self._session: Any = None
        self._opened_for: tuple[object, ...] = ()

    @property
    def name(self) -> str:
        """What the last inputs were run by."""
        return "torch" if self._session is None else "onnxruntime"

    def __call__(self, inputs: Tensor) -> Tensor | None:
        """The features of inputs; None if torch is to compute them."""
        if self.reason is not None or inputs.device.type != "cpu" or inputs.dtype != torch.float32:
            return None
        if torch.is_autocast_enabled("cpu"):
            return None
        wanted = (tuple(inputs.shape[1:]), torch.get_num_threads())
        if self._opened_for != wanted:
            self._session = self._open(inputs)
            self._opened_for = wanted if self._session is not None else ()
        if self._session is None:
            self._num_seen += inputs.shape[0]
            return None
        size = max(1, self._pixels_at_once // inputs[0, 0].numel()) if len(inputs) else 1
        return torch.cat([_run(self._session, part) for part in torch.split(inputs, size)])

    def __getstate__(self) -> dict[str, Any]:
        """Without the session, which belongs to one process."""
        return self.__dict__ | {"_session": None, "_opened_for": ()}

    def _open(self, inputs: Tensor) -> Any:
        """A session that was seen to be equal; None if there is none, or not yet."""
        asked = os.environ.get(VARIABLE, "auto")
        if asked == "torch":
            return None
        writes_graph = isinstance(self.network, WritesGraph)
        if absent := missing("onnx"):
            self.reason = f"{absent[0]} is not installed"
            return None
        path = self._path(inputs)
        failure = path.with_suffix(".failed")
        if failure.is_file():
            self.reason = failure.read_text(encoding="utf-8")
            return None
        is_due = writes_graph or asked == "onnxruntime" or self._num_seen >= WORTH_IT
        if not path.is_file() and not is_due:
            return None
        try:
            if not path.is_file():
                path.parent.mkdir(parents=True, exist_ok=True)
                with replacing(path) as partial:
                    if isinstance(self.network, WritesGraph):
                        self.network.write_graph(inputs, partial)
                    else:
                        export(self._looked_through(), inputs, partial)
            session = open_session(path)
            difference = self._difference(session, inputs)
        except Exception as error:  # whatever exporters and runtimes may raise
            reason = str(error).strip().partition("\n")[0][:200]
            return self._give_up(failure, f"it cannot be exported ({type(error).__name__}: {reason})")
        if not difference <= TOLERANCE:
            return self._give_up(failure, f"onnxruntime differs from torch by {difference:.1e}")
        return session

    def _give_up(self, failure: Path, reason: str) -> None:
        """Stay with torch, in later runs too."""
        self.reason = reason
        if failure.parent.is_dir():
            replace_text(failure, reason)

    def _difference(self, session: Any, inputs: Tensor) -> float:
        """On a probe of another batch size than that of the export, relative to the largest feature."""
        generator = torch.Generator().manual_seed(0)
        probe = torch.randn(3, *inputs.shape[1:], generator=generator)
        with torch.no_grad():
            expected = self._looked_through()(probe)
        found = _run(session, probe)
        if found.shape != expected.shape:
            return float("inf")
        return float((found - expected).abs().max() / expected.abs().max())

    def _looked_through(self) -> nn.Module:
        """What is run: the part that sees single frames, where clips share them."""
        return _OfFrames(self.network) if isinstance(self.network, LooksAtFrames) else self.network

    def _path(self, inputs: Tensor) -> Path:
        """Where the export is kept: named by all that it depends on."""
        shape = "x".join(map(str, inputs.shape[1:]))
        versions = "-".join(importlib.metadata.version(name) for name in ("torch", "onnxruntime"))
        return home_folder() / "engines" / f"{self.hash}-{shape}-{VERSION}-{versions}.onnx"


class _OfFrames(nn.Module):
    """`frame_features` as a network."""

    def __init__(self, network: LooksAtFrames) -> None:
        super().__init__()
        self.network = network

    def forward(self, frames: Tensor) -> Tensor:
        return self.network.frame_features(frames)


def export(network: nn.Module, inputs: Tensor, path: Path) -> None:
    """Write a network as an ONNX file for any number of such inputs."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns of packages that it does not need
    try:
        with torch.no_grad(), warnings.catch_warnings():
            # The exporter warns about its own use of deprecated parts of PyTorch.
            warnings.simplefilter("ignore", category=Warning)
            torch.onnx.export(
                network,
                (torch.zeros(2, *inputs.shape[1:]),),
                path,
                input_names=[_INPUT],
                output_names=[_OUTPUT],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    finally:
        logger.setLevel(level)


def _run(session: Any, inputs: Tensor) -> Tensor:
    (found,) = session.run([_OUTPUT], {_INPUT: inputs.contiguous().numpy()})
    return torch.from_numpy(found)
