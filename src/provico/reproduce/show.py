"""Experiments and findings as tables for people, on stdout."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from provico.reproduce.experiment import Experiment
from provico.reproduce.finding import Finding

_STYLES = {"reproduced": "green", "not reproduced": "red", "cannot be tested here": "dim"}


def show_experiments(experiments: Iterable[Experiment]) -> None:
    """Every experiment with the claim that it tests."""
    table = Table("experiment", "in the paper", "claim", box=None)
    for experiment in experiments:
        table.add_row(experiment.name, experiment.source, experiment.claim)
    Console().print(table)


def show_findings(findings: Iterable[Finding], report: Path) -> None:
    """The verdicts, each with its reason."""
    console = Console()
    for finding in findings:
        style = _STYLES[finding.verdict]
        console.print(f"{finding.experiment.name}: [{style}]{finding.verdict}[/{style}]", soft_wrap=True)
        console.print(escape(f"  {finding.sentence}"), soft_wrap=True)
    console.print(escape(f"Report written to {report}"), soft_wrap=True)
