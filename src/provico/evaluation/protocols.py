"""The three protocols over one or several splits: what `provico evaluate` runs.

Features of a video are computed once, even if it is in several splits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch

from provico.config.evaluation import (
    RECALL_RANKS,
    FeatureReading,
    FinetuneSettings,
    LinearSettings,
    RetrievalSettings,
    SetsChoice,
)
from provico.data.catalog import Catalog
from provico.data.library import Library
from provico.embedding.driver import embed_features
from provico.embedding.features import ClipFeatures, clip_features
from provico.errors import ConfigError, VideoError
from provico.evaluation.paper import paper_rows
from provico.evaluation.recognition import finetune, probe
from provico.evaluation.result import EvaluationReport, Prediction, Result, make_card
from provico.evaluation.retrieval import RetrievalReport, retrieve
from provico.evaluation.sets import Sets, open_sets
from provico.evaluation.statistics import Estimate
from provico.models.encoder import Encoder
from provico.processes import join
from provico.progress import Progress, silent


def evaluate_retrieval(
    encoder: Encoder,
    choice: SetsChoice,
    *,
    settings: RetrievalSettings = RetrievalSettings(),
    reading: FeatureReading = FeatureReading(),
    library: Library | None = None,
    progress: Progress = silent,
) -> EvaluationReport:
    """Evaluate retrieval of training videos by test videos, for each metric.

    If there is no test set, each video is searched for among all others.
    """
    if not settings.metrics:
        raise ConfigError("Give at least one metric with --metrics.")
    all_sets = open_all(choice, leave_one_out=True)
    features = features_of(encoder, all_sets, reading, settings.num_clips, library, progress)
    results = tuple(retrieval_result(encoder, sets, features, settings) for sets in all_sets)
    return EvaluationReport(results, paper_rows("retrieval", all_sets[0].test))


def evaluate_linear(
    encoder: Encoder,
    choice: SetsChoice,
    *,
    settings: LinearSettings = LinearSettings(),
    reading: FeatureReading = FeatureReading(),
    library: Library | None = None,
    progress: Progress = silent,
) -> EvaluationReport:
    """Evaluate a linear classifier on the frozen encoder."""
    all_sets = open_all(choice)
    features = features_of(encoder, all_sets, reading, settings.num_clips, library, progress)
    results = tuple(
        probe(encoder, sets, features(sets.train), features(sets.test), settings=settings, progress=progress)
        for sets in all_sets
    )
    same = settings.features == "samples" and not settings.train_heads
    return EvaluationReport(results, paper_rows("linear", all_sets[0].test) if same else ())


def evaluate_finetune(
    encoder: Encoder,
    choice: SetsChoice,
    *,
    out: Path,
    settings: FinetuneSettings = FinetuneSettings(),
    library: Library | None = None,
    announce: Callable[[str], None] = lambda text: None,
    progress: Progress = silent,
) -> EvaluationReport:
    """Finetune and evaluate the whole network. Each split has a folder in `out`; a run in it is resumed."""
    results = []
    for sets in open_all(choice):
        folder = out / sets.name.replace(" ", "-")
        results.append(
            finetune(
                encoder,
                sets,
                settings=settings,
                out=folder,
                library=library,
                announce=announce,
                progress=progress,
            )
        )
    same = not settings.from_scratch
    return EvaluationReport(tuple(results), paper_rows("finetune", sets.test) if same else ())


def open_all(choice: SetsChoice, *, leave_one_out: bool = False) -> tuple[Sets, ...]:
    """The sets of every requested split."""
    if not choice.splits:
        raise ConfigError("Give at least one split with --splits.")
    return tuple(
        open_sets(
            choice.data,
            layout=choice.layout,
            split=split,
            test_data=choice.test_data,
            hold_out=choice.hold_out,
            allow_missing=choice.allow_missing,
            leave_one_out=leave_one_out,
        )
        for split in choice.splits
    )


def features_of(
    encoder: Encoder,
    all_sets: Sequence[Sets],
    reading: FeatureReading,
    num_clips: int,
    library: Library | None = None,
    progress: Progress = silent,
) -> Callable[[Catalog], ClipFeatures]:
    """Compute the features of all videos once; the returned function selects those of a catalog."""
    catalogs = [catalog for sets in all_sets for catalog in (sets.train, sets.test)]
    known: dict[tuple[Path, str], torch.Tensor] = {}
    broken: dict[tuple[Path, str], VideoError] = {}
    with join(reading.device) as processes:
        device, num_workers = processes.device, processes.num_readers(reading.num_workers)
    for root in dict.fromkeys(catalog.root for catalog in catalogs):
        videos = {video.id: video for catalog in catalogs if catalog.root == root for video in catalog}
        first = next(catalog for catalog in catalogs if catalog.root == root)
        classes = tuple(dict.fromkeys(name for catalog in catalogs for name in catalog.classes))
        found = clip_features(
            encoder.to(device),
            replace(first, videos=tuple(videos.values()), classes=classes),
            num_clips=num_clips,
            num_workers=num_workers,
            max_broken_share=reading.max_broken_share,
            library=library,
            progress=progress,
        )
        known |= {(root, video.id): row for video, row in zip(found.catalog, found.features, strict=True)}
        broken |= {(root, name): error for name, error in found.broken.items()}

    def pick(catalog: Catalog) -> ClipFeatures:
        keys = [(catalog.root, video.id) for video in catalog]
        readable = [number for number, key in enumerate(keys) if key in known]
        return ClipFeatures(
            torch.stack([known[keys[number]] for number in readable]),
            catalog.subset(readable),
            {key[1]: broken[key] for key in keys if key in broken},
            0,
        )

    return pick


def retrieval_result(
    encoder: Encoder,
    sets: Sets,
    features: Callable[[Catalog], ClipFeatures],
    settings: RetrievalSettings,
) -> Result:
    """The retrieval result on one split, from the features of `features_of`."""
    found = [features(catalog) for catalog in ((sets.test,) if sets.is_one else (sets.test, sets.train))]
    embedded = [embed_features(encoder, part.features, part.catalog, failed=part.failed) for part in found]
    queries, gallery = embedded[0], embedded[-1]
    ranks = [k for k in RECALL_RANKS if k < len(gallery)]
    reports: dict[str, RetrievalReport] = {}
    for metric in settings.metrics:
        reports[metric] = retrieve(
            queries,
            gallery,
            metric=metric,
            curve=encoder.match_curve(),
            ks=ranks,
            num_samples=settings.num_samples,
            seed=settings.seed,
            draw=settings.draw,
            exclude_same="video" if sets.is_one else "nothing",
        )
    report = reports[settings.metrics[0]]
    failed = tuple(pair for part in embedded for pair in part.failed)
    return Result(
        card=make_card(
            "retrieval",
            encoder,
            sets,
            num_failed=len(failed),
            num_clips=found[0].features.shape[1],
            seed=settings.seed,
            settings=asdict(settings),
        ),
        scores={
            f"R@{k} {metric}": Estimate.of_share(each.found_within(k), queries.groups)
            for metric, each in reports.items()
            for k in ranks
        },
        classes=sets.train.classes,
        predictions=tuple(
            Prediction(name, str(label), str(gallery.labels[nearest]), score, gallery.ids[nearest])
            for name, label, nearest, score in zip(
                queries.ids,
                queries.labels,
                report.nearest[:, 0].tolist(),
                report.score.tolist(),
                strict=True,
            )
        ),
        failed=failed,
    )
