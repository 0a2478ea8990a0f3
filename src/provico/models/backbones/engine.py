"""Frozen networks on a CPU, by onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


def open_session(path: Path) -> Any:
    """An ONNX file, ready to run, with as many threads as torch has."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    # Threads that wait in a loop would take the cores from torch.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
