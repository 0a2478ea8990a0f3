"""ProViCo: probabilistic representations for video contrastive learning.

Read in the order of the data: `errors`, `defaults`, `config`; `data` (video file -> clips); `probability`
(Gaussian -> mixture -> samples -> pairs -> loss); `models` (pixels -> Gaussian); `features`, `recipes`,
`training` (clips -> encoder); `evaluation` (video -> embedding -> score); `search` (video -> index -> hits);
`cli` (one function a verb).

The names below are the everyday ones. They are imported when first used, so that `import provico` and
`provico --help` do not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from provico.data.cache import prepare
    from provico.data.catalog import Catalog, open_catalog
    from provico.data.clips import ClipSpec
    from provico.data.library import Library
    from provico.data.loader import ClipBatch, ClipLoader, ClipSettings
    from provico.data.scan import scan
    from provico.data.synthetic import write_demo_set
    from provico.data.transforms import AUGMENTATIONS, Augmentation
    from provico.duplicates.find import find_duplicates
    from provico.errors import ProvicoError
    from provico.evaluation.embedding_file import read_embeddings
    from provico.evaluation.embedding_job import embed_to_file
    from provico.models import BACKBONES, Encoder, EncoderConfig, VideoEmbedding
    from provico.probability import DISTANCES, Gaussian, Mixture
    from provico.recipes import RECIPES
    from provico.search.index import Index
    from provico.search.snapshot import Filter
    from provico.training.pretrain import pretrain
    from provico.training.starting_point import open_encoder

_HOMES = {
    "AUGMENTATIONS": "provico.data.transforms",
    "BACKBONES": "provico.models",
    "DISTANCES": "provico.probability",
    "Augmentation": "provico.data.transforms",
    "Catalog": "provico.data.catalog",
    "ClipBatch": "provico.data.loader",
    "ClipLoader": "provico.data.loader",
    "ClipSettings": "provico.data.loader",
    "ClipSpec": "provico.data.clips",
    "Encoder": "provico.models",
    "EncoderConfig": "provico.models",
    "Filter": "provico.search.snapshot",
    "Gaussian": "provico.probability",
    "Index": "provico.search.index",
    "Library": "provico.data.library",
    "Mixture": "provico.probability",
    "ProvicoError": "provico.errors",
    "RECIPES": "provico.recipes",
    "VideoEmbedding": "provico.models",
    "embed_to_file": "provico.evaluation.embedding_job",
    "find_duplicates": "provico.duplicates.find",
    "open_catalog": "provico.data.catalog",
    "open_encoder": "provico.training.starting_point",
    "prepare": "provico.data.cache",
    "pretrain": "provico.training.pretrain",
    "read_embeddings": "provico.evaluation.embedding_file",
    "scan": "provico.data.scan",
    "write_demo_set": "provico.data.synthetic",
}

__all__ = [
    "AUGMENTATIONS",
    "BACKBONES",
    "DISTANCES",
    "RECIPES",
    "Augmentation",
    "Catalog",
    "ClipBatch",
    "ClipLoader",
    "ClipSettings",
    "ClipSpec",
    "Encoder",
    "EncoderConfig",
    "Filter",
    "Gaussian",
    "Index",
    "Library",
    "Mixture",
    "ProvicoError",
    "VideoEmbedding",
    "embed_to_file",
    "find_duplicates",
    "open_catalog",
    "open_encoder",
    "prepare",
    "pretrain",
    "read_embeddings",
    "scan",
    "write_demo_set",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"provico has no attribute {name!r}; its names are {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)
