"""Ablations: one setting is varied, everything else is fixed (tables 4, A1 and A2).

At CPU sizes, heads over frozen features are trained, and recognition is measured by the linear probe instead
of the paper's finetuning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.figure import Figure

from provico.config import PretrainConfig
from provico.evaluation.statistics import Estimate
from provico.reproduce.bench import Bench
from provico.reproduce.experiment import Check, Experiment, ExperimentResult, Preset, Row, Size
from provico.reproduce.figures import OURS, PAPER, RIVAL, add_axes, new_figure, points_with_intervals
from provico.reproduce.measure import Variant, difference, run_variant
from provico.reproduce.settings import BATCH_SIZE, changed, starting_point, with_batch_size, with_form

Turn = Callable[[PretrainConfig, float], PretrainConfig]


@dataclass(frozen=True, kw_only=True)
class Knob:
    """A varied setting, the paper's measurements, and its conclusion."""

    symbol: str
    turn: Turn
    paper: Mapping[float, float | None]
    """Value to accuracy in per cent; None if the paper does not state it."""
    better: float
    worse: float
    """The claim is that the first of these values is better than the second."""
    is_logarithmic: bool = False
    diverges: float | None = None
    """A value at which training diverges, according to the paper."""
    num_videos_needed: int = 0
    """Training videos that are needed for the largest batch."""
    notes: tuple[str, ...] = ()


def turn_beta(config: PretrainConfig, value: float) -> PretrainConfig:
    """The weight of the KL term."""
    return changed(config, objective={"kl_weight": value})


def turn_samples(config: PretrainConfig, value: float) -> PretrainConfig:
    """K."""
    return changed(config, objective={"num_samples": int(value)})


def turn_clips(config: PretrainConfig, value: float) -> PretrainConfig:
    """N, at the paper's B = 40. A single clip has no other clip of its video to compare with.

    So that only N differs, self-pairs are pairs of two samples, as printed, at every value.
    """
    config = with_form(with_batch_size(config, 40), self_pairs="drop")
    return changed(config, views={"num_clips": int(value)})


def turn_batch(config: PretrainConfig, value: float) -> PretrainConfig:
    """B."""
    return with_batch_size(config, int(value))


def run_knob(bench: Bench, knob: Knob) -> ExperimentResult:
    """Train and measure every value; compare the two values of the claim."""
    variants: dict[float, Variant] = {}
    # A size without evidence runs only the values of the checks.
    needed = {knob.better, knob.worse, knob.diverges}
    for value in knob.paper if bench.size.is_evidence else [value for value in knob.paper if value in needed]:
        configs = [knob.turn(starting_point(bench, seed=seed), value) for seed in bench.size.seeds]
        variants[value] = run_variant(bench, f"{knob.symbol} = {value:g}", configs)
    measure = "finetuning" if bench.size.finetune else "linear probe"
    caption = (
        f"Top-1 of the {measure} and R@1 of retrieval in per cent against {knob.symbol}; 95 % intervals over "
        f"groups of test videos and {len(bench.size.seeds)} seed(s), splits "
        f"{', '.join(map(str, bench.splits))}. Orange: the paper's accuracy after finetuning on UCF101."
    )
    return ExperimentResult(
        rows=[_row(knob, value, variant, measure) for value, variant in variants.items()],
        checks=_checks(knob, variants, measure),
        figure=_draw(knob, variants, measure, caption),
        caption=caption,
        seeds=bench.size.seeds,
        splits=bench.splits,
        cpu_seconds=sum(variant.cpu_seconds for variant in variants.values()),
        obstacle=_obstacle(bench, knob),
        notes=knob.notes,
    )


def _obstacle(bench: Bench, knob: Knob) -> str:
    fewest = min(len(bench.sets(split).train) for split in bench.splits)
    if fewest >= knob.num_videos_needed:
        return ""
    return f"there are {fewest} training videos, but the largest batch takes {knob.num_videos_needed}"


def _row(knob: Knob, value: float, variant: Variant, measure: str) -> Row:
    paper = knob.paper[value]
    row: dict[str, str | float | None] = {knob.symbol: value, "paper: top-1": paper}
    if not variant.is_healthy:
        return row | {f"{measure}: top-1": "diverged"}
    for name, table in (
        (f"{measure}: top-1", variant.top1()),
        ("R@1 match", variant.recall("match")),
        ("R@1 cosine", variant.recall("cosine")),
    ):
        row[name] = f"{variant.estimate(table):.1f}"
    row["mean log variance"] = round(
        sum(run["log_var"] for runs in variant.runs for run in runs) / sum(map(len, variant.runs)), 3
    )
    return row


