"""The core works without what is optional, and who lacks something learns what to type."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from provico.errors import MissingDependencyError
from provico.extras import EXTRAS, lacking, missing, require

from .test_architecture import imported, modules

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def names(requirements: list[str]) -> set[str]:
    """The packages of requirements such as `torch>=2.6,<3`, without our own extras."""
    found = {re.split(r"[\[<>=~! ]", line)[0].lower().replace("_", "-") for line in requirements}
    return found - {"provico"}


@pytest.mark.parametrize("extra", EXTRAS)
def test_each_extra_brings_what_is_imported(extra: str) -> None:
    declared = names(PROJECT["optional-dependencies"][extra])
    brought = {
        name.lower().replace("_", "-")
        for package in set(EXTRAS[extra]) - set(missing(extra))
        for name in packages_distributions()[package]
    }
    assert brought <= declared
    assert len(declared) == len(EXTRAS[extra])
    assert not declared & names(PROJECT["dependencies"])


NEEDED_WHOLE = {"explorer", "reproduce", "embedding.report_plots", "models.backbones.efficientnet_graph"}
"""What nothing else imports when it is loaded, and whose commands ask for their extra first."""


def test_the_core_loads_nothing_that_is_optional() -> None:
    optional = {package for packages in EXTRAS.values() for package in packages}
    loading = {
        name
        for name, path in modules().items()
        for target in imported(path, at_top=True)
        if target.split(".")[0] in optional or target.removeprefix("provico.") in NEEDED_WHOLE
    }
    assert {
        name for name in loading if name not in NEEDED_WHOLE and name.split(".")[0] not in NEEDED_WHOLE
    } == set()


def test_all_is_all() -> None:
    (everything,) = PROJECT["optional-dependencies"]["all"]
    listed = set(everything.partition("[")[2].rstrip("]").split(","))
    assert listed | {"search"} == set(EXTRAS)  # the page brings the search


def test_only_constraints_pin() -> None:
    """A library that pins cannot be installed beside another one that does."""
    lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    required = [line for lines in lists for line in lines]
    assert [line for line in required if "==" in line] == []
    # A new major version of a dependency is not taken unseen.
    lists = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][name] for name in EXTRAS)]
    required = [line for lines in lists for line in lines]
    assert [line for line in required if "<" not in line and not line.startswith("provico[")] == []
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in pinned if line and not line.startswith("#") and "==" not in line] == []


def test_a_missing_package_is_one_sentence_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lacking("plots", what="A chart") is None
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "plotly" else found(name))
    assert missing("explorer") == ("plotly",)
    with pytest.raises(MissingDependencyError) as caught:
        require("explorer", what="The page")
    assert str(caught.value) == "The page needs plotly. Run: pip install 'provico[explorer]'"
