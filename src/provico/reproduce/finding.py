"""What an experiment found, and the verdict that follows from it by a rule.

A claim is taken apart into checks, each a number with an interval and a side of zero on which the claim puts
it. *Reproduced* means that every interval lies wholly on its side. *Not reproduced* means that one does not:
either the effect is not there, or these videos and seeds cannot show it. *Cannot be tested here* means that
data, size or runs are lacking, and says which. No verdict is written by hand.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from matplotlib.figure import Figure

from provico.files import replace_text
from provico.reproduce.experiment import Experiment, Preset, Size
from provico.reproduce.figures import save_figure
from provico.reproduce.intervals import Estimate

Verdict = Literal["reproduced", "not reproduced", "cannot be tested here"]
Row = Mapping[str, str | float | int | None]


@dataclass(frozen=True)
class Check:
    """One part of a claim: the estimate must lie above zero, with its whole interval."""

    statement: str
    """What is claimed, such as "R@1 with mining is above that without"."""
    estimate: Estimate | None
    """By how much, in the unit; None where it could not be measured."""
    unit: str = "points"
    obstacle: str = ""
    """Why it could not be measured."""

    @property
    def holds(self) -> bool | None:
        """Whether the claim is borne out; None where that is unknown."""
        return None if self.estimate is None else self.estimate.is_above_zero

    def __str__(self) -> str:
        if self.estimate is None:
            return f"{self.statement}: unknown, since {self.obstacle}"
        return f"{self.statement}: {self.estimate} {self.unit}".rstrip()


@dataclass(frozen=True, eq=False, kw_only=True)
class ExperimentResult:
    """What the function of an experiment gives back."""

    rows: Sequence[Row]
    """The table; a column `paper` holds the paper's values where it gives some."""
    checks: Sequence[Check]
    figure: Figure
    caption: str
    """What the figure shows, with the setting."""
    seeds: tuple[int, ...] = ()
    splits: tuple[int, ...] = ()
    cpu_seconds: float = 0.0
    """Of all runs that went into it, whenever they were done."""
    obstacle: str = ""
    """Why the claim cannot be tested with these videos; empty if it can."""
    notes: Sequence[str] = ()
    """What a reader must know to read the numbers rightly."""


def judge(checks: Sequence[Check], *, obstacle: str = "") -> tuple[Verdict, str]:
    """The verdict, and one sentence why."""
    if obstacle:
        return "cannot be tested here", _sentence(obstacle)
    failed = [check for check in checks if check.holds is False]
    unknown = [check for check in checks if check.holds is None]
    if failed:
        reasons = "; ".join(f"{check} ({_why(check)})" for check in failed)
        return "not reproduced", _sentence(reasons)
    if unknown or not checks:
        return "cannot be tested here", _sentence("; ".join(map(str, unknown)) or "nothing was measured")
    return "reproduced", _sentence("; ".join(map(str, checks)))


def _why(check: Check) -> str:
    assert check.estimate is not None
    return "the opposite" if check.estimate.is_below_zero else "the interval holds zero"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:].rstrip(".") + "."


@dataclass(frozen=True, eq=False, kw_only=True)
class Finding:
    """An experiment's result with its verdict: what is written, and shown in the report."""

    experiment: Experiment
    preset: Preset
    size: Size
    data: str
    """The name of the data set."""
    result: ExperimentResult
    verdict: Verdict
    sentence: str
    command: str

    def summary(self) -> dict[str, Any]:
        """Everything but the figure, as plain values for JSON."""
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
        """NAME.csv, NAME.json, NAME.png and NAME.svg, the json last, so that it vouches for the others."""
        folder.mkdir(parents=True, exist_ok=True)
        name = self.experiment.name
        columns = list(dict.fromkeys(column for row in self.result.rows for column in row))
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.result.rows)
        save_figure(self.result.figure, folder / name)
        write_json(folder / f"{name}.json", self.summary())


def write_json(path: Path, value: Any) -> None:
    """Atomically, and without nan, which JSON does not know."""
    replace_text(path, json.dumps(_finite(value), indent=1, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return value
