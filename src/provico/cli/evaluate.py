"""Verbs that evaluate an encoder and its uncertainty, and test the paper's claims."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from provico.cli.arguments import (
    Embedding,
    Json,
    Sets,
    Videos,
    announce,
    named_option,
    open_choice,
    print_json,
)
from provico.config import DataChoice
from provico.config.data import EmbedOptions
from provico.config.evaluation import (
    FINETUNE_RECIPES,
    FeatureReading,
    FinetuneSettings,
    LinearSettings,
    RetrievalSettings,
    UncertaintySettings,
)
from provico.errors import ConfigError, look_up
from provico.extras import lacking, require

if TYPE_CHECKING:
    from provico.embedding.report import UncertaintyReport
    from provico.evaluation.result import EvaluationReport
from typing import Literal


def retrieval(
    choice: Sets,
    *,
    checkpoint: Path,
    settings: Annotated[RetrievalSettings, tyro.conf.arg(name="retrieval")] = RetrievalSettings(),
    reading: FeatureReading = FeatureReading(),
    out: Path | None = None,
    as_json: Json = False,
) -> None:
    """Evaluate retrieval: R@k of test videos in the training set, by match probability and other metrics.

    If there is no test set, each video is searched for among all others.

    Args:
        choice: which videos to use.
        checkpoint: a run, an encoder folder or a checkpoint.
        settings: how videos are compared.
        reading: how files are read.
        out: folder for results.json, results.txt, predictions and the confusion matrix.
    """
    from provico.evaluation.protocols import evaluate_retrieval

    evaluated = partial(evaluate_retrieval, choice=choice, settings=settings, reading=reading)
    _evaluate(evaluated, checkpoint, "Embedding", out, as_json=as_json)


def linear(
    choice: Sets,
    *,
    checkpoint: Path,
    settings: Annotated[LinearSettings, tyro.conf.arg(name="classifier")] = LinearSettings(),
    reading: FeatureReading = FeatureReading(),
    out: Path | None = None,
    as_json: Json = False,
) -> None:
    """Train a linear classifier on the frozen encoder.

    Args:
        choice: which videos to use.
        checkpoint: a run, an encoder folder or a checkpoint.
        settings: how the classifier is trained and tested.
        reading: how files are read.
        out: folder for results.json, results.txt, predictions and the confusion matrix.
    """
    from provico.evaluation.protocols import evaluate_linear

    evaluated = partial(evaluate_linear, choice=choice, settings=settings, reading=reading)
    _evaluate(evaluated, checkpoint, "Probing", out, as_json=as_json)


def finetune(
    choice: Sets,
    *,
    checkpoint: Path,
    settings: Annotated[FinetuneSettings, tyro.conf.arg(name="")],
    out: Path = Path("finetuned"),
    recipe: str = "paper",
    as_json: Json = False,
) -> None:
    """Finetune the whole network as a classifier, from the encoder's weights or from scratch.

    The same command resumes an interrupted run. Several processes: torchrun
    --nproc-per-node 2 -m provico evaluate finetune ...

    Args:
        choice: which videos to use.
        checkpoint: a run, an encoder folder or a checkpoint.
        settings: how the network is trained and tested.
        out: folder for the finetuned networks, a folder for each split, and the results.
        recipe: paper, or tiny for a CPU; sets the defaults of all options below.
    """
    from provico.evaluation.protocols import evaluate_finetune
    from provico.models.saved import open_encoder
    from provico.processes import keep_freed_memory
    from provico.progress import progress_bar

    keep_freed_memory()
    with progress_bar("Finetuning") as progress:
        report = evaluate_finetune(
            open_encoder(checkpoint),
            choice,
            out=out,
            settings=settings,
            announce=announce,
            progress=progress,
        )
    _give(report, out / "results", as_json=as_json)


def finetune_with_recipe(given: list[str]) -> Callable[..., None]:
    """`finetune` with the chosen recipe as its default, so that help shows the recipe's own numbers."""
    name = named_option("--recipe", given, default="paper")
    return partial(finetune, settings=look_up("recipe", name, FINETUNE_RECIPES))


def _evaluate(
    evaluated: Callable[..., EvaluationReport],
    checkpoint: Path,
    doing: str,
    out: Path | None,
    *,
    as_json: bool,
) -> None:
    """Run a protocol on an encoder."""
    from provico.models.saved import open_encoder
    from provico.progress import progress_bar

    with progress_bar(doing) as progress:
        report = evaluated(open_encoder(checkpoint), progress=progress)
    _give(report, out, as_json=as_json)


def _give(report: EvaluationReport, out: Path | None, *, as_json: bool) -> None:
    """Print the result and, if asked, write it to a folder."""
    if out is not None:
        report.write(out)
        if sentence := lacking("plots", what="A picture of the confusion matrix"):
            announce(sentence)
    if as_json:
        print_json(report.summary())
    else:
        print(report.table(), end="")
        if out is not None:
            print(f"Written to {out}")


