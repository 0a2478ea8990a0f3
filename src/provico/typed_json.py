"""Typed values from JSON files: a value that does not have its declared type is an error that names it.
Also values for JSON files, which have no nan.

A file may be untrusted or damaged. `typed` checks every value before it is used, so that the code below can
rely on its annotations.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def finite(value: Any) -> Any:
    """The value with every number in it that is not finite replaced by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return value


def build(kind: type[T], values: object, *, where: str = "") -> T:
    """A dataclass from a dict of its fields; raises a TypeError or ValueError that names a wrong field."""
    if not isinstance(values, Mapping):
        raise TypeError(
            f"{where.rstrip('.') or 'it'} is {_said(values)}, but a mapping of names to values is needed"
        )
    hints = get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}  # type: ignore[arg-type]
    unknown = [name for name in values if name not in fields]
    if unknown:
        raise TypeError(f"there is no {where}{unknown[0]}")
    for name, field in fields.items():
        is_optional = not (field.default is field.default_factory is dataclasses.MISSING)
        if name not in values and not is_optional:
            raise TypeError(f"{where}{name} is missing")
    return kind(**{name: typed(hints[name], value, f"{where}{name}") for name, value in values.items()})


def typed(hint: Any, value: object, name: str) -> Any:
    """The value if it has the type; lists are converted to tuples and dicts to dataclasses as declared."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _one_of(inner, value, name)
    if origin is Literal:
        if value not in inner or isinstance(value, bool):
            raise TypeError(f"{name} is {_said(value)}, but one of {', '.join(map(str, inner))} is needed")
        return value
    if origin is tuple and isinstance(value, list | tuple):
        hints = [inner[0]] * len(value) if inner[-1] is Ellipsis else inner
        if len(hints) != len(value):
            raise TypeError(f"{name} has {len(value)} values, but {len(hints)} are needed")
        return tuple(
            typed(one, part, f"{name}[{i}]") for i, (one, part) in enumerate(zip(hints, value, strict=True))
        )
    if origin is list and isinstance(value, list):
        return [typed(inner[0], part, f"{name}[{i}]") for i, part in enumerate(value)]
    if origin in (dict, Mapping) and isinstance(value, Mapping):
        return {
            typed(inner[0], key, name): typed(inner[1], part, f"{name}.{key}") for key, part in value.items()
        }
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return value if isinstance(value, hint) else build(hint, value, where=f"{name}.")
    if hint is Any:
        return value
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise ValueError(f"{name} is {value}, but a finite number is needed")
        return float(value)
    if origin is None and isinstance(hint, type) and type(value) is hint:
        return value
    wanted = getattr(hint, "__name__", str(hint)) if origin is None else origin.__name__
    raise TypeError(f"{name} is {_said(value)}, but {_WORDS.get(wanted, wanted)} is needed")


_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "NoneType": "null",
}


def _one_of(hints: tuple[Any, ...], value: object, name: str) -> Any:
    problem: Exception | None = None
    for hint in hints:
        try:
            return typed(hint, value, name)
        except (TypeError, ValueError) as error:
            problem = problem or error
    assert problem is not None
    raise problem


def _said(value: object) -> str:
    return repr(value)[:60]
