"""Export of an encoder to a folder, which appears only when it is complete.

An ONNX file takes pixels and returns mean and log-variance of each clip. It is verified: the outputs of
onnxruntime and PyTorch must agree.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from provico.errors import ConfigError, OutputExistsError, ProvicoError
from provico.extras import require
from provico.files import replacing
from provico.models.backbones import hub
from provico.models.backbones.registry import is_local
from provico.models.encoder import CONFIG_NAME, Encoder

ExportFormat = Literal["safetensors", "onnx"]
ONNX_NAME = "encoder.onnx"
OUTPUTS = ("clip_mean", "clip_log_var")
"""Not plain `mean`: the exporter also uses that name for an inner node, which makes the file invalid."""

TOLERANCE = 1e-3
"""Largest difference allowed, relative to the largest output: summation orders differ in float32."""


def publish_encoder(encoder: Encoder, name: str, *, private: bool = False) -> str:
    """Publish an encoder on the Hugging Face Hub as OWNER/NAME; return the address of the commit.

    Weights, settings and the card are what `save_pretrained` writes. A login is needed (`hf auth login`, or a
    token in HF_TOKEN).
    """
    if is_local(encoder.config.backbone):
        raise ConfigError(
            f"The encoder needs the network {encoder.config.backbone}, which exists only on this machine. "
            "Pretrain with a public network, such as --backbone hf:OWNER/NAME."
        )
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "encoder"
        encoder.save_pretrained(folder, place=f"{hub.PREFIX}{name}")
        return hub.publish(folder, name, private=private)


def export_encoder(encoder: Encoder, folder: Path, *, format: ExportFormat = "safetensors") -> None:
    """Write `model.safetensors` or `encoder.onnx`, and `config.json` beside it, into a new folder.

    The ONNX file takes uint8 pixels and contains a frozen backbone; safetensors only name it.
    """
    if folder.exists():
        raise OutputExistsError(f"{folder} exists already. Choose another --out, or remove it first.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with replacing(folder) as partial:
        if format == "safetensors":
            encoder.save_pretrained(partial)
        else:
            partial.mkdir()
            # The exporter warns of packages that it does not need.
            logging.getLogger("torch.onnx").setLevel(logging.ERROR)
            export_onnx(encoder, partial / ONNX_NAME)
            (partial / CONFIG_NAME).write_text(encoder.config.to_json(), encoding="utf-8")


@dataclass(frozen=True)
class OnnxParity:
    """Differences of onnxruntime and PyTorch, relative to the largest value of each output."""

    mean: float
    log_var: float


class _PixelsToGaussian(nn.Module):
    """The part that is exported, with plain tensors as outputs."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(
        self, pixels: UInt8[Tensor, "clips time height width 3"]
    ) -> tuple[Float[Tensor, "clips dim"], Float[Tensor, "clips dim"]]:
        clips = self.encoder.encode_clips(pixels)
        return clips.mean, clips.log_var


def export_onnx(encoder: Encoder, path: Path) -> OnnxParity:
    """Write `path` for uint8 pixels (clips, time, height, width, 3), with any number of clips, and verify it.

    Inputs have the size and number of frames of the encoder's config. The outputs are `OUTPUTS`.
    """
    require("onnx", what="Export to ONNX")
    if path.exists():
        raise OutputExistsError(f"{path} exists already. Choose another name, or remove it first.")
    spec = encoder.config.input
    shape = (spec.num_frames, spec.size, spec.size, 3)
    example = torch.randint(0, 256, (2, *shape), dtype=torch.uint8)
    was_training = encoder.training
    network = _PixelsToGaussian(encoder).eval()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            # The exporter warns about its own use of deprecated parts of PyTorch.
            warnings.simplefilter("ignore", category=Warning)
            torch.onnx.export(
                network,
                (example,),
                path,
                input_names=["pixels"],
                output_names=list(OUTPUTS),
                dynamic_shapes={"pixels": {0: torch.export.Dim("clips")}},
                dynamo=True,
                external_data=False,
                verbose=False,
            )
        parity = _compare(network, path, torch.randint(0, 256, (3, *shape), dtype=torch.uint8))
        difference = max(parity.mean, parity.log_var)
        if not difference <= TOLERANCE:
            raise ProvicoError(
                f"onnxruntime and PyTorch differ by {difference:.1e} of the largest value, more than the "
                f"{TOLERANCE:.0e} allowed, so {path} was removed. Try another version of onnxruntime."
            )
    except BaseException:
        path.unlink(missing_ok=True)  # remove an unverified file
        raise
    finally:
        encoder.train(was_training)
    return parity


def _compare(network: nn.Module, path: Path, pixels: Tensor) -> OnnxParity:
    import onnxruntime  # an optional package, found above

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    outputs = session.run(list(OUTPUTS), {"pixels": pixels.numpy()})
    with torch.no_grad():
        expected = network(pixels)
    differences = [
        float((torch.from_numpy(found) - wanted).abs().max() / wanted.abs().max())
        for found, wanted in zip(outputs, expected, strict=True)
    ]
    return OnnxParity(mean=differences[0], log_var=differences[1])
