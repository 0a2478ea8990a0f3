"""Comparisons of two variants: with and without mining, match and cosine, ProViCo and InfoNCE.

Tables 1-3, A2 and A3. The paper's tables compare with published figures of other networks; what can be tested
at any size is the claim behind them: with the same network, videos and steps, the probabilistic objective is
better than the deterministic one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from provico.evaluation.paper import paper_rows
from provico.evaluation.statistics import Estimate, over_groups
from provico.reproduce.bench import Bench
from provico.reproduce.experiment import Check, Experiment, ExperimentResult, Preset, Row, Size
from provico.reproduce.figures import OURS, PAPER, add_axes, new_figure
from provico.reproduce.knobs import knob_sizes
from provico.reproduce.measure import RANKS, Variant, run_variant
from provico.reproduce.settings import changed, starting_point

Table = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TableRow:
    """One row of the table: its name, and by column per cent [seeds, videos] and the paper's values."""

    name: str
    tables: Mapping[str, Table]
    paper: Mapping[str, float]


def run_mining(bench: Bench) -> ExperimentResult:
    """The second stage with hard positives, and without."""
    on = _variant(bench, "with mining")
    off = _variant(bench, "without mining", mining={"mine_from": None})
    recalls = {"without": (61.2, 75.5, 84.0, 88.7), "with": (64.7, 78.5, 87.9, 91.1)}
    top1 = {"without": 84.2, "with": 86.1}

    def line(variant: Variant) -> TableRow:
        word = variant.name.split()[0]
        paper = {"top-1": top1[word]} | _by_rank("match", recalls[word])
        return TableRow(variant.name, {"top-1": variant.top1()} | _recalls(variant, "match"), paper)

    return _compare(bench, [off, on], line, columns=("top-1", "R@1 match"))


def run_metric(bench: Bench) -> ExperimentResult:
    """One set of embeddings, ranked by match probability and by cosine."""
    variant = _variant(bench, "ProViCo")
    paper = {"cosine": (63.1, 77.0, 86.3, 89.8), "match": (64.7, 78.5, 87.9, 91.1)}

    def line(metric: str) -> TableRow:
        tables = {f"R@{k}": variant.recall(metric, k) for k in RANKS}
        known = {f"R@{k}": value for k, value in zip(RANKS, paper[metric], strict=True)}
        return TableRow(metric, tables, known)

    lines = [line("cosine"), line("match")] if variant.is_healthy else []
    return _result(bench, lines, variant.groups, [variant], columns=("R@1",))


def run_recognition(bench: Bench) -> ExperimentResult:
    """Top-1 of a classifier on ProViCo and on InfoNCE."""
    ours, theirs = _variant(bench, "ProViCo"), _variant(bench, "InfoNCE", objective={"method": "infonce"})
    # The same network, R(2+1)D, with the contrastive method nearest to ours: finetuned on UCF101 TCLR, and
    # in the linear probe on Kinetics-400 rho-MoCo.
    finetuned, linear = {"ProViCo": 86.1, "InfoNCE": 82.8}, {"ProViCo": 65.7, "InfoNCE": 57.2}
    paper = finetuned if bench.size.finetune else linear

    def line(variant: Variant) -> TableRow:
        return TableRow(variant.name, {"top-1": variant.top1()}, {"top-1": paper[variant.name]})

    return _compare(bench, [theirs, ours], line, columns=("top-1",))


def run_retrieval(bench: Bench) -> ExperimentResult:
    """R@k of ProViCo by match probability, and of InfoNCE by cosine."""
    ours, theirs = _variant(bench, "ProViCo"), _variant(bench, "InfoNCE", objective={"method": "infonce"})
    # R3D-18 on UCF101: the paper's ProViCo, and the best contrastive method without a second branch (TCLR).
    paper = {"ProViCo": (63.8, 75.1, 84.8, 89.2), "InfoNCE": (56.2, 72.2, 79.0, 85.3)}

    def line(variant: Variant) -> TableRow:
        metric = "match" if variant.name == "ProViCo" else "cosine"
        tables = {f"R@{k}": variant.recall(metric, k) for k in RANKS}
        known = {f"R@{k}": value for k, value in zip(RANKS, paper[variant.name], strict=True)}
        return TableRow(variant.name, tables, known)

    return _compare(bench, [theirs, ours], line, columns=("R@1",))


def _variant(bench: Bench, name: str, **groups: dict[str, Any]) -> Variant:
    configs = [changed(starting_point(bench, seed=seed), **groups) for seed in bench.size.seeds]
    return run_variant(bench, name, configs)


def _recalls(variant: Variant, metric: str) -> dict[str, Table]:
    return {f"R@{k} {metric}": variant.recall(metric, k) for k in RANKS}


def _by_rank(metric: str, values: Sequence[float]) -> dict[str, float]:
    return {f"R@{k} {metric}": value for k, value in zip(RANKS, values, strict=True)}


def _compare(
    bench: Bench, variants: Sequence[Variant], line: Any, *, columns: Sequence[str]
) -> ExperimentResult:
    """Compare variants; the claim is that the last one is better."""
    healthy = all(variant.is_healthy for variant in variants)
    lines = [line(variant) for variant in variants] if healthy else []
    return _result(bench, lines, variants[0].groups, variants, columns=columns)


