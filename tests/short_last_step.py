"""A short last step of pretraining: enough for all but what depends on how well it learns."""

from __future__ import annotations

from provico.training import variance

SHORT = {"NUM_LOOKS": 4, "_VIDEOS_AT_ONCE": 4, "_STEPS": 10, "_CURVE_STEPS": 10}
"""Values of `provico.training.variance`, the same in all processes of the tests, so that runs are equal."""


def shorten() -> None:
    """In this process, for good."""
    for name, value in SHORT.items():
        setattr(variance, name, value)
