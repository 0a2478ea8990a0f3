"""Safe serialisation of values: the format of a child process's answers.

A child reads untrusted files, so its answers are not trusted either. Pickle would let it run code in the
parent; this format supports only numbers, text, bytes, arrays, lists, tuples and dicts of them, and errors.
The bytes are JSON, preceded by its length and followed by the content of bytes and arrays.

    3, "a", None, True, 0.5      as in JSON
    ["list", ...], ["tuple", ...], ["dict", [key, value], ...]
    ["bytes", length], ["array", dtype, [shape]]
    ["error", name, message], ["video error", name, path, reason]
"""

from __future__ import annotations

import builtins
import json
import math
import os
import struct
from typing import Any

import numpy as np

from provico import errors
from provico.errors import VideoError

_LENGTH = struct.Struct("!Q")
_DTYPE_KINDS = "biuf"


def to_bytes(value: object) -> bytes:
    """Serialise a value; raises TypeError if it is not plain."""
    contents: list[bytes] = []
    text = json.dumps(_described(value, contents)).encode()
    return b"".join((_LENGTH.pack(len(text)), text, *contents))


def from_bytes(data: bytes) -> Any:
    """Deserialise a value; raises ValueError for invalid bytes."""
    try:
        (length,) = _LENGTH.unpack_from(data)
        end = _LENGTH.size + length
        contents = _Contents(memoryview(data)[end:])
        value = _value(json.loads(data[_LENGTH.size : end]), contents)
    except (struct.error, TypeError, LookupError, RecursionError) as error:
        raise ValueError(f"This is no plain value ({error}).") from error
    if contents.left:
        raise ValueError(f"{len(contents.left)} bytes belong to no value.")
    return value


def _described(value: object, contents: list[bytes]) -> object:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            contents.append(value)
            return ["bytes", len(value)]
        case np.ndarray():
            if value.dtype.kind not in _DTYPE_KINDS:
                raise TypeError(f"An array of {value.dtype} is not plain.")
            contents.append(np.ascontiguousarray(value).tobytes())
            return ["array", value.dtype.str, list(value.shape)]
        case list() | tuple():
            return [type(value).__name__, *(_described(one, contents) for one in value)]
        case dict():
            pairs = ([_described(key, contents), _described(one, contents)] for key, one in value.items())
            return ["dict", *pairs]
        case VideoError():
            return ["video error", type(value).__name__, os.fspath(value.path), value.reason]
        case Exception():
            return ["error", type(value).__name__, str(value)]
    raise TypeError(f"A {type(value).__name__} is not plain.")


class _Contents:
    """The bytes after the description, taken in order."""

    def __init__(self, left: memoryview) -> None:
        self.left = left

    def take(self, length: int) -> bytes:
        if not 0 <= length <= len(self.left):
            raise ValueError(f"{length} bytes are announced and {len(self.left)} are there.")
        taken, self.left = bytes(self.left[:length]), self.left[length:]
        return taken


def _value(found: Any, contents: _Contents) -> Any:
    match found:
        case None | bool() | int() | float() | str():
            return found
        case ["bytes", int(length)]:
            return contents.take(length)
        case ["array", str(name), [*shape]]:
            dtype = np.dtype(name)
            if dtype.kind not in _DTYPE_KINDS or not all(isinstance(one, int) and one >= 0 for one in shape):
                raise ValueError(f"There is no plain array of {name} with shape {shape}.")
            return np.frombuffer(contents.take(dtype.itemsize * math.prod(shape)), dtype).reshape(shape)
        case ["list", *values]:
            return [_value(one, contents) for one in values]
        case ["tuple", *values]:
            return tuple(_value(one, contents) for one in values)
        case ["dict", *pairs]:
            return {_value(key, contents): _value(one, contents) for key, one in pairs}
        case ["video error", str(name), str(path), str(reason)]:
            kind = getattr(errors, name, None)
            if not (isinstance(kind, type) and issubclass(kind, VideoError)):
                raise ValueError(f"There is no error {name}.")
            return kind(path, reason)
        case ["error", str(name), str(message)]:
            return _error(name, message)
    raise ValueError("This is no plain value.")


def _error(name: str, message: str) -> Exception:
    """An error class of ProViCo or Python by name; otherwise an error that states the name."""
    kind = getattr(errors, name, None) or getattr(builtins, name, None)
    if (
        isinstance(kind, type)
        and issubclass(kind, Exception)
        and not issubclass(kind, VideoError | UnicodeError)
    ):
        return kind(message)
    return RuntimeError(f"{name}: {message}")
