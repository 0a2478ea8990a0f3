"""Ways in which a file may be damaged, or tampered with."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 10**12, 1e400, -1e400, float("nan"), 0.5, "", "x", "../../etc", [], [1], {}, {"a": 1},
)  # fmt: skip
"""What stands where something else should."""


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in nested lists and dicts, as the keys that lead to it."""
    yield above
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from places(one, (*above, key))


def changed(value: Any, place: tuple[Any, ...], other: Any) -> Any:
    """A copy with another value at a place."""
    if not place:
        return other
    value, inner = _copied(value, place)
    inner[place[-1]] = other
    return value


def without(value: Any, place: tuple[Any, ...]) -> Any:
    """A copy without what is at a place."""
    if not place:
        return None
    value, inner = _copied(value, place)
    del inner[place[-1]]
    return value


def _copied(value: Any, place: tuple[Any, ...]) -> tuple[Any, Any]:
    """A copy, and the list or dict in it that holds what is at a place."""
    value = copy.deepcopy(value)
    inner = value
    for key in place[:-1]:
        inner = inner[key]
    return value, inner


def damaged_bytes(content: bytes, kind: str, place: float, other: bytes) -> bytes:
    """Cut short, overwritten or with something in between, at a share of the length."""
    at = int(place * len(content))
    match kind:
        case "cut":
            return content[:at]
        case "overwritten":
            return content[:at] + other + content[at + len(other) :]
        case "inserted":
            return content[:at] + other + content[at:]
    return other
