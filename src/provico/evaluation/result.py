"""The results of an evaluation: scores with intervals, and everything needed to interpret them.

A folder of results holds

    results.json             all scores, with the protocol card of each split
    results.txt              the same as text
    predictions-*.csv        the prediction for each video, one file per split
    confusion-*.svg          confusion matrices
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from provico.embedding.clips import clip_settings
from provico.errors import OutputExistsError
from provico.evaluation.paper import PaperRow
from provico.evaluation.sets import Sets
from provico.evaluation.statistics import Estimate
from provico.extras import missing
from provico.files import replace_rows, replace_text
from provico.models.encoder import Encoder, encoder_hash
from provico.training.classifier import Predictions, top_k_correct


@dataclass(frozen=True, kw_only=True)
class ProtocolCard:
    """Everything that a score depends on. Compare the cards before comparing scores."""

    protocol: str
    """retrieval, linear or finetune."""
    data: str
    layout: str
    split: str
    num_classes: int
    num_train: int
    num_test: int
    """Videos of the training and the test set, including failed ones."""
    num_failed: int
    """Videos of both sets that could not be read. They are skipped, never replaced."""
    num_read: int
    """Number of the other videos."""
    backbone: str
    encoder: str
    """The hash of the encoder's settings and weights."""
    dim: int
    num_clips: int
    num_frames: int
    frame_step: int
    short_side: int
    crop: str
    """How frames are cropped for the network in the test."""
    seed: int
    settings: dict[str, Any] = field(default_factory=dict)
    """Further settings of the protocol."""
    version: str = ""
    """Version of this package."""


@dataclass(frozen=True)
class Prediction:
    """The prediction for one test video."""

    video: str
    label: str
    predicted: str
    score: float
    """Probability of the predicted class, or similarity of the nearest video."""
    nearest: str = ""
    """In retrieval, the nearest video."""

    @property
    def is_correct(self) -> bool:
        """Whether the prediction is correct."""
        return self.label == self.predicted


@dataclass(frozen=True, eq=False, kw_only=True)
class Result:
    """The result of one protocol on one split."""

    card: ProtocolCard
    scores: dict[str, Estimate]
    """Scores by name, such as "R@1 match" or "top-1"."""
    classes: tuple[str, ...]
    predictions: tuple[Prediction, ...]
    failed: tuple[tuple[str, str], ...] = ()
    """Ids of the videos that could not be read, with the reasons."""
    notes: dict[str, Any] = field(default_factory=dict)
    """Further facts, such as the chosen learning rate."""

    @property
    def confusion(self) -> Int[Tensor, "classes classes"]:
        """Number of videos of each class (row) that were predicted as each class (column)."""
        index_of = {name: index for index, name in enumerate(self.classes)}
        counts = torch.zeros(len(index_of), len(index_of), dtype=torch.long)
        for guess in self.predictions:
            counts[index_of[guess.label], index_of[guess.predicted]] += 1
        return counts

    @property
    def per_class(self) -> dict[str, tuple[int, float]]:
        """For each class with test videos: their number and the accuracy."""
        counts = self.confusion
        totals, right = counts.sum(dim=1).tolist(), counts.diagonal().tolist()
        return {
            name: (total, hits / total)
            for name, total, hits in zip(self.classes, totals, right, strict=True)
            if total
        }

    @property
    def failure_line(self) -> str:
        """The number of videos that could not be read, to print beside every score."""
        total = self.card.num_read + self.card.num_failed
        return f"{self.card.num_failed} of {total} videos failed"

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "scores": {name: asdict(share) for name, share in self.scores.items()},
            "per_class": {
                name: {"videos": n, "correct": share} for name, (n, share) in self.per_class.items()
            },
            "classes": list(self.classes),
            "confusion": self.confusion.tolist(),
            "failed": [{"video": name, "reason": reason} for name, reason in self.failed],
            "notes": self.notes,
            "card": asdict(self.card),
        }


