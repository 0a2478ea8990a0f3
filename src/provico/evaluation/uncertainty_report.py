"""The evaluation of an uncertainty as text, files and a figure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from provico.embedding.report import check_folder
from provico.evaluation.result import columns
from provico.evaluation.uncertainty import UncertaintyEvaluation
from provico.files import replace_rows, replace_text
from provico.typed_json import finite

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def summary(found: UncertaintyEvaluation) -> dict[str, Any]:
    """As plain values, for JSON, which has no nan."""
    values: dict[str, Any] = {
        "about": found.about,
        "num_queries": found.num_queries,
        "num_errors": found.num_errors,
        "num_groups": found.num_groups,
        "num_failed": found.num_failed,
        "hit_share": found.hit_share,
        "least_aurc": found.least_aurc,
        "doubts": [
            {
                "name": doubt.name,
                "kind": doubt.kind,
                "auroc": asdict(doubt.auroc),
                "aurc": doubt.aurc,
                "excess_aurc": asdict(doubt.excess),
                "auroc_minus_uncertainty": asdict(doubt.advantage),
            }
            for doubt in found.doubts
        ],
        "probabilities": [
            {
                "name": one.name,
                "calibration_error": one.quality.calibration_error,
                "log_loss": one.quality.log_loss,
                "mean_probability": one.mean_probability,
                "bins": [asdict(part) for part in one.bins],
            }
            for one in found.probabilities
        ],
        "verdicts": list(found.verdicts),
    }
    plain: dict[str, Any] = finite(values)
    return plain


def table(found: UncertaintyEvaluation) -> str:
    """A table of doubts, the best first, then probabilities, then verdicts."""
    ranked = sorted(found.doubts, key=lambda doubt: -np.nan_to_num(doubt.auroc.value, nan=-1.0))
    doubts = [
        [
            doubt.name,
            "" if doubt.kind == "ours" else "trivial baseline",
            f"{doubt.auroc:.3f}",
            f"{doubt.aurc:.4f}",
            f"{doubt.excess:.3f}",
        ]
        for doubt in ranked
    ]
    probabilities = [
        [
            one.name,
            f"{one.quality.calibration_error:.3f}",
            f"{one.quality.log_loss:.3f}",
            f"{one.mean_probability:.3f}",
        ]
        for one in found.probabilities
    ]
    lines = [
        f"{found.num_errors} of {found.num_queries} queries have a wrong best hit; {found.num_groups} "
        f"groups; {found.num_failed} videos failed.",
        "",
        *columns([["doubt", "", "R-AUROC", "AURC", "AURC above the lowest"], *doubts]),
        "",
        f"{100 * found.hit_share:.1f} % of the hits are right. The stated probabilities:",
        *columns([["probability", "calibration error", "log loss", "mean stated"], *probabilities]),
        "",
        *found.verdicts,
        "Calibration does not change the order of hits, so R-AUROC and AURC are those of the match "
        "probability.",
        f"{found.about}. Brackets: 95 % bootstrap intervals over groups.",
    ]
    return "\n".join(lines) + "\n"


def write(found: UncertaintyEvaluation, folder: Path) -> None:
    """doubts.csv, risk_coverage.csv, reliability.csv, figure.png and .svg, results.txt and results.json."""
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    header = [
        "doubt",
        "kind",
        "auroc",
        "auroc_low",
        "auroc_high",
        "aurc",
        "excess_aurc",
        "excess_low",
        "excess_high",
    ]
    rows: list[Sequence[Any]] = [
        (
            *(doubt.name, doubt.kind, doubt.auroc.value, doubt.auroc.low, doubt.auroc.high),
            *(doubt.aurc, doubt.excess.value, doubt.excess.low, doubt.excess.high),
        )
        for doubt in found.doubts
    ]
    _write_csv(folder / "doubts.csv", header, rows)
    coverages = np.arange(1, found.num_queries + 1) / found.num_queries
    risks = zip(coverages, *(doubt.risk.tolist() for doubt in found.doubts), strict=True)
    _write_csv(
        folder / "risk_coverage.csv", ["coverage", *(doubt.name for doubt in found.doubts)], list(risks)
    )
    bins = [(one.name, *asdict(part).values()) for one in found.probabilities for part in one.bins]
    fields = list(asdict(found.probabilities[0].bins[0]))
    _write_csv(folder / "reliability.csv", ["probability", *fields], bins)
    from provico.embedding.report_plots import save

    figure = draw(found)
    save(figure, folder / "figure.png")
    save(figure, folder / "figure.svg")
    replace_text(folder / "results.txt", table(found))
    replace_text(folder / "results.json", json.dumps(summary(found), indent=1) + "\n")


def draw(found: UncertaintyEvaluation) -> Figure:
    """Draw risk over coverage for each doubt, and a reliability diagram."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 5.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_risk(left, found)
    _draw_reliability(right, found)
    figure.suptitle(found.about, fontsize="small")
    return figure


def _draw_risk(axes: Axes, found: UncertaintyEvaluation) -> None:
    coverages = np.arange(1, found.num_queries + 1) / found.num_queries
    for doubt in found.doubts:
        is_ours = doubt.kind == "ours"
        axes.plot(
            coverages,
            doubt.risk.numpy(),
            linestyle="-" if is_ours else ":",
            linewidth=2.2 if doubt.name == "uncertainty" else 1.2,
            label=f"{doubt.name} ({doubt.aurc:.3f})",
        )
    axes.axhline(found.num_errors / found.num_queries, color="grey", linewidth=1, label="all answered")
    axes.set_xlabel("coverage (share of queries answered, by increasing doubt)")
    axes.set_ylabel("risk (share of wrong answers)")
    axes.set_title(f"Risk and coverage of {found.num_queries} queries (area)\ndotted: trivial baselines")
    axes.set_xlim(0, 1)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="x-small")


def _draw_reliability(axes: Axes, found: UncertaintyEvaluation) -> None:
    axes.plot([0, 1], [0, 1], color="grey", linewidth=1, label="perfect calibration")
    for one in found.probabilities:
        promised = np.array([part.mean_probability for part in one.bins])
        share = np.array([part.share for part in one.bins])
        reach = np.array([[part.share - part.share_low, part.share_high - part.share] for part in one.bins]).T
        label = f"{one.name} (error {one.quality.calibration_error:.3f})"
        axes.errorbar(
            promised, share, yerr=np.maximum(reach, 0), marker="o", markersize=4, capsize=2, label=label
        )
    axes.set_xlabel("stated probability of a match")
    axes.set_ylabel("observed share of right hits")
    axes.set_title("Reliability, in bins with equally many hits\n95 % intervals, adjusted for groups")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.legend(fontsize="x-small")


def _write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    replace_rows(path, header, (dict(zip(header, row, strict=True)) for row in rows))
