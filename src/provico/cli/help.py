"""How help is printed: paragraphs without the line breaks of the source, and plain names of values."""

from __future__ import annotations

import dataclasses
import inspect
import re
import shutil
from collections.abc import Callable
from functools import partial
from types import NoneType
from typing import Any, get_args

from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    UnsupportedTypeAnnotationError,
)

_MOST_COLUMNS = 100
REGISTRY = ConstructorRegistry()
"""How the values of options are read, beside tyro's own rules."""


def width() -> int:
    """The columns of the terminal, but never so many that lines are hard to read."""
    return min(_MOST_COLUMNS, shutil.get_terminal_size().columns)


def with_joined_lines(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb, whose docstring has one line per paragraph and argument: tyro keeps some line breaks."""
    function: Any = verb.func if isinstance(verb, partial) else verb
    function.__doc__ = re.sub(r"(?<=\S)\n(?=[^\s]| {5,})\s*", " ", inspect.cleandoc(function.__doc__ or ""))
    return verb


@REGISTRY.primitive_rule
def _may_be_none(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """A value that may be None is announced as PATH, not as {None}|PATH."""
    kinds = get_args(info.type)
    if len(kinds) != 2 or NoneType not in kinds:
        return None
    (kind,) = (one for one in kinds if one is not NoneType)
    spec = REGISTRY.get_primitive_spec(PrimitiveTypeInfo.make(kind, info.markers))
    if isinstance(spec, UnsupportedTypeAnnotationError) or spec.nargs != 1:
        return None
    return dataclasses.replace(
        spec,
        choices=None if spec.choices is None else (*spec.choices, "None"),
        instance_from_str=lambda words: None if words == ["None"] else spec.instance_from_str(words),
        is_instance=lambda value: value is None or spec.is_instance(value),
        str_from_instance=lambda value: ["None"] if value is None else spec.str_from_instance(value),
    )
