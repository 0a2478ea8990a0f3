"""What an experiment of the paper is here: a claim, the paper's own values, and a function that tests it.

Every experiment runs at three sizes. `smoke` shows in seconds that the code runs, and proves nothing. `cpu`
is what two cores can do in minutes, on small data and small networks, and so tests the claim's direction, not
the paper's numbers. `paper` is the paper's own recipe, for whoever has its data and a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from provico.reproduce.bench import Bench
    from provico.reproduce.finding import ExperimentResult

Preset = Literal["smoke", "cpu", "paper"]
PRESETS: tuple[Preset, ...] = ("smoke", "cpu", "paper")

Recipe = Literal["none", "frozen", "scratch", "paper"]
"""What is trained: nothing; heads on the features of a frozen network; a tiny network from scratch; or the
paper's network as the paper says."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large an experiment is at one preset."""

    recipe: Recipe = "none"
    seeds: tuple[int, ...] = (0,)
    splits: tuple[int, ...] = (1,)
    epochs: int | None = None
    """As the recipe says if not given."""
    max_steps: int | None = None
    """No limit if not given."""
    num_clips: int = 10
    """Evenly spaced clips of each video when it is tested."""
    num_stored: int | None = None
    """Clips of each video whose features a frozen network stores; as the recipe says if not given."""
    backbone: str | None = None
    """Another network than the recipe's."""
    num_videos: int | None = None
    """At most this many test videos, where the cost grows with each; all if not given."""
    probe_epochs: int = 100
    """Of the linear probe; none is trained if 0."""
    finetune: bool = False
    """Whether recognition is measured by finetuning, as in the paper, and not by the linear probe."""
    is_evidence: bool = True
    """Whether the numbers can speak for or against a claim at all."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One table or figure of the paper."""

    name: str
    title: str
    source: str
    """Where it is in the paper: "Table 4, upper part"."""
    claim: str
    """What the paper says it shows, in one sentence."""
    rule: str
    """When the claim counts as reproduced, in one sentence."""
    sizes: Mapping[Preset, Size]
    run: Callable[[Bench], ExperimentResult]
    needs_data: bool = True
    """Whether it looks at videos."""
