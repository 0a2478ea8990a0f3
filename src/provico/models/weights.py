"""Reading weights: only safe formats, with strict checks of names and shapes; and hashes of weights."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from provico.errors import WeightsError

MAX_NAMED = 3
"""Keys that an error lists by name; further ones are only counted."""


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file, or of a PyTorch file that holds nothing but tensors."""
    if not path.is_file():
        raise WeightsError(f"There is no file of weights at {path}.")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise WeightsError(
            f"{path} cannot be read as weights ({type(error).__name__}). A .safetensors file or a PyTorch "
            "file that holds only tensors is needed; a pickle of whole objects is refused because reading it "
            "could run any code. If you trust it, convert it to safetensors."
        ) from error
    if isinstance(loaded, dict) and isinstance(loaded.get("state_dict"), dict):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, dict) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise WeightsError(
            f"{path} holds {type(loaded).__name__}, but a dictionary of names and tensors is needed. "
            "Save the state_dict() of the network."
        )
    return loaded


def load_into(network: nn.Module, weights: Mapping[str, Tensor], *, source: Path | str) -> None:
    """Load the weights; every name and every shape must fit."""
    expected = network.state_dict()
    # A counter of batches that old checkpoints lack and nothing here reads.
    missing = {key for key in expected.keys() - weights.keys() if not key.endswith("num_batches_tracked")}
    unexpected = weights.keys() - expected.keys()
    misshapen = {
        f"{key} {tuple(weights[key].shape)} instead of {tuple(expected[key].shape)}"
        for key in expected.keys() & weights.keys()
        if weights[key].shape != expected[key].shape
    }
    problems = [
        f"{len(keys)} {what} ({_some(keys)})"
        for what, keys in (("missing", missing), ("unknown", unexpected), ("of another shape", misshapen))
        if keys
    ]
    if problems:
        raise WeightsError(
            f"The weights in {source} do not fit the network: {'; '.join(problems)}. "
            "Check that they were saved from the same backbone and settings."
        )
    network.load_state_dict(weights, strict=False)


def weights_hash(weights: Mapping[str, Tensor]) -> str:
    """A hash of weights, of sixteen hex digits."""
    digest = hashlib.sha256()
    for name, value in sorted(weights.items()):
        if name.endswith("num_batches_tracked"):
            continue  # unused, and missing in old checkpoints
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(tensor_bytes(value))
    return digest.hexdigest()[:16]


def tensor_bytes(value: Tensor) -> bytes:
    """The raw bytes of a tensor of any type."""
    return value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def _some(keys: set[str]) -> str:
    named = sorted(keys)[:MAX_NAMED]
    return ", ".join(named) + (", ..." if len(keys) > MAX_NAMED else "")
