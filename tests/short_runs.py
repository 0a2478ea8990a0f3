"""Runs whose last step is short and whose page has no charts: both take longer than a small run itself.

And servers that wait for their children as long as a busy machine needs.
"""

from __future__ import annotations

from provico.explorer.settings import ExplorerSettings
from provico.training import report, variance

SHORT_LAST_STEP = {
    "NUM_LOOKS": 4,
    "NUM_LOOKS_LEARNT": 4,
    "_VIDEOS_AT_ONCE": 4,
    "_STEPS": 10,
    "_CURVE_STEPS": 10,
}
"""Values of `provico.training.variance`: enough for all but what depends on how well the last step learns.
They are the same in all processes of the tests, so that runs are equal."""


def no_chart(*_: object) -> None:
    """In the place of `report._draw`."""


def shorten() -> None:
    """In this process, for good."""
    for name, value in SHORT_LAST_STEP.items():
        setattr(variance, name, value)
    report._draw = no_chart


def be_patient() -> None:
    """In this process, for good: a page to which a frame is refused would complain."""
    defaults = ExplorerSettings.__init__.__kwdefaults__
    assert defaults is not None
    for name in ("upload_seconds", "frame_seconds"):
        assert name in defaults
        defaults[name] = 600.0
