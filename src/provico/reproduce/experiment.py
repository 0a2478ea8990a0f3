"""An experiment of the paper: a claim, a function that tests it, its result, and a verdict by a rule.

Every experiment has three sizes. `smoke` checks in seconds that the code runs, and proves nothing. `cpu` is
what two cores can do in minutes, on small data and small networks, so it tests the direction of the claim,
not the paper's values. `paper` is the paper's recipe, for users with its data and a GPU.

A claim is divided into checks, each a value with an interval, which the claim predicts to be above zero.
*Reproduced* means that every interval is above zero, *refuted* that one is below it, or that there is no
effect at all. *Not visible here* means that one contains zero: the verdict then states which effect these
videos and seeds could have detected, beside the paper's. *Cannot be tested here* means that data, size or
runs are lacking, and says which. No verdict is written by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from matplotlib.figure import Figure

from provico.evaluation.statistics import Estimate
from provico.files import replace_rows, replace_text
from provico.reproduce.figures import save_figure
from provico.typed_json import finite

if TYPE_CHECKING:
    from provico.reproduce.bench import Bench


Preset = Literal["smoke", "cpu", "paper"]

Recipe = Literal["none", "frozen", "scratch", "paper"]
"""What is trained: nothing; heads on the features of a frozen network; a tiny network from scratch; or the
paper's network with its recipe."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """The size of an experiment at one preset."""

    recipe: Recipe = "none"
    seeds: tuple[int, ...] = (0,)
    splits: tuple[int, ...] = (1,)
    epochs: int | None = None
    """Number of epochs; the recipe's if not given."""
    max_steps: int | None = None
    """Maximum number of steps; no limit if not given."""
    num_clips: int = 10
    """Evenly spaced clips of a test video."""
    num_stored: int | None = None
    """Clips per video with stored features of a frozen network; the recipe's number if not given."""
    backbone: str | None = None
    """Another network than the recipe's."""
    num_videos: int | None = None
    """At most this many test videos, for experiments whose cost grows with them; all if not given."""
    probe_epochs: int = 100
    """Epochs of the linear probe; 0 for no probe."""
    finetune: bool = False
    """Whether recognition is measured by finetuning, as in the paper, instead of the linear probe."""
    is_evidence: bool = True
    """Whether the results can support or refute a claim."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One table or figure of the paper."""

    name: str
    title: str
    source: str
    """The place in the paper: "Table 4, upper part"."""
    claim: str
    """The paper's claim, in one sentence."""
    rule: str
    """When the claim counts as reproduced, in one sentence."""
    sizes: Mapping[Preset, Size]
    run: Callable[[Bench], ExperimentResult]
    needs_data: bool = True
    """Whether it needs videos."""


ClaimVerdict = Literal["reproduced", "refuted", "not visible here", "cannot be tested here"]
Row = Mapping[str, str | float | int | None]


@dataclass(frozen=True)
class Check:
    """One part of a claim: the whole interval of the estimate must be above zero."""

    statement: str
    """What is claimed, such as "R@1 with mining is above that without"."""
    estimate: Estimate | None
    """The effect, in the unit; None if it could not be measured."""
    unit: str = "points"
    obstacle: str = ""
    """Why it could not be measured."""
    paper: float | None = None
    """The paper's effect, in the same unit; None if the paper does not state it."""

    @property
    def holds(self) -> bool | None:
        """Whether the claim holds; None if unknown."""
        return None if self.estimate is None else self.estimate.is_above_zero

    def __str__(self) -> str:
        if self.estimate is None:
            return f"{self.statement}: unknown, since {self.obstacle}"
        paper = f" (the paper: {self.paper:.3g})" if self.paper is not None else ""
        return f"{self.statement}: {self.estimate} {self.unit}".rstrip() + paper

    @property
    def power(self) -> str:
        """The detectable effect, in words."""
        assert self.estimate is not None
        least = self.estimate.detectable
        if self.paper is None:
            return f"an effect of {least:.2g} would be detected in 80 % of such tests"
        seen = "would" if least <= self.paper else "would not"
        return f"an effect of {least:.2g} would be detected in 80 % of such tests, so that the paper's {seen}"


