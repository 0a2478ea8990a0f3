"""Stored features of clips, which stand in for the network that made them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from provico.errors import CatalogError, ConfigError, OutputExistsError, WeightsError


@dataclass(frozen=True)
class FeatureFile:
    """Stored features of clips, which stand in for the backbone that made them."""

    ids: tuple[str, ...]
    features: Float[Tensor, "videos clips feature"]

    def __post_init__(self) -> None:
        if self.features.ndim != 3 or len(self.ids) != len(self.features):
            raise ConfigError(
                f"There are {len(self.ids)} ids and features of shape {tuple(self.features.shape)}, but each "
                "video needs one id and the features (videos, clips, feature)."
            )
        if len(set(self.ids)) != len(self.ids):
            twice = next(name for name in self.ids if self.ids.count(name) > 1)
            raise ConfigError(f"The id {twice!r} occurs more than once, but ids must tell videos apart.")

    def of(self, ids: Sequence[str]) -> Float[Tensor, "videos clips feature"]:
        """The features of these videos, in this order."""
        place = {name: index for index, name in enumerate(self.ids)}
        absent = [name for name in ids if name not in place]
        if absent:
            raise CatalogError(
                f"{len(absent)} of {len(ids)} videos have no stored features, the first of them "
                f"{absent[0]!r}. Compute features for the whole catalog, or leave these videos out."
            )
        return self.features[[place[name] for name in ids]]

    def save(self, path: Path) -> None:
        """Write a .safetensors or .npz file."""
        if path.exists():
            raise OutputExistsError(f"{path} exists already. Choose another name, or remove it first.")
        if path.suffix == ".npz":
            np.savez(path, ids=np.array(self.ids), features=self.features.numpy())
        elif path.suffix == ".safetensors":
            save_file({"features": self.features.contiguous()}, path, {"ids": json.dumps(self.ids)})
        else:
            raise ConfigError(f"{path.name} must end in .safetensors or .npz, the formats for features.")

    @classmethod
    def load(cls, path: Path) -> FeatureFile:
        """Read a .safetensors or .npz file."""
        try:
            if path.suffix == ".npz":
                with np.load(path, allow_pickle=False) as stored:
                    ids, features = stored["ids"].tolist(), torch.from_numpy(stored["features"])
            else:
                with safe_open(path, framework="pt") as stored:
                    ids, features = (
                        json.loads((stored.metadata() or {})["ids"]),
                        stored.get_tensor("features"),
                    )
        except (OSError, KeyError, ValueError, SafetensorError) as error:
            raise WeightsError(
                f"{path} cannot be read as stored features ({error}). A .npz or .safetensors file with `ids` "
                "and `features` is needed, as FeatureFile.save writes it."
            ) from error
        return cls(tuple(str(name) for name in ids), features.float())
