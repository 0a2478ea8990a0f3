"""A frozen network on a CPU, run by onnxruntime instead of torch for speed, with the same results.

A network that can `write_graph` switches at once. Another one is exported once, after enough clips that this
pays off. The file is cached with what ProViCo keeps between runs, under the hash of the network. Whenever it
is opened, both engines run a probe: if they differ by more than `TOLERANCE`, if onnxruntime is not installed,
or if the network cannot be exported, torch is used. So features are equal, and are cached as such.

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
"""Largest difference allowed on the probe, relative to torch's largest feature."""
WORTH_IT = 256
"""Number of clips or frames after which an export is expected to pay off."""
PIXELS_A_WEIGHT, LEAST_PIXELS = 1 / 16, 2**17
"""Pixels per forward pass: a small network is fastest if its activations stay in the processor's cache, a
large one if its weights are reused for many images."""
VERSION = 1
"""To be raised if a network of the same hash computes something else."""
_INPUT, _OUTPUT = "inputs", "features"


def open_session(path: Path) -> Any:
    """Open an ONNX file for inference with as many threads as torch."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    # Spinning threads would take the cores from torch.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@runtime_checkable
class LooksAtFrames(Protocol):
    """A network of clips that first processes single frames, which clips can share."""

    def frame_features(self, frames: Tensor) -> Tensor:
        """The features of each frame "frames channels height width", as "frames numbers"."""
        ...

    def of_frames(self, seen: Tensor) -> Tensor:
        """Features of clips, from those of their frames "clips time numbers"."""
        ...


@runtime_checkable
class WritesGraph(Protocol):
    """A network that can be written as an ONNX file without a slow export."""

    def write_graph(self, inputs: Tensor, path: Path) -> None:
        """Write the graph for such inputs."""
        ...


class Engine:
    """Runs a network by onnxruntime, as soon as that pays off and if the results are equal."""

    def __init__(self, network: nn.Module, hash: str) -> None:
        self.network, self.hash = network, hash
        self.reason: str | None = None
        """Why torch is used, once decided."""
        weights = sum(weight.numel() for weight in network.parameters())
        self._pixels_at_once = max(LEAST_PIXELS, round(PIXELS_A_WEIGHT * weights))
        self._num_seen = 0
        self._session: Any = None
        self._opened_for: tuple[object, ...] = ()

    @property
    def name(self) -> str:
        """The engine that ran the last inputs."""
        return "torch" if self._session is None else "onnxruntime"

    def __call__(self, inputs: Tensor) -> Tensor | None:
        """The features of inputs; None if torch must compute them."""
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
        """The state without the session, which belongs to one process."""
        return self.__dict__ | {"_session": None, "_opened_for": ()}

    def _open(self, inputs: Tensor) -> Any:
        """A verified session; None if there is none, or not yet."""
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
        except Exception as error:  # exporters and runtimes may raise anything
            reason = str(error).strip().partition("\n")[0][:200]
            return self._give_up(failure, f"it cannot be exported ({type(error).__name__}: {reason})")
        if not difference <= TOLERANCE:
            return self._give_up(failure, f"onnxruntime differs from torch by {difference:.1e}")
        return session

    def _give_up(self, failure: Path, reason: str) -> None:
        """Use torch, also in later runs."""
        self.reason = reason
        if failure.parent.is_dir():
            replace_text(failure, reason)

    def _difference(self, session: Any, inputs: Tensor) -> float:
        """The difference on a probe of another batch size than the export's, relative to the largest one."""
        generator = torch.Generator().manual_seed(0)
        probe = torch.randn(3, *inputs.shape[1:], generator=generator)
        with torch.no_grad():
            expected = self._looked_through()(probe)
        found = _run(session, probe)
        if found.shape != expected.shape:
            return float("inf")
        return float((found - expected).abs().max() / expected.abs().max())

    def _looked_through(self) -> nn.Module:
        """The exported part: the part that sees single frames if clips share them."""
        return _OfFrames(self.network) if isinstance(self.network, LooksAtFrames) else self.network

    def _path(self, inputs: Tensor) -> Path:
        """The path of the export, named by everything it depends on."""
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
    logger.setLevel(logging.ERROR)  # it warns about packages that are not needed
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
