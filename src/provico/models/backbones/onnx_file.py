"""Networks as ONNX files: `network.onnx`, with one input for images or clips.

The file declares its input: (batch, 3, height, width) for images, or with a time axis for clips; channels may
come last; float32 or uint8. Undeclared sizes default to 224 pixels and 16 frames. The normalisation of pixels
is read from a `preprocessor_config.json` beside the file or one folder above, as in published networks; the
default is that of ImageNet. uint8 input is passed as decoded.
"""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from provico.defaults import NUM_FRAMES
from provico.errors import ConfigError
from provico.extras import require
from provico.models.backbones.changes import LookAndChange, Maps, as_maps, over_frames, probe_blocks
from provico.models.backbones.engine import open_session
from provico.models.backbones.frozen import FrozenBackbone, FrozenSpec
from provico.models.backbones.preprocessing import IMAGE_CONFIG, VIDEO_CONFIG, read_preprocessing
from provico.models.backbones.transformers_model import FRAME_STEP, FRAMES
from provico.models.pixels import InputSpec

SUFFIX = ".onnx"
SIZE = 224
"""Default height and width for files that do not declare them."""
POOLED = ("pooler_output", "image_embeds", "embedding", "features")
"""Names of outputs that are used as the pooled features, if there are several."""
_TYPES = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8}
_AS_DECODED = ((0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255))  # keeps pixels as values from 0 to 255


@dataclasses.dataclass(frozen=True)
class OnnxInput:
    """The input of a file."""

    name: str
    type: str
    axes: str
    """The order of its axes: n batch, t time, c channels, h, w."""
    sizes: dict[str, int]
    """The sizes of the declared axes."""

    @property
    def takes(self) -> str:
        """The accepted input, in words."""
        frames = f"{self.sizes.get('t', 'any number of')} frames" if "t" in self.axes else "single frames"
        size = " x ".join(str(self.sizes.get(axis, "any")) for axis in "hw")
        return f"{frames} of {size} pixels"


class OnnxNetwork(LookAndChange):
    """An ONNX file as a backbone, which runs on the CPU."""

    def __init__(self, session: Any, signature: OnnxInput) -> None:
        super().__init__()
        self.session, self.signature = session, signature
        self.sees_pictures = "t" not in signature.axes

    def look(
        self, clips: Float[Tensor, "clips time 3 height width"]
    ) -> tuple[Float[Tensor, "clips feature"], Maps | None]:
        """Pooled features, from the output that has them or as the mean over positions."""
        axes = self.signature.axes
        inputs = clips if "t" in axes else clips.flatten(0, 1)
        order = "ntchw" if "t" in axes else "nchw"
        inputs = inputs.permute([order.index(axis) for axis in axes])
        outputs = [found.to(clips.device) for found in self._run(inputs.cpu())]
        names = [output.name for output in self.session.get_outputs()]
        pooled = next((found for name, found in zip(names, outputs, strict=True) if name in POOLED), None)
        pooled = next((found for found in outputs if found.ndim == 2), None) if pooled is None else pooled
        maps = next((found for found in outputs if found.ndim in (3, 4)), None)
        if pooled is None:
            if maps is None:
                shapes = ", ".join(str(tuple(found.shape)) for found in outputs)
                raise ValueError(f"its outputs are {shapes}, but vectors, tokens or maps are needed")
            pooled = maps.mean(dim=1) if maps.ndim == 3 else maps.mean(dim=(2, 3))
        if "t" in axes:
            return pooled.float(), None  # it is unknown whether its tokens run along time
        maps = None if maps is None else as_maps(maps.float(), clips)
        return over_frames(pooled.float(), clips), maps

    def _run(self, inputs: Tensor) -> list[Tensor]:
        kind, size = _TYPES[self.signature.type], self.signature.sizes.get("n")
        if kind is np.uint8:
            inputs = inputs.round().clamp(0, 255).to(torch.uint8)
        parts = []
        for part in torch.split(inputs, size or max(1, len(inputs))):
            # A file with a fixed batch size is padded with the first image.
            more = 0 if size is None else size - len(part)
            filled = torch.cat([part, part[:1].expand(more, *part.shape[1:])])
            found = self.session.run(None, {self.signature.name: np.ascontiguousarray(filled.numpy())})
            parts.append([torch.from_numpy(one)[: len(part)] for one in found])
        return [torch.cat(outputs) for outputs in zip(*parts, strict=True)]


