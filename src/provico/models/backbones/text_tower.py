"""The text tower of a network that was trained with text: CLIP, SigLIP and X-CLIP from a folder or the Hub.

Texts are embedded in the space of the network's pooled features of a clip, which are the first block of its
features (`transformers_model`). The heads of an encoder map to another space, which has no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from provico.errors import ConfigError
from provico.extras import require
from provico.models.backbones import folder
from provico.models.backbones.frozen import FrozenBackbone
from provico.models.backbones.preprocessing import read_json
from provico.models.backbones.transformers_model import FAMILIES, TransformersNetwork, quietly

MAX_CHARACTERS = 1000


def words_dim(backbone: nn.Module) -> int | None:
    """The number of leading features that share a space with text; None if there are none."""
    network = backbone.network if isinstance(backbone, FrozenBackbone) else None
    if not (isinstance(network, TransformersNetwork) and network.family.has_words):
        return None
    assert isinstance(backbone, FrozenBackbone)
    return backbone.spec.blocks[0] if backbone.spec.blocks else backbone.spec.feature_dim


def words_of(features: Float[Tensor, "*clips feature"], dim: int) -> Float[Tensor, "*clips dim"]:
    """The direction of each clip in the space of texts."""
    return F.normalize(features[..., :dim].float(), dim=-1)


class TextTower:
    """The text tower of the network `name`, which turns texts into directions."""

    def __init__(self, name: str) -> None:
        place = folder.find_folder(name)
        values = read_json(place / folder.CONFIG_NAME)
        kind = values.get("model_type", "")
        if kind not in FAMILIES or not FAMILIES[kind].has_words:
            raise ConfigError(
                f"{name} is a {kind or 'network'} without a text tower, so it cannot embed words."
            )
        require("hf", what=name)
        import transformers

        with quietly():
            try:
                options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
                self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(  # nosec B615: a folder
                    str(place), **options
                )
                model = transformers.AutoModel.from_pretrained(  # nosec B615: a folder
                    str(place), dtype=torch.float32, use_safetensors=True, **options
                )
            except Exception as error:  # third-party code may raise anything
                reason = str(error).strip().partition("\n")[0]
                raise ConfigError(
                    f"The text tower of {name} cannot be opened ({type(error).__name__}: {reason}). The "
                    "folder needs its weights and the tokenizer.json that was published with it."
                ) from error
        self._model: Any = model.eval().requires_grad_(False)
        self._length = int(self._model.config.text_config.max_position_embeddings)
        # SigLIP was trained with texts padded to the full length.
        self._padding = "max_length" if kind.startswith("siglip") else True

    @torch.no_grad()
    def __call__(self, texts: Sequence[str]) -> Float[Tensor, "texts dim"]:
        """The direction of each text."""
        for text in texts:
            if not text.strip() or len(text) > MAX_CHARACTERS:
                raise ConfigError(
                    f"The text has {len(text):,} characters, but it must not be empty and have at most "
                    f"{MAX_CHARACTERS:,} characters."
                )
        given = self._tokenizer(
            [text.lower() if self._padding == "max_length" else text for text in texts],
            padding=self._padding,
            truncation=True,
            max_length=self._length,
            return_tensors="pt",
        )
        known = {name: given[name] for name in ("input_ids", "attention_mask") if name in given}
        if self._padding == "max_length":
            known.pop("attention_mask", None)
        found = self._model.get_text_features(**known)
        return F.normalize(getattr(found, "pooler_output", found).float(), dim=-1)
