"""Folders with a network of another library, written by that library's `save_pretrained`.

The folder's config.json determines how it is opened: see `FORMATS`. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provico.errors import ConfigError
from provico.models.backbones import hub, timm_model, transformers_model
from provico.models.backbones.frozen import FrozenBackbone, FrozenSpec
from provico.models.backbones.preprocessing import read_json
from provico.models.pixels import InputSpec

CONFIG_NAME = "config.json"


@dataclass(frozen=True)
class FolderFormat:
    """How to open one kind of folder."""

    made_for: Callable[[Path, dict[str, Any], str], InputSpec]
    """From folder, settings and name to the clips that the network expects."""
    open: Callable[[Path, dict[str, Any], InputSpec, str], FrozenBackbone]
    """From folder, settings, clips and name to the network."""


FORMATS: dict[str, FolderFormat] = {
    "model_type": FolderFormat(transformers_model.made_for, transformers_model.open_model),
    "architecture": FolderFormat(timm_model.folder_made_for, timm_model.open_folder),
}
"""Formats by a key that only their config.json has."""


def is_encoder(values: dict[str, Any]) -> bool:
    """Whether a config.json belongs to an encoder of ProViCo, not to a network."""
    return "backbone" in values and "input" in values


def is_encoder_folder(folder: Path) -> bool:
    """Whether a folder holds an encoder of ProViCo."""
    path = folder / CONFIG_NAME
    return path.is_file() and is_encoder(read_json(path))


def holds_network(folder: Path) -> bool:
    """Whether a folder holds a network of another library."""
    path = folder / CONFIG_NAME
    return path.is_file() and not FORMATS.keys().isdisjoint(read_json(path))


def open_folder(name: str, clips: InputSpec, frozen: FrozenSpec | None = None) -> FrozenBackbone:
    """Open the network in a folder, or in the repository that `hf:` names."""
    folder, values, kind = _look(name)
    return kind.open(folder, values, clips, name)


def made_for(name: str) -> InputSpec:
    """The clips that the network in a folder expects."""
    folder, values, kind = _look(name)
    return kind.made_for(folder, values, name)


def find_folder(name: str) -> Path:
    """The folder of `hf:OWNER/NAME`, or the named folder."""
    return hub.fetch(name) if name.startswith(hub.PREFIX) else Path(name).expanduser()


def _look(name: str) -> tuple[Path, dict[str, Any], FolderFormat]:
    folder = find_folder(name)
    path = folder / CONFIG_NAME
    if not path.is_file():
        found = "has no config.json" if folder.is_dir() else "is not a folder"
        raise ConfigError(
            f"{name} {found}, so it is not a network. Give a folder written by save_pretrained of "
            "transformers or save_for_hf of timm."
        )
    values = read_json(path)
    if is_encoder(values):
        raise ConfigError(
            f"{name} holds an encoder of ProViCo, not a network to build one on. Use it as --checkpoint, or "
            "with open_encoder."
        )
    for key, kind in FORMATS.items():
        if key in values:
            return folder, values, kind
    raise ConfigError(
        f"The config.json of {name} is neither of transformers (it has no model_type) nor of timm (it has no "
        "architecture), so its network is unknown."
    )