def made_for(name: str) -> InputSpec:
    """The clips that the file expects."""
    signature = _signature(_open(name), name)
    is_clip, size = "t" in signature.axes, signature.sizes.get("h")
    num_frames = signature.sizes.get("t", NUM_FRAMES) if is_clip else FRAMES
    frame_step = 2 if is_clip else FRAME_STEP
    path = Path(name).expanduser()
    for folder in (path.parent, path.parent.parent):
        if (folder / IMAGE_CONFIG).is_file() or (folder / VIDEO_CONFIG).is_file():
            said = read_preprocessing(folder, num_frames=num_frames, frame_step=frame_step, called=name)
            said = said if size is None else said.changed(size=size)
            break
    else:
        said = InputSpec(size=size or SIZE, num_frames=num_frames, frame_step=frame_step)
    if signature.type == "tensor(uint8)":
        said = dataclasses.replace(said, pixel_mean=_AS_DECODED[0], pixel_std=_AS_DECODED[1])
    return said


def open_file(name: str, clips: InputSpec, frozen: FrozenSpec | None = None) -> FrozenBackbone:
    """Open the network in an ONNX file."""
    session = _open(name)
    signature = _signature(session, name)
    if clips.motion:
        raise ConfigError(f"{name} takes frames, not their differences. Leave out --motion.")
    network = OnnxNetwork(session, signature)
    spec = probe_blocks(network, clips, called=name, takes=signature.takes)
    return FrozenBackbone(network, spec, hash=file_hash(Path(name).expanduser()))


def _open(name: str) -> Any:
    require("onnx", what=name)
    path = Path(name).expanduser()
    if not path.is_file():
        raise ConfigError(f"There is no file {name}. Give the path of an ONNX file, or another --backbone.")
    try:
        return open_session(path)
    except Exception as error:  # third-party code may raise anything
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"{name} cannot be opened as an ONNX file ({reason}).") from error


def _signature(session: Any, name: str) -> OnnxInput:
    inputs = session.get_inputs()
    if len(inputs) != 1:
        found = ", ".join(one.name for one in inputs)
        raise ConfigError(f"{name} has the inputs {found}, but one input for images or clips is needed.")
    (one,) = inputs
    axes = _axes(one.shape)
    if axes is None or one.type not in _TYPES:
        raise ConfigError(
            f"The input of {name} is {one.type} of shape {one.shape}, but an image (batch, 3, height, width) "
            "or a clip (batch, 3, time, height, width), with the channels in any place, of float32 or uint8 "
            "is needed."
        )
    sizes = {axis: size for axis, size in zip(axes, one.shape, strict=True) if isinstance(size, int)}
    if sizes.get("h", 0) != sizes.get("w", 0):
        raise ConfigError(f"The input of {name} has the shape {one.shape}, but square frames are needed.")
    return OnnxInput(one.name, one.type, axes, sizes)


def _axes(shape: list[Any]) -> str | None:
    """The order of the axes, inferred from the position of the three channels."""
    orders = {4: ("nchw", "nhwc"), 5: ("ncthw", "ntchw", "nthwc")}.get(len(shape), ())
    found = [order for order in orders if shape[order.index("c")] == 3]
    return found[0] if found else None


def file_hash(path: Path) -> str:
    """The hash of a file, sixteen hex digits, including its external files of weights."""
    import onnx

    digest = hashlib.sha256()
    graph = onnx.load(str(path), load_external_data=False).graph
    outside = {
        entry.value
        for tensor in graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    for file in (path, *(path.parent / location for location in sorted(outside))):
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:16]
