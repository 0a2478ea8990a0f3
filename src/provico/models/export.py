"""An encoder written for use elsewhere: a folder that appears only when it is complete."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

from provico.errors import OutputExistsError
from provico.files import replacing
from provico.models.encoder import CONFIG_NAME, Encoder
from provico.models.onnx import export_onnx

Format = Literal["safetensors", "onnx"]
ONNX_NAME = "encoder.onnx"


def export_encoder(encoder: Encoder, folder: Path, *, format: Format = "safetensors") -> None:
    """Write `model.safetensors` or `encoder.onnx`, and `config.json` beside it, into a new folder.

    The ONNX file takes uint8 pixels and has a frozen backbone inside, too; the safetensors only name it.
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
