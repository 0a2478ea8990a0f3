"""Verbs that say what an encoder is worth."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from provico.cli.arguments import Json, announce, named_option, print_json
from provico.config.evaluation import (
    FINETUNE_RECIPES,
    FeatureReading,
    FinetuneSettings,
    LinearSettings,
    RetrievalSettings,
    SetsChoice,
)
from provico.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from provico.evaluation.result import EvaluationReport


def retrieval(
    choice: SetsChoice,
    *,
    checkpoint: Path,
    settings: RetrievalSettings = RetrievalSettings(),
    reading: FeatureReading = FeatureReading(),
    out: Path | None = None,
    as_json: Json = False,
) -> None:
    """Evaluate retrieval: R@k of test videos among training videos, by match probability and other metrics.

    Where there is no division into training and test videos, each video looks among all others.

    Args:
        choice: which videos to use.
        checkpoint: a run, an encoder folder or a checkpoint.
        settings: how videos are compared.
        reading: how files are read.
        out: folder for results.json, results.txt, predictions and the confusion matrix.
    """
    from provico.evaluation.protocols import evaluate_retrieval
    from provico.models.saved import open_encoder
    from provico.progress import progress_bar

    with progress_bar("Embedding") as progress:
        report = evaluate_retrieval(
            open_encoder(checkpoint), choice, settings=settings, reading=reading, progress=progress
        )
    _give(report, out, as_json=as_json)


def linear(
    choice: SetsChoice,
    *,
    checkpoint: Path,
    settings: LinearSettings = LinearSettings(),
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
    from provico.models.saved import open_encoder
    from provico.progress import progress_bar

    with progress_bar("Probing") as progress:
        report = evaluate_linear(
            open_encoder(checkpoint), choice, settings=settings, reading=reading, progress=progress
        )
    _give(report, out, as_json=as_json)


def finetune(
    choice: SetsChoice,
    *,
    checkpoint: Path,
    settings: Annotated[FinetuneSettings, tyro.conf.arg(name="")],
    out: Path = Path("finetuned"),
    recipe: str = "paper",
    as_json: Json = False,
) -> None:
    """Train the whole network to classify, from the encoder's weights or from scratch.

    The same command resumes an interrupted run. Several processes: torchrun
    --nproc-per-node 2 -m provico evaluate finetune ...

    Args:
        choice: which videos to use.
        checkpoint: a run, an encoder folder or a checkpoint.
        settings: how the network is trained and tested.
        out: folder for the finetuned networks, a folder for each split, and the results.
        recipe: paper, or tiny for a CPU; sets every option below, and one that is given changes it.
    """
    from provico.evaluation.protocols import evaluate_finetune
    from provico.models.allocator import keep_freed_memory
    from provico.models.saved import open_encoder
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
    if name not in FINETUNE_RECIPES:
        raise ConfigError(f"There is no recipe {name!r}. {did_you_mean(name, FINETUNE_RECIPES)}")
    return partial(finetune, settings=FINETUNE_RECIPES[name])


def _give(report: EvaluationReport, out: Path | None, *, as_json: bool) -> None:
    """The result on stdout and, if asked, in a folder."""
    if out is not None:
        report.write(out)
    if as_json:
        print_json(report.summary())
    else:
        print(report.table(), end="")
        if out is not None:
            print(f"Written to {out}")
