"""The verb that puts the paper's claims to the test."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from provico.cli.arguments import Json, announce, print_json
from provico.errors import ConfigError
from provico.extras import require


def reproduce(
    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="NAME|all")] = None,
    *,
    preset: Literal["smoke", "cpu", "paper"] = "cpu",
    data: Path | None = None,
    out: Path = Path("reproduced"),
    seeds: tuple[int, ...] | None = None,
    show_list: Annotated[bool, tyro.conf.arg(name="list")] = False,
    as_json: Json = False,
) -> None:
    """Test the paper's claims: run one of its experiments, or all, and report the verdicts.

    An interrupted run resumes when the same command is given again. docs/reproduce.md describes the rules.

    Args:
        name: an experiment, or all.
        preset: smoke shows that it runs; cpu takes minutes; paper is the paper's recipe and needs its data.
        data: videos with labels; the demo set, drawn into the output folder, if not given.
        out: folder for csv, json, figures, runs and report.html.
        seeds: instead of the preset's.
        show_list: show all experiments with the claim that each tests.
    """
    if show_list:
        _show_list(as_json)
        return
    if name is None:
        raise ConfigError("Say which experiment to run, or all. provico reproduce --list shows them.")
    require("plots", what="An experiment, which draws figures,")
    from provico.processes import keep_freed_memory
    from provico.progress import progress_bar
    from provico.reproduce.report import show_findings
    from provico.reproduce.reproduce import reproduce as run

    keep_freed_memory()
    with progress_bar("Reproducing") as progress:
        findings = run(
            name, preset=preset, data=data, out=out, seeds=seeds, announce=announce, progress=progress
        )
    if as_json:
        print_json([finding.summary() for finding in findings])
    else:
        show_findings(findings, out / "report.html")


def _show_list(as_json: bool) -> None:
    from provico.reproduce.registry import EXPERIMENTS
    from provico.reproduce.report import show_experiments

    if as_json:
        print_json(
            [{"name": each.name, "source": each.source, "claim": each.claim} for each in EXPERIMENTS.values()]
        )
    else:
        show_experiments(EXPERIMENTS.values())
