"""Checkpoints: all that a run needs to go on as if it had never stopped.

A file appears under its name only when it is complete and on disk, so a crash at any moment leaves the
previous one. It holds tensors and plain values only, and is read as such.
"""

from __future__ import annotations

import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import torch

from provico.errors import WeightsError
from provico.files import ARCHIVE_ERRORS, remove_partials, replacing

_PATTERN = re.compile(r"step-(\d{9})\.pt")
_DAMAGE = (
    *ARCHIVE_ERRORS,
    pickle.UnpicklingError,
    LookupError,
    AttributeError,
    AssertionError,
    ArithmeticError,
)
"""What damaged bytes lead to in PyTorch."""


def save_checkpoint(folder: Path, state: dict[str, Any], *, step: int, keep: int) -> Path:
    """Write the checkpoint of a step; of the older ones the newest stay, `keep` in all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{step:09d}.pt"
    # To a file, not to a path: PyTorch would put the name, which is another one each time, into its content.
    with replacing(path) as partial, partial.open("wb") as file:
        torch.save(state, file)
    for old in checkpoints(folder)[:-keep]:
        old.unlink()
    remove_partials(folder)
    return path


def checkpoints(folder: Path) -> list[Path]:
    """The complete checkpoints in a folder, oldest first."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if _PATTERN.fullmatch(path.name))


def load_checkpoint(path: Path) -> dict[str, Any]:
    """What was saved; a file that holds anything but tensors and plain values is refused."""
    try:
        with warnings.catch_warnings():
            # What is refused below need not be warned of before.
            warnings.filterwarnings("ignore", message="Detected pickle protocol")
            state = torch.load(path, map_location="cpu", weights_only=True)
    except _DAMAGE as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise WeightsError(f"{path} cannot be read as a checkpoint: {reason}") from error
    if not isinstance(state, dict):
        raise WeightsError(f"{path} holds a {type(state).__name__}, but a checkpoint is a dict.")
    return state
