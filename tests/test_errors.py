"""The drawn tree is the tree of the classes, and an unknown name is answered with the nearest."""

from __future__ import annotations

import re

from provico import errors
from provico.errors import ProvicoError, did_you_mean


def drawn_tree() -> list[tuple[str, str]]:
    """Each class of the drawing with its parent, from the top."""
    found: list[tuple[str, str]] = []
    above: dict[int, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"( {4}[ │├└─]*)(\w+Error) ", line):
            depth = (len(match[1]) - 4) // 4
            above[depth] = match[2]
            found.append((match[2], above.get(depth - 1, "Exception")))
    return found


def classes(parent: type[ProvicoError] = ProvicoError) -> list[tuple[str, str]]:
    """Each class of the module with its parent, in the order of their definitions."""
    children = [child for child in parent.__subclasses__() if child.__module__ == errors.__name__]
    below = [pair for child in children for pair in classes(child)]
    return [(parent.__name__, parent.__bases__[0].__name__), *below]


def test_the_drawn_tree_is_that_of_the_classes() -> None:
    assert drawn_tree() == classes()


def test_an_unknown_name_is_answered_with_the_nearest_or_all() -> None:
    known = ("retrieval", "linear")
    assert did_you_mean("retreival", known) == "Did you mean retrieval?"
    assert did_you_mean("retreival", known, prefix="evaluate ") == "Did you mean evaluate retrieval?"
    assert did_you_mean("xyz", known) == "There are retrieval, linear."
    assert did_you_mean("xyz", known, otherwise="There are 2.") == "There are 2."
