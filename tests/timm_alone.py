"""timm where there is no torchvision that works: its networks need none, but it imports some of it.

What it imports are transforms and data sets, which no network uses, and one layer for detectors. They are
stood in for while timm is imported, and are gone afterwards, so that nothing else takes them for torchvision.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any

import pytest
from torch import nn

_NAMES = (
    "torchvision",
    "torchvision.transforms",
    "torchvision.transforms.functional",
    "torchvision.datasets",
    "torchvision.ops",
    "torchvision.ops.misc",
    "torchvision.models",
    "torchvision.models.feature_extraction",
)


class _Anything(type):
    """Its attributes are names of kernels and the like."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Anything(name, (nn.Module,), {})
        setattr(self, name, made)
        return made


def import_timm() -> Any:
    """timm, with torchvision if that works and without it if not; skips where timm is not installed."""
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed: pip install --no-deps timm")
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError):
        before = {name: module for name, module in sys.modules.items() if name.startswith("torchvision")}
        for name in _NAMES:
            module = _StandIn(name)
            module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
            module.__path__ = []
            sys.modules[name] = module
            parent, _, child = name.rpartition(".")
            if parent:
                setattr(sys.modules[parent], child, module)
        try:
            import timm
        finally:
            for name in _NAMES:
                del sys.modules[name]
            sys.modules.update(before)
    import timm

    return timm