@dataclass(frozen=True, eq=False)
class EvaluationReport:
    """One protocol over one or several splits."""

    results: tuple[Result, ...]
    paper: tuple[PaperRow, ...] = ()
    """The paper's figures, if its protocol was followed on its data."""

    @property
    def means(self) -> dict[str, float]:
        """Each score, averaged over the splits."""
        names = self.results[0].scores
        return {name: statistics.mean(result.scores[name].value for result in self.results) for name in names}

    def summary(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "mean": self.means,
            "splits": {result.card.split: result.to_dict() for result in self.results},
            "paper": [asdict(row) for row in self.paper],
        }

    def table(self) -> str:
        """The scores in per cent with intervals, one column per split, and their protocol cards."""
        splits = [result.card.split for result in self.results]
        header = ["%", *splits, *(["mean"] if len(splits) > 1 else [])]
        rows = [
            [name, *(f"{result.scores[name].percent:.1f}" for result in self.results)]
            + ([f"{100 * mean:.1f}"] if len(splits) > 1 else [])
            for name, mean in self.means.items()
        ]
        lines = [*columns([header, *rows]), ""]
        lines += [f"{result.card.split}: {result.failure_line}." for result in self.results]
        lines += [
            f"{result.card.split}: {name} {value}."
            for result in self.results
            for name, value in result.notes.items()
        ]
        lines += ["", *self._card_lines()]
        if self.paper:
            lines += ["", "The paper reports, by the same protocol:"]
            lines += columns([["backbone", "pretrained on", "figures"], *(row.cells for row in self.paper)])
        return "\n".join(lines) + "\n"

    def class_table(self) -> str:
        """The accuracy of each class in per cent, one column per split."""
        tables = [result.per_class for result in self.results]
        names = [name for name in self.results[0].classes if any(name in table for table in tables)]
        rows = [["class", *(result.card.split for result in self.results)]]
        for name in names:
            cells = [table.get(name) for table in tables]
            rows.append([name, *(f"{100 * cell[1]:.1f} of {cell[0]}" if cell else "" for cell in cells)])
        return "\n".join(columns(rows)) + "\n"

    def _card_lines(self) -> list[str]:
        card = self.results[0].card
        return [
            f"{card.protocol} on {card.data} ({card.layout}, {card.num_classes} classes); encoder "
            f"{card.encoder} ({card.backbone}, D = {card.dim});",
            f"{card.num_clips} clips of {card.num_frames} frames, every {card.frame_step}, {card.crop}; seed "
            f"{card.seed}. Brackets: 95 % bootstrap intervals over groups.",
        ]

    def write(self, folder: Path) -> None:
        """Write everything into a new folder; results.json last."""
        if folder.exists() and any(folder.iterdir()):
            raise OutputExistsError(f"{folder} exists already and is not empty. Choose another with --out.")
        folder.mkdir(parents=True, exist_ok=True)
        for result in self.results:
            name = result.card.split.replace(" ", "-").replace("/", "-")
            write_predictions(folder / f"predictions-{name}.csv", result.predictions)
            if not missing("plots"):
                draw_confusion(folder / f"confusion-{name}.svg", result)
        text = self.table() + "\n" + self.class_table()
        replace_text(folder / "results.txt", text)
        replace_text(folder / "results.json", json.dumps(self.summary(), indent=1) + "\n")


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of text as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def write_predictions(path: Path, predictions: Sequence[Prediction]) -> None:
    """One line for each test video."""
    rows = (asdict(guess) | {"correct": int(guess.is_correct)} for guess in predictions)
    replace_rows(path, ("video", "label", "predicted", "correct", "score", "nearest"), rows)


def draw_confusion(path: Path, result: Result) -> None:
    """Draw the confusion matrix, as shares of each row; values are printed if there is room."""
    from matplotlib.figure import Figure

    counts = result.confusion.double()
    shares = (counts / counts.sum(dim=1, keepdim=True).clamp(min=1)).numpy()
    size = min(4.0 + 0.28 * len(result.classes), 24.0)
    figure = Figure(figsize=(size + 1, size), layout="constrained")
    axes = figure.subplots()
    picture = axes.imshow(shares, vmin=0, vmax=1, cmap="Blues")
    indices = range(len(result.classes))
    axes.set_xticks(indices, result.classes, rotation=90)
    axes.set_yticks(indices, result.classes)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    axes.set_title(f"{result.card.protocol}, {result.card.split}")
    figure.colorbar(picture, label="share of the videos of a class", shrink=0.8)
    if len(result.classes) <= 20:
        for row in indices:
            for column in indices:
                colour = "white" if shares[row, column] > 0.5 else "black"
                number = int(counts[row, column])
                axes.text(column, row, str(number or ""), ha="center", va="center", color=colour)
    figure.savefig(path, metadata={"Date": None})


def make_card(
    protocol: str,
    encoder: Encoder,
    sets: Sets,
    *,
    num_failed: int,
    num_clips: int,
    seed: int,
    settings: dict[str, Any],
    short_side: int | None = None,
) -> ProtocolCard:
    """The protocol card; `settings` are further settings of the protocol."""
    config = encoder.config
    clips = clip_settings(config, num_clips=num_clips, short_side=short_side)
    together = len(sets.train) if sets.is_one else len(sets.train) + len(sets.test)
    num_read = together - num_failed
    return ProtocolCard(
        protocol=protocol,
        data=sets.test.root.name,
        layout=sets.test.layout,
        split=sets.name,
        num_classes=len({video.label for video in sets.test}),
        num_train=len(sets.train),
        num_test=len(sets.test),
        num_failed=num_failed,
        num_read=num_read,
        backbone=config.backbone,
        encoder=encoder_hash(encoder),
        dim=config.dim,
        num_clips=num_clips,
        num_frames=clips.spec.num_frames,
        frame_step=clips.spec.frame_step,
        short_side=clips.short_side,
        crop=f"centre {clips.crop_size} of {clips.short_side} pixels",
        seed=seed,
        settings=settings,
        version=version("provico"),
    )


def accuracies(said: Predictions) -> dict[str, Estimate]:
    """top-1, and top-5 if there are more than five classes; the videos must have labels."""
    index = {name: number for number, name in enumerate(said.classes)}
    labels = torch.tensor([index[str(video.label)] for video in said.videos])
    groups = [video.group for video in said.videos]
    return {
        f"top-{k}": Estimate.of_share(top_k_correct(said.log_probabilities, labels, k), groups)
        for k in (1, 5)
        if k == 1 or k < len(said.classes)
    }


def listed(said: Predictions) -> tuple[Prediction, ...]:
    """One prediction per video, as stored in results."""
    return tuple(
        Prediction(video.id, str(video.label), name, probability)
        for video, name, probability in zip(
            said.videos, said.predicted, said.probability.tolist(), strict=True
        )
    )
