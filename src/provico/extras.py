"""Optional packages, and the message if one is missing."""

from __future__ import annotations

import importlib.util

from provico.errors import MissingDependencyError

EXTRAS: dict[str, tuple[str, ...]] = {
    "search": ("lancedb",),
    "explorer": ("fastapi", "uvicorn", "jinja2", "multipart", "plotly"),
    "plots": ("matplotlib",),
    "hf": ("transformers", "huggingface_hub", "PIL"),
    "timm": ("timm", "PIL"),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "postgres": ("psycopg", "pgvector"),
    "tensorboard": ("tensorboard",),
    "mteb": ("mteb",),
}
"""The modules that each extra of pyproject.toml installs."""


def missing(extra: str) -> tuple[str, ...]:
    """The packages of an extra that are not installed."""
    return tuple(name for name in EXTRAS[extra] if importlib.util.find_spec(name) is None)


def lacking(extra: str, *, what: str) -> str | None:
    """A message that says how to install the missing packages of an extra; None if all are installed.

    what: what needs them, as the subject of the sentence.
    """
    if absent := missing(extra):
        return f"{what} needs {', '.join(absent)}. Run: pip install 'provico[{extra}]'"
    return None


def require(extra: str, *, what: str) -> None:
    """Raise MissingDependencyError with this message if a package is missing."""
    if sentence := lacking(extra, what=what):
        raise MissingDependencyError(sentence)