def _result(
    bench: Bench,
    lines: Sequence[TableRow],
    groups: Sequence[str],
    variants: Sequence[Variant],
    *,
    columns: Sequence[str],
) -> ExperimentResult:
    """The result: table, checks of some columns, and figure."""
    measure = "finetuning" if bench.size.finetune else "linear probe"
    caption = (
        f"Per cent of correct test videos (top-1: {measure}; R@k: a video of the class is among the k "
        f"nearest); 95 % intervals over groups of videos and {len(bench.size.seeds)} seed(s), splits "
        f"{', '.join(map(str, bench.splits))}. Orange: the paper's values, on its own data and network."
    )
    estimates = {
        line.name: {name: over_groups(table, groups) for name, table in line.tables.items()} for line in lines
    }
    failures = [failure for variant in variants for failure in variant.failures]
    return ExperimentResult(
        rows=[_row(line, estimates[line.name]) for line in lines] + _published(bench),
        checks=[_check(lines, name, groups) for name in columns] if lines else (),
        figure=_draw(lines, estimates, caption),
        caption=caption,
        seeds=bench.size.seeds,
        splits=bench.splits,
        cpu_seconds=sum(variant.cpu_seconds for variant in variants),
        obstacle=f"training was stopped: {failures[0]}" if failures else "",
    )


def _row(line: TableRow, estimates: Mapping[str, Estimate]) -> Row:
    row: dict[str, str | float | None] = {"": line.name}
    for name, estimate in estimates.items():
        row[name] = f"{estimate:.1f}"
        row[f"paper: {name}"] = line.paper.get(name)
    return row


def _published(bench: Bench) -> list[Row]:
    """The paper's figures for these videos; none for a part of a data set."""
    test = bench.sets(bench.splits[0]).test
    return [
        {"": f"paper: {row.backbone}, pretrained on {row.pretrained_on}, {protocol}", **row.figures}
        for protocol in ("linear", "finetune", "retrieval")
        for row in paper_rows(protocol, test)
    ]


def _check(lines: Sequence[TableRow], column: str, groups: Sequence[str]) -> Check:
    worse, better = lines
    gain = over_groups(better.tables[column] - worse.tables[column], groups)
    paper = round(better.paper[column] - worse.paper[column], 2)
    return Check(f"{column} is higher {_phrase(better.name)} than {_phrase(worse.name)}", gain, paper=paper)


def _phrase(name: str) -> str:
    return name if name.startswith("with") else f"for {name}"


def _draw(lines: Sequence[TableRow], estimates: Mapping[str, Mapping[str, Estimate]], caption: str) -> Figure:
    figure = new_figure(caption)
    (axis,) = add_axes(figure)
    axis.set_ylabel("Test videos that are right (%)")
    axis.set_xlabel("Measure")
    columns = list(lines[0].tables) if lines else []
    for number, line in enumerate(lines):
        positions = np.arange(len(columns)) + (number - 0.5) * 0.36
        found = [estimates[line.name][name] for name in columns]
        values = [estimate.value for estimate in found]
        spread = [[e.value - e.low for e in found], [e.high - e.value for e in found]]
        axis.bar(
            positions,
            values,
            0.34,
            yerr=np.maximum(spread, 0),
            capsize=3,
            color=OURS,
            alpha=0.45 + 0.4 * number,
            label=f"ours: {line.name}",
        )
        known = [line.paper.get(name, np.nan) for name in columns]
        axis.plot(positions, known, "s", color=PAPER, alpha=0.5 + 0.5 * number, label=f"paper: {line.name}")
    axis.set_xticks(range(len(columns)), columns)
    axis.set_ylim(0, 130)  # room for the legend
    axis.set_yticks(range(0, 101, 20))
    axis.legend(ncols=2, fontsize=7, loc="upper left")
    return figure


_RULE = "Reproduced if the whole 95 % interval of the paired difference is above zero{}."


def _sizes(backbone: str) -> dict[Preset, Size]:
    return knob_sizes(backbone, cpu_seeds=(0, 1))


MINING = Experiment(
    name="mining",
    title="Hard positives",
    source="Table A2",
    claim="Mining positive pairs by probabilistic distance improves recognition and, more so, retrieval.",
    rule=_RULE.format(", for top-1 and for R@1"),
    sizes=_sizes("r2plus1d18"),
    run=run_mining,
)
METRIC = Experiment(
    name="metric",
    title="Match probability or cosine",
    source="Table A3",
    claim="Retrieval by match probability is better than by the cosine of means.",
    rule=_RULE.format(", for R@1"),
    sizes=_sizes("r2plus1d18"),
    run=run_metric,
)
RECOGNITION = Experiment(
    name="recognition",
    title="Recognition against a deterministic objective",
    source="Tables 1 and 2",
    claim="With the same network, the probabilistic objective recognises actions better.",
    rule=_RULE.format(", for top-1 of ProViCo over InfoNCE in the same loop"),
    sizes=_sizes("r2plus1d18"),
    run=run_recognition,
)
RETRIEVAL = Experiment(
    name="retrieval",
    title="Retrieval against a deterministic objective",
    source="Table 3",
    claim="With the same network, the probabilistic embedding finds videos of the same class better.",
    rule=_RULE.format(", for R@1 of ProViCo by match over InfoNCE by cosine"),
    sizes=_sizes("r3d18"),
    run=run_retrieval,
)