def uncertainty(
    choice: Videos,
    *,
    checkpoint: Path | None = None,
    out: Path = Path("uncertainty"),
    num_timelines: int = 6,
    options: Embedding = EmbedOptions(),
    as_json: Json = False,
) -> None:
    """Report the uncertainty of each video, its causes and how it changes over time: csv, parquet and plots.

    DATA is videos, which need --checkpoint; or a file from `provico embed`; or an index. docs/uncertainty.md
    describes the output.

    Args:
        choice: which videos to use.
        checkpoint: a run, an encoder folder or a checkpoint; not needed for embeddings and indexes.
        out: folder for the tables and pictures; it must be new or empty.
        num_timelines: how many of the least certain videos to plot over time.
        options: how videos are embedded.
    """
    require("plots", what="A report with pictures")
    from provico.embedding.report import check_folder
    from provico.embedding.report_plots import write_pictures
    from provico.show import show_uncertainty

    check_folder(out)
    if checkpoint is None:
        if options.num_clips is not None or options.short_side is not None:
            raise ConfigError(
                "--num-clips and --short-side apply to videos only, and these are embedded already. Leave "
                "them out."
            )
        report = _of_what_is_embedded(choice.data)
    else:
        report = _of_videos(choice, checkpoint, options)
    report.write(out)
    write_pictures(report, out, num_timelines=num_timelines)
    if as_json:
        print_json(report.summary())
    else:
        show_uncertainty(report)
        print(f"Tables and pictures written to {out}")


def _of_videos(choice: DataChoice, checkpoint: Path, options: EmbedOptions) -> UncertaintyReport:
    from provico.embedding.report import UncertaintyReport
    from provico.models.saved import open_encoder
    from provico.processes import join, keep_freed_memory
    from provico.progress import progress_bar

    keep_freed_memory()
    encoder = open_encoder(checkpoint, allow_import=options.allow_import)
    with join(options.device) as processes, progress_bar("Embedding") as progress:
        return UncertaintyReport.of_catalog(
            encoder,
            open_choice(choice, features=True),
            num_clips=options.clips_of_a_video,
            short_side=options.short_side,
            num_workers=processes.num_readers(options.num_workers),
            device=processes.device,
            progress=progress,
        )


def _of_what_is_embedded(path: Path) -> UncertaintyReport:
    from provico.embedding.file import FORMATS
    from provico.embedding.report import COLUMNS, UncertaintyReport
    from provico.search.index import Index
    from provico.search.store.folder import IndexFolder

    if path.suffix in FORMATS:
        return UncertaintyReport.of_file(path)
    if IndexFolder(path).is_complete:
        return UncertaintyReport.of_columns(Index.open(path).loaded.chunks(COLUMNS))
    raise ConfigError(
        f"{path} is neither a file of embeddings nor an index. For videos, name the encoder with "
        "--checkpoint RUN."
    )


def evaluate_uncertainty(
    choice: Sets,
    *,
    checkpoint: Path,
    settings: Annotated[UncertaintySettings, tyro.conf.arg(name="measurement")] = UncertaintySettings(),
    reading: FeatureReading = FeatureReading(),
    out: Path | None = None,
    as_json: Json = False,
) -> None:
    """Evaluate whether uncertainty predicts retrieval errors, beats trivial baselines and is calibrated.

    Args:
        choice: which videos to use.
        checkpoint: a run, an encoder folder or a checkpoint.
        settings: how it is measured.
        reading: how files are read.
        out: folder for csv files, results.json, results.txt and the figure.
    """
    if out is not None:
        require("plots", what="--out, which draws a figure,")
    from provico.embedding.report import check_folder
    from provico.evaluation.uncertainty import evaluate_uncertainty as evaluate
    from provico.evaluation.uncertainty_report import summary, table, write
    from provico.models.saved import open_encoder
    from provico.progress import progress_bar

    if out is not None:
        check_folder(out)
    with progress_bar("Embedding videos") as progress:
        found = evaluate(
            open_encoder(checkpoint), choice, settings=settings, reading=reading, progress=progress
        )
    if out is not None:
        write(found, out)
    if as_json:
        print_json(summary(found))
        return
    print(table(found), end="")
    if out is not None:
        print(f"Written to {out}")


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

    An interrupted run resumes if the same command is run again. docs/reproduce.md describes the rules.

    Args:
        name: an experiment, or all.
        preset: smoke only checks that it runs; cpu takes minutes; paper is the paper's recipe and needs its
            data.
        data: videos with labels; the demo set, written to the output folder, if not given.
        out: folder for csv, json, figures, runs and report.html.
        seeds: seeds to use instead of the preset's.
        show_list: list all experiments with the claims they test.
    """
    if show_list:
        _show_list(as_json)
        return
    if name is None:
        raise ConfigError("Name an experiment, or all. provico reproduce --list shows them.")
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
    from provico.reproduce.report import show_experiments
    from provico.reproduce.reproduce import EXPERIMENTS

    if as_json:
        print_json(
            [{"name": each.name, "source": each.source, "claim": each.claim} for each in EXPERIMENTS.values()]
        )
    else:
        show_experiments(EXPERIMENTS.values())
