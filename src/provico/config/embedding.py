"""How videos are embedded, for every command that does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from provico.defaults import TEST_CLIPS


@dataclass(frozen=True, kw_only=True)
class EmbedOptions:
    """How videos are embedded."""

    num_clips: int | None = None
    """Evenly spaced clips of each video; 10 if not given."""
    short_side: int | None = None
    """Pixels of a frame's shorter side before the centre crop; fits the encoder if not given."""
    num_workers: int | None = None
    """Processes that read clips; what suits the machine if not given."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the network runs; auto takes a GPU if there is one."""
    allow_import: bool = False
    """Allow the encoder to import a network by name, which runs its code."""

    @property
    def clips_of_a_video(self) -> int:
        """`num_clips`, or the customary number."""
        return TEST_CLIPS if self.num_clips is None else self.num_clips
