"""The hash of a frozen network, sixteen hex digits: equal for networks with the same features.

A name says where a network is, not what it is. The hash covers

- every parameter and buffer, by name, type, shape and value;
- the class and the plain settings (numbers, words) of every layer;
- code of the package that the import path names: the logic of the network's classes and functions, without
  comments and docstrings, and the tensors, networks and constants that they use from their module, or that
  a partial or a closure holds.

Code of other packages, such as torch, counts by name only: an update of a library changes no hash. So does
code without source. Strings with a slash are ignored, since most of them are paths.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import itertools
import textwrap
from collections.abc import Iterable, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
from torch import Tensor, nn

from provico.models.weights import tensor_bytes, weights_hash


def network_hash(network: object, *, package: str | None = None) -> str:
    """The hash of a frozen network, including its code from this package.

    Without a package only the weights are hashed: for built-in networks, whose code has our version.
    """
    if package is None and isinstance(network, nn.Module):
        return weights_hash(network.state_dict())
    walk = _Walk(package)
    walk.add(network)
    return walk.digest.hexdigest()[:16]


class _Walk:
    """Adds everything that a network depends on to a digest, each object once."""

    def __init__(self, package: str | None) -> None:
        self.digest = hashlib.sha256()
        self._package = package
        # By id. The objects are kept alive, so that no id is reused.
        self._met: dict[int, tuple[int, object]] = {}
        self._classes: set[type] = set()

    def add(self, value: object) -> None:
        """Add any object that a network holds or uses."""
        if _is_plain(value):
            self._say(repr(value))
            return
        if callable(value):
            value = inspect.unwrap(value)
        if id(value) in self._met:
            self._say("again", self._met[id(value)][0])
            return
        self._met[id(value)] = len(self._met), value
        match value:
            case Tensor():
                self._say("tensor", value.dtype, tuple(value.shape))
                self.digest.update(tensor_bytes(value))
            case np.ndarray():
                self._say("array", value.dtype, value.shape)
                self.digest.update(np.ascontiguousarray(value).tobytes())
            case nn.Module():
                self._add_module(value)
            case functools.partial():
                self._say("partial")
                self._add_all([value.func, value.args, value.keywords])
            case MethodType():
                self._say("method")
                self._add_all([value.__func__, value.__self__])
            case FunctionType():
                self._add_function(value)
            case type():
                self._add_class(value)
            case Mapping():
                self._say("mapping", len(value))
                for key in sorted(value, key=str):
                    self._add_all([key, value[key]])
            case list() | tuple():
                self._say("sequence", len(value))
                self._add_all(value)
            case set() | frozenset():
                self._say("set", len(value))
                self._add_all(sorted(value, key=repr))
            case _:
                self._add_object(value)

    def _say(self, *words: object) -> None:
        text = "\0".join(map(str, words))
        self.digest.update(f"{len(text)} {text}".encode())

    def _add_all(self, values: Iterable[object]) -> None:
        for value in values:
            self.add(value)

    def _add_module(self, module: nn.Module) -> None:
        self._say("network")
        for name, layer in module.named_modules():
            self._say(name)
            self._add_class(type(layer))
            self._add_attributes(layer, but=("training",))
        for name, value in itertools.chain(module.named_parameters(), module.named_buffers()):
            if not name.endswith("num_batches_tracked"):
                self._say(name)
                self.add(value.data)

    def _add_object(self, value: object) -> None:
        self._add_class(type(value))
        if self._is_own(type(value)):
            self._add_attributes(value)

    def _add_attributes(self, owner: object, but: tuple[str, ...] = ()) -> None:
        for name, value in sorted(getattr(owner, "__dict__", {}).items()):
            if not name.startswith("_") and name not in but:
                self._say(name)
                self.add(value)

    def _add_class(self, kind: type) -> None:
        self._say("class", kind.__module__, kind.__qualname__)
        for base in kind.__mro__:
            if base in self._classes or not self._is_own(base):
                continue
            self._classes.add(base)
            self._say(base.__qualname__)
            for name, value in sorted(vars(base).items()):
                member = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
                if isinstance(member, FunctionType) or not name.startswith("_"):
                    self._say(name)
                    self.add(member)

    def _add_function(self, function: FunctionType) -> None:
        self._say("function", function.__module__, function.__qualname__)
        if not self._is_own(function):
            return
        self._say(_source(function))
        self._add_all([function.__defaults__, function.__kwdefaults__])
        self._add_all(cell.cell_contents for cell in function.__closure__ or ())
        for name in sorted(_names(function.__code__)):
            value = function.__globals__.get(name)
            if name in function.__globals__ and not inspect.ismodule(value):
                self._say(name)
                self.add(value)

    def _is_own(self, thing: Any) -> bool:
        return self._package is not None and str(thing.__module__).partition(".")[0] == self._package


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return "/" not in value
    return value is None or isinstance(value, bool | int | float | complex | bytes | np.generic)


def _source(function: FunctionType) -> str:
    """The normalised source of a function, independent of layout and comments."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return ""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a lambda inside a longer expression
        return source
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _names(code: CodeType) -> set[str]:
    """The global names that code uses."""
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)
