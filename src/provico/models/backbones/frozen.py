"""Networks that are used as they are: a pretrained one, one of the user's own, or a file of their features.

A frozen backbone stays in evaluation mode, has no gradients and is not saved with an encoder, which names it
instead. Trained on top of it are only the heads.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from provico.errors import CatalogError, ConfigError, OutputExistsError, WeightsError

Takes = Literal["clips", "frames"]


@dataclass(frozen=True, kw_only=True)
class FrozenSpec:
    """What must be known of a network that is not ours."""

    feature_dim: int
    """How many features it gives."""

    takes: Takes = "clips"
    """`clips`: (batch, 3, time, height, width); `frames`: (batch, 3, height, width), averaged over a clip."""

    def __post_init__(self) -> None:
        if self.feature_dim < 1:
            raise ConfigError(f"feature_dim is {self.feature_dim}, but a network gives at least one feature.")
        if self.takes not in ("clips", "frames"):
            raise ConfigError(f"takes is {self.takes!r}, but a network takes either 'clips' or 'frames'.")


class FrozenBackbone(nn.Module):
    """Any callable from clips or frames to features, as a backbone without gradients."""

    def __init__(self, network: Callable[[Tensor], Tensor], spec: FrozenSpec) -> None:
        super().__init__()
        self.network = network  # registered as a submodule if it is a module, so that .to() moves it
        self.spec = spec
        if isinstance(network, nn.Module):
            network.eval().requires_grad_(False)

    def train(self, mode: bool = True) -> FrozenBackbone:
        """Stay in evaluation mode: its batch statistics are part of what is frozen."""
        return super().train(False)

    @torch.no_grad()
    def forward(
        self, clips: Float[Tensor, "batch channels time height width"]
    ) -> Float[Tensor, "batch feature"]:
        """One feature vector for each clip."""
        if self.spec.takes == "frames":
            frames = clips.transpose(1, 2).flatten(0, 1)
            features = self._checked(self.network(frames), frames)
            return features.view(clips.shape[0], -1, self.spec.feature_dim).mean(dim=1)
        return self._checked(self.network(clips), clips)

    def _checked(self, features: object, inputs: Tensor) -> Tensor:
        expected = inputs.shape[0]  # not len(), which would fix their number when the encoder is exported
        found = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        if not isinstance(features, Tensor) or found != (expected, self.spec.feature_dim):
            raise ConfigError(
                f"The frozen network gave {found} for {expected} {self.spec.takes}, but a tensor of shape "
                f"{(expected, self.spec.feature_dim)} is needed. Check its feature_dim and what it takes."
            )
        return features


def import_network(path: str) -> Callable[[Tensor], Tensor]:
    """The network that `package.module:name` names: a module or function as it is, a class constructed.

    Importing runs the code of that package, so the path must come from someone trusted.
    """
    module_name, _, name = path.partition(":")
    try:
        target: Any = importlib.import_module(module_name)
        for part in name.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"No network was found at {path!r}: {error}. Name one in an installed package, as in "
            "'package.module:name'."
        ) from error
    if isinstance(target, type):
        target = target()
    if not callable(target):
        raise ConfigError(
            f"{path} is a {type(target).__name__}, but a torch.nn.Module or a function from pixels to "
            "features is needed."
        )
    network: Callable[[Tensor], Tensor] = target
    return network


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


class NoBackbone(nn.Module):
    """Stands where the backbone would be in an encoder that is fed stored features."""

    def forward(
        self, clips: Float[Tensor, "batch channels time height width"]
    ) -> Float[Tensor, "batch feature"]:
        """Refuse: there is no network for pixels."""
        raise ConfigError(
            "This encoder works on stored features and has no backbone for pixels. Give it features instead: "
            "encoder.from_features(features)."
        )
