"""Optional packages: which there are, and one sentence for whoever lacks one."""

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
"""What each extra of pyproject.toml brings, by the names that are imported."""


def missing(extra: str) -> tuple[str, ...]:
    """The packages of an extra that are not installed."""
    return tuple(name for name in EXTRAS[extra] if importlib.util.find_spec(name) is None)


def lacking(extra: str, *, what: str) -> str | None:
    """The sentence for whoever lacks a package of an extra; None if all are installed.

    what: what needs it, as the subject of the sentence.
    """
    if absent := missing(extra):
        return f"{what} needs {', '.join(absent)}. Run: pip install 'provico[{extra}]'"
    return None


def require(extra: str, *, what: str) -> None:
    """Refuse with this sentence."""
    if sentence := lacking(extra, what=what):
        raise MissingDependencyError(sentence)
