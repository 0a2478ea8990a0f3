"""The package's front page is complete."""

from __future__ import annotations

import provico.models as models


def test_every_public_name_is_there_and_sorted() -> None:
    assert len(set(models.__all__)) == len(models.__all__)
    for name in models.__all__:
        assert getattr(models, name) is not None
    reexported = {
        name
        for name, value in vars(models).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("provico.models")
    }
    assert reexported <= set(models.__all__)
