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
    from provico.data.catalog import Catalog, open_catalog
    from provico.data.clips import ClipSpec
    from provico.data.demo_set.videos import write_demo_set
    from provico.data.frames.prepared import prepare
    from provico.data.library import Library
    from provico.data.loader import ClipBatch, ClipLoader, ClipSettings
    from provico.data.scan import scan
    from provico.data.transforms import AUGMENTATIONS, Augmentation
    from provico.duplicates.find import find_duplicates
    from provico.embedding.file import read_embeddings
    from provico.embedding.job import embed_to_file
    from provico.embedding.video_embedding import VideoEmbedding
    from provico.errors import ProvicoError
    from provico.models import BACKBONES, Encoder, EncoderConfig
    from provico.models.saved import open_encoder
    from provico.probability import DISTANCES, Gaussian, Mixture
    from provico.recipes import RECIPES
    from provico.search.index import Index
    from provico.search.snapshot import Filter
    from provico.training.pretrain import pretrain

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
    "VideoEmbedding": "provico.embedding.video_embedding",
    "embed_to_file": "provico.embedding.job",
    "find_duplicates": "provico.duplicates.find",
    "open_catalog": "provico.data.catalog",
    "open_encoder": "provico.models.saved",
    "prepare": "provico.data.frames.prepared",
    "pretrain": "provico.training.pretrain",
    "read_embeddings": "provico.embedding.file",
    "scan": "provico.data.scan",
    "write_demo_set": "provico.data.demo_set.videos",
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
