"""Files of features of clips of videos, which replace the network that computed them.

docs/embeddings.md describes the format.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from provico.data.layouts.own import FEATURE_SUFFIXES
from provico.errors import CatalogError, ConfigError, OutputExistsError, WeightsError
from provico.files import ARCHIVE_ERRORS

Words = tuple[str | None, ...]


@dataclass(frozen=True, eq=False)
class FeatureFile:
    """Stored features of clips, the same number for each video, with metadata of the videos."""

    ids: tuple[str, ...]
    features: Float[Tensor, "videos clips feature"]
    labels: Words | None = None
    """The class of each video; None, or an empty word in the file, where it is unknown."""
    groups: Words | None = None
    """Videos of one group were cut from one recording and are not independent."""
    subsets: Words | None = None
    """train, val or test."""
    blocks: tuple[int, ...] | None = None
    """Sizes of consecutive groups of features, if there are several kinds; each kind is standardised to the
    same scale."""

    def __post_init__(self) -> None:
        if self.features.ndim != 3 or len(self.ids) != len(self.features):
            raise ConfigError(
                f"There are {len(self.ids)} ids and features of shape {tuple(self.features.shape)}, but each "
                "video needs one id and the features (videos, clips, feature)."
            )
        if len(set(self.ids)) != len(self.ids):
            twice = next(name for name in self.ids if self.ids.count(name) > 1)
            raise ConfigError(f"The id {twice!r} occurs more than once, but ids must be unique.")
        for name in ("labels", "groups", "subsets"):
            if (words := getattr(self, name)) is not None and len(words) != len(self.ids):
                raise ConfigError(f"There are {len(words)} {name}, but {len(self.ids)} videos.")
        if self.blocks is not None and sum(self.blocks) != self.features.shape[2]:
            raise ConfigError(
                f"The blocks {self.blocks} have {sum(self.blocks)} features, but there are "
                f"{self.features.shape[2]}."
            )
        finite = self.features.isfinite().flatten(1).all(dim=1)
        if not bool(finite.all()):
            raise ConfigError(
                f"The features of {int((~finite).sum())} of {len(self.ids)} videos are not finite, the first "
                f"of them {self.ids[int(finite.int().argmin())]!r}. Leave these videos out."
            )

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

    def save(self, path: Path | str) -> None:
        """Write a .safetensors or .npz file; a .safetensors file has all but the features as JSON in its
        metadata."""
        path = Path(path)
        if path.exists():
            raise OutputExistsError(f"{path} exists already. Choose another name, or remove it first.")
        facts = {
            field.name: value
            for field in fields(self)
            if field.name != "features" and (value := getattr(self, field.name)) is not None
        }
        if path.suffix == ".npz":
            arrays: dict[str, Any] = {
                name: np.array([word or "" for word in fact]) for name, fact in facts.items()
            }
            if self.blocks is not None:
                arrays["blocks"] = np.array(self.blocks)
            np.savez(path, features=self.features.numpy(), **arrays)
        elif path.suffix == ".safetensors":
            metadata = {name: json.dumps(fact) for name, fact in facts.items()}
            save_file({"features": self.features.contiguous()}, path, metadata)
        else:
            raise ConfigError(
                f"{path.name} must end in {' or '.join(FEATURE_SUFFIXES)}, the formats for features."
            )

    @classmethod
    def load(cls, path: Path | str) -> FeatureFile:
        """Read a .safetensors or .npz file."""
        facts = read_facts(path, with_features=True)
        return cls(facts.pop("ids"), facts.pop("features").float(), **facts)


def read_facts(path: Path | str, *, with_features: bool = False) -> dict[str, Any]:
    """The metadata in such a file, by the names of `FeatureFile`."""
    path = Path(path)
    names = [field.name for field in fields(FeatureFile) if field.name != "features"]
    try:
        if path.suffix == ".npz":
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                found = {name: stored[name].tolist() for name in names if name in stored}
                features = torch.as_tensor(stored["features"]) if with_features else None
        else:
            with safe_open(path, framework="pt") as stored:
                metadata = stored.metadata() or {}
                found = {name: json.loads(metadata[name]) for name in names if name in metadata}
                features = stored.get_tensor("features") if with_features else None
        facts: dict[str, Any] = {"ids": tuple(str(name) for name in found.pop("ids"))}
        if "blocks" in found:
            facts["blocks"] = tuple(int(size) for size in found.pop("blocks"))
        facts |= {name: tuple(_word(word) for word in words) for name, words in found.items()}
    except (*ARCHIVE_ERRORS, SafetensorError) as error:
        raise WeightsError(
            f"{path} cannot be read as stored features ({error}). A .npz or .safetensors file with `ids` and "
            "`features` is needed, as FeatureFile.save writes it."
        ) from error
    return facts | ({"features": features} if with_features else {})


def _word(word: object) -> str | None:
    return None if word is None or word == "" else str(word)
