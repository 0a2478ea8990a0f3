"""ProViCo: probabilistic representations for video contrastive learning.

Read in the order of the data: `errors`, `defaults`, `config`; `data` (video file -> clips); `probability`
(Gaussian -> mixture -> samples -> pairs -> loss); `models` (pixels -> Gaussian); `features`, `recipes`,
`training` (clips -> encoder); `evaluation` (video -> embedding -> score); `cli` (one function a verb).

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
    from provico.errors import ProvicoError
    from provico.models import BACKBONES, Encoder, EncoderConfig
    from provico.probability import DISTANCES, Gaussian, Mixture
    from provico.recipes import RECIPES
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
    "Gaussian": "provico.probability",
    "Library": "provico.data.library",
    "Mixture": "provico.probability",
    "ProvicoError": "provico.errors",
    "RECIPES": "provico.recipes",
    "open_catalog": "provico.data.catalog",
    "prepare": "provico.data.cache",
    "pretrain": "provico.training.pretrain",
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
    "Gaussian",
    "Library",
    "Mixture",
    "ProvicoError",
    "open_catalog",
    "prepare",
    "pretrain",
    "scan",
    "write_demo_set",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"provico has no attribute {name!r}; its names are {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)
