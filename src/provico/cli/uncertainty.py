"""Verbs that say how unsure an encoder is, and what that is worth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from provico.cli.arguments import Json, open_choice, print_json
from provico.config import DataChoice
from provico.config.data import EmbedOptions
from provico.config.evaluation import FeatureReading, SetsChoice, UncertaintySettings
from provico.defaults import CALIBRATION_QUERIES
from provico.errors import ConfigError

if TYPE_CHECKING:
    from provico.embedding.report import UncertaintyReport


def uncertainty(
    choice: DataChoice,
    *,
    checkpoint: Path | None = None,
    out: Path = Path("uncertainty"),
    num_timelines: int = 6,
    options: EmbedOptions = EmbedOptions(),
    as_json: Json = False,
) -> None:
    """Report the uncertainty of each video, its causes and its course over time: csv, parquet and plots.

    DATA is videos, with --checkpoint; or a file that `provico embed` wrote, or an index. docs/uncertainty.md
    describes what is written.

    Args:
        choice: which videos to use.
        checkpoint: a run, an encoder folder or a checkpoint; embeddings and indexes have their own.
        out: folder for the tables and pictures; it must be new or empty.
        num_timelines: for so many of the least certain videos, a picture over time is drawn.
        options: how videos are embedded.
    """
    from provico.embedding.report import check_folder
    from provico.embedding.report_plots import write_pictures
    from provico.show import show_uncertainty

    check_folder(out)
    if checkpoint is None:
        if options.num_clips is not None or options.short_side is not None:
            raise ConfigError("--num-clips and --short-side are for videos. What is embedded has its own.")
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
    from provico.models.allocator import keep_freed_memory
    from provico.models.saved import open_encoder
    from provico.processes import join
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
    from provico.embedding.formats import FORMATS
    from provico.embedding.report import COLUMNS, UncertaintyReport
    from provico.search.index import Index
    from provico.search.store.folder import IndexFolder

    if path.suffix in FORMATS:
        return UncertaintyReport.of_file(path)
    if IndexFolder(path).is_complete:
        return UncertaintyReport.of_columns(Index.open(path).loaded.chunks(COLUMNS))
    raise ConfigError(
        f"{path} is neither a file of embeddings nor an index. To look at videos, name the encoder with "
        "--checkpoint RUN."
    )


def calibrate(
    index: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="INDEX")],
    *,
    source: Literal["auto", "judgements", "labels"] = "auto",
    k: int = 10,
    num_queries: int = CALIBRATION_QUERIES,
    as_json: Json = False,
) -> None:
    """Find out how often the hits of a labelled index are right, and keep that with the index.

    Args:
        index: folder of the index.
        source: judgements are those of `provico judge` and of the page; labels counts hits with the query's
            label; auto takes judgements if there are enough of them.
        k: hits of each query that count, with labels.
        num_queries: ask for at most so many videos of the index.
    """
    from provico.search.index import Index
    from provico.show import show_calibration

    found = Index.open(index).calibrate(k=k, num_queries=num_queries)
    if as_json:
        print_json(found.to_dict())
    else:
        show_calibration(found)


def evaluate_uncertainty(
    choice: SetsChoice,
    *,
    checkpoint: Path,
    settings: UncertaintySettings = UncertaintySettings(),
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
    from provico.embedding.report import check_folder
    from provico.evaluation.uncertainty import evaluate_uncertainty as evaluate
    from provico.evaluation.uncertainty_report import summary, table, write
    from provico.models.saved import open_encoder
    from provico.progress import progress_bar

    if out is not None:
        check_folder(out)
    with progress_bar("Looking at videos") as progress:
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
