"""Networks of other libraries."""

from __future__ import annotations

import pytest

from ..tiny_networks import Network, saver


@pytest.fixture(scope="session")
def network(made_once) -> Network:
    """The folder of a tiny network of a model type."""
    return lambda model_type: made_once(f"network-{model_type}", saver(model_type))