@dataclass(frozen=True, eq=False, kw_only=True)
class ExperimentResult:
    """The return value of an experiment's function."""

    rows: Sequence[Row]
    """The table; a column `paper` has the paper's values, if it states them."""
    checks: Sequence[Check]
    figure: Figure
    caption: str
    """What the figure shows, with the setting."""
    seeds: tuple[int, ...] = ()
    splits: tuple[int, ...] = ()
    cpu_seconds: float = 0.0
    """CPU time of all runs that it uses, whenever they were done."""
    obstacle: str = ""
    """Why the claim cannot be tested with these videos; empty if it can."""
    notes: Sequence[str] = ()
    """Notes that are needed to interpret the results."""


def judge(checks: Sequence[Check], *, obstacle: str = "") -> tuple[ClaimVerdict, str]:
    """The verdict, and one sentence why."""
    if obstacle:
        return "cannot be tested here", _sentence(obstacle)
    measured = [(check, check.estimate) for check in checks if check.estimate is not None]
    opposite = [
        f"{check} ({'the opposite' if estimate.is_below_zero else 'no effect at all'})"
        for check, estimate in measured
        if estimate.high < 0 or estimate.low == estimate.high == 0
    ]
    open_ones = [
        f"{check}; {check.power}"
        for check, estimate in measured
        if estimate.low <= 0 <= estimate.high and estimate.low < estimate.high
    ]
    unknown = [str(check) for check in checks if check.estimate is None]
    if opposite:
        return "refuted", _sentence("; ".join(opposite + open_ones))
    if open_ones:
        return "not visible here", _sentence("; ".join(open_ones))
    if unknown or not checks:
        return "cannot be tested here", _sentence("; ".join(unknown) or "nothing was measured")
    return "reproduced", _sentence("; ".join(map(str, checks)))


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:].rstrip(".") + "."


@dataclass(frozen=True, eq=False, kw_only=True)
class Finding:
    """An experiment's result with its verdict, as stored and shown in the report."""

    experiment: Experiment
    preset: Preset
    size: Size
    data: str
    """The name of the data set."""
    result: ExperimentResult
    verdict: ClaimVerdict
    sentence: str
    command: str

    def summary(self) -> dict[str, Any]:
        """Everything except the figure, as plain values for JSON."""
        return {
            "name": self.experiment.name,
            "title": self.experiment.title,
            "source": self.experiment.source,
            "claim": self.experiment.claim,
            "rule": self.experiment.rule,
            "verdict": self.verdict,
            "why": self.sentence,
            "checks": [
                {
                    "statement": check.statement,
                    "estimate": None if check.estimate is None else asdict(check.estimate),
                    "unit": check.unit,
                    "paper": check.paper,
                    "detectable": None if check.estimate is None else check.estimate.detectable,
                    "holds": check.holds,
                }
                for check in self.result.checks
            ],
            "rows": [dict(row) for row in self.result.rows],
            "caption": self.result.caption,
            "preset": self.preset,
            "size": asdict(self.size),
            "data": self.data,
            "seeds": list(self.result.seeds),
            "splits": list(self.result.splits),
            "cpu_seconds": round(self.result.cpu_seconds, 1),
            "command": self.command,
            "notes": list(self.result.notes),
        }

    def write(self, folder: Path) -> None:
        """NAME.csv, NAME.json, NAME.png and NAME.svg, the json last, so that it implies the others."""
        folder.mkdir(parents=True, exist_ok=True)
        name = self.experiment.name
        columns = list(dict.fromkeys(column for row in self.result.rows for column in row))
        replace_rows(folder / f"{name}.csv", columns, self.result.rows)
        save_figure(self.result.figure, folder / name)
        write_json(folder / f"{name}.json", self.summary())


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically, without nan, which JSON does not have."""
    replace_text(path, json.dumps(finite(value), indent=1, allow_nan=False) + "\n")