def _checks(knob: Knob, variants: Mapping[float, Variant], measure: str) -> list[Check]:
    better, worse = variants[knob.better], variants[knob.worse]
    statement = f"top-1 of the {measure} is higher at {knob.symbol} = {knob.better:g} than at {knob.worse:g}"
    if better.is_healthy and worse.is_healthy:
        high, low = knob.paper[knob.better], knob.paper[knob.worse]
        paper = None if high is None or low is None else round(high - low, 2)
        checks = [Check(statement, difference(better, worse, Variant.top1), paper=paper)]
    else:
        checks = [Check(statement, None, obstacle=f"training was stopped: {_first_failure(better, worse)}")]
    if knob.diverges is not None:
        count = 0.0 if variants[knob.diverges].is_healthy else 1.0
        checks.append(
            Check(
                f"training diverges at {knob.symbol} = {knob.diverges:g}",
                Estimate(count, count, count),
                unit="(1 if it does)",
            )
        )
    return checks


def _first_failure(*variants: Variant) -> str:
    return next(variant.failures[0] for variant in variants if variant.failures)


def _draw(knob: Knob, variants: Mapping[float, Variant], measure: str, caption: str) -> Figure:
    figure = new_figure(caption)
    (axis,) = add_axes(figure)
    healthy = {value: variant for value, variant in variants.items() if variant.is_healthy}
    curves: Sequence[tuple[str, str, Callable[[Variant], Estimate]]] = (
        (f"ours, {measure}", OURS, lambda v: v.estimate(v.top1())),
        ("ours, R@1 match", RIVAL, lambda v: v.estimate(v.recall("match"))),
    )
    for label, colour, of in curves:
        estimates = [of(variant) for variant in healthy.values()]
        points_with_intervals(axis, list(healthy), estimates, label=label, colour=colour)
    known = {value: accuracy for value, accuracy in knob.paper.items() if accuracy is not None}
    axis.plot(list(known), list(known.values()), "s--", color=PAPER, label="paper, finetuned", markersize=4)
    if knob.is_logarithmic:
        axis.set_xscale("log")
    else:
        axis.set_xticks(list(knob.paper))
    axis.set_xlabel(knob.symbol)
    axis.set_ylabel("Correct test videos (%)")
    axis.legend()
    return figure


def _knob_experiment(
    name: str, title: str, source: str, claim: str, knob: Knob, *, backbone: str
) -> Experiment:
    statement = f"top-1 at {knob.symbol} = {knob.better:g} exceeds that at {knob.worse:g}"
    also = f", and training at {knob.diverges:g} is given up" if knob.diverges is not None else ""
    return Experiment(
        name=name,
        title=title,
        source=source,
        claim=claim,
        rule=f"Reproduced if {statement} with the whole 95 % interval of the paired difference{also}.",
        sizes=knob_sizes(backbone),
        run=partial(run_knob, knob=knob),
    )


def knob_sizes(backbone: str, *, cpu_seeds: tuple[int, ...] = (0,)) -> dict[Preset, Size]:
    """Sizes: heads on frozen features on a CPU; the paper's network with finetuning at its size."""
    return {
        "smoke": Size(
            recipe="frozen", max_steps=2, num_stored=4, num_clips=4, probe_epochs=2, is_evidence=False
        ),
        "cpu": Size(recipe="frozen", splits=(1, 2, 3), seeds=cpu_seeds, num_clips=8, probe_epochs=30),
        "paper": Size(recipe="paper", backbone=backbone, finetune=True),
    }


BETA = _knob_experiment(
    "beta",
    "The weight of the KL term",
    "Table 4, upper part",
    "beta = 1e-4 is best: 1e-2 draws all variances to one and loses accuracy, 1e-5 diverges.",
    Knob(
        symbol="beta",
        turn=turn_beta,
        paper={1e-5: None, 1e-4: 83.7, 1e-3: 83.4, 1e-2: 81.6},
        better=1e-4,
        worse=1e-2,
        is_logarithmic=True,
        diverges=1e-5,
        notes=("The predicted variance of our heads has a lower bound, which keeps the loss bounded.",),
    ),
    backbone="r3d18",
)
SAMPLES = _knob_experiment(
    "samples",
    "The number of samples of a video",
    "Table 4, lower part",
    "More samples K of each video give a higher accuracy.",
    Knob(symbol="K", turn=turn_samples, paper={5: 81.2, 7: 83.1, 10: 83.7, 12: None}, better=10, worse=5),
    backbone="r3d18",
)
CLIPS = _knob_experiment(
    "clips",
    "The number of clips of a video",
    "Table A1, upper part",
    "More clips N of each video give a higher accuracy, and two are nearly enough.",
    Knob(
        symbol="N",
        turn=turn_clips,
        paper={1: 78.3, 2: 81.8, 3: 82.2, 4: 82.4},
        better=2,
        worse=1,
        num_videos_needed=40,
    ),
    backbone="r2plus1d18",
)
BATCH = _knob_experiment(
    "batch",
    "The size of the batch",
    "Table A1, lower part",
    "Larger batches B give a higher accuracy.",
    Knob(
        symbol="B",
        turn=turn_batch,
        paper={24: 79.9, 48: 82.1, 72: 84.5, 96: 86.1},
        better=96,
        worse=24,
        num_videos_needed=BATCH_SIZE,
    ),
    backbone="r2plus1d18",
)
