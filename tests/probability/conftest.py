"""What the probability tests share: the settings of hypothesis, and golden numbers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

# No deadline: how long a call takes says nothing about whether the law holds.
hypothesis.settings.register_profile("laws", deadline=None, max_examples=15)
hypothesis.settings.load_profile("laws")

Golden = Callable[[str, dict[str, list[float]]], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    with contextlib.suppress(ValueError):  # another test folder may have added it already
        parser.addoption("--update-golden", action="store_true", help="write the golden numbers anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare named lists of numbers with those in golden/<name>.json, or write them anew."""
    folder = Path(__file__).parent / "golden"

    def check(name: str, values: dict[str, list[float]]) -> None:
        path = folder / f"{name}.json"
        if request.config.getoption("--update-golden", False):
            path.write_text(json.dumps(values, indent=1) + "\n")
        expected = json.loads(path.read_text())
        assert values.keys() == expected.keys(), "run `pytest tests/probability --update-golden`, explain why"
        for key, numbers in values.items():
            assert numbers == pytest.approx(expected[key], rel=1e-9, abs=1e-12), key

    return check
