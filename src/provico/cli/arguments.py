"""What the verbs share: choosing videos and printing results."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import tyro

from provico.config import DataChoice
from provico.config.data import EmbedOptions
from provico.config.evaluation import SetsChoice
from provico.errors import CatalogError

if TYPE_CHECKING:
    from provico.data.catalog import Catalog


class Summarised(Protocol):
    """A result that can be written as JSON."""

    def summary(self) -> dict[str, Any]:
        """As plain values."""
        ...


Found = TypeVar("Found", bound=Summarised)
Videos = Annotated[DataChoice, tyro.conf.arg(name="video")]
"""The name is the title of these options in the help, here and below."""
Embedding = Annotated[EmbedOptions, tyro.conf.arg(name="embedding")]
Sets = Annotated[SetsChoice, tyro.conf.arg(name="video")]
Json = Annotated[bool, tyro.conf.arg(name="json", help="Print the result as JSON.")]


def open_choice(choice: DataChoice, *, features: bool = False) -> Catalog:
    """Open the chosen videos and print how many are missing. `features` also allows a file of features."""
    from provico.data.catalog import open_catalog
    from provico.data.layouts.own import FEATURES_LAYOUT

    catalog = open_catalog(
        choice.data,
        layout=choice.layout,
        split=choice.split,
        subset=choice.subset,
        allow_missing=choice.allow_missing,
        part=choice.number_and_parts,
    )
    if catalog.layout == FEATURES_LAYOUT and not features:
        raise CatalogError(
            f"{choice.data} holds features, but this command needs videos. `pretrain`, `embed`, "
            "`uncertainty` and `evaluate` take features."
        )
    if catalog.missing:
        total = len(catalog) + len(catalog.missing)
        print(f"{len(catalog.missing)} of {total} listed videos are missing.", file=sys.stderr)
    return catalog


def named_option(option: str, given: Sequence[str], *, default: str) -> str:
    """The value of an option that must be known before the others are parsed."""
    for number, argument in enumerate(given):
        if argument == option and number + 1 < len(given):
            return given[number + 1]
        if argument.startswith(f"{option}="):
            return argument.removeprefix(f"{option}=")
    return default


def announce(text: str) -> None:
    """Print a message to stderr: it is not part of the result."""
    print(text, file=sys.stderr)


def give(found: Found, show: Callable[[Found], None], *, as_json: bool) -> None:
    """Print the result, as JSON or as text."""
    print_json(found.summary()) if as_json else show(found)


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=2))
