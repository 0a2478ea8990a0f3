"""The paper's figures (Tables 1-3 and A3), to show beside ours for the same protocol.

They are shown for the whole data set only: figures on some of its classes are not comparable.
"""

from __future__ import annotations

from dataclasses import dataclass

from provico.data.catalog import Catalog

NUM_CLASSES = {"ucf101": 101, "hmdb51": 51, "kinetics": 400}
"""Number of classes of the paper's data sets, by the name of their layout."""


@dataclass(frozen=True)
class PaperRow:
    """One line of a table of the paper, in per cent."""

    backbone: str
    pretrained_on: str
    figures: dict[str, float]
    """The figures by the names of our reports."""

    @property
    def cells(self) -> list[str]:
        """The cells of a text table."""
        figures = ", ".join(f"{name} {value:.1f}" for name, value in self.figures.items())
        return [self.backbone, self.pretrained_on, figures]


def _recalls(metric: str, *values: float) -> dict[str, float]:
    return {f"R@{k} {metric}": value for k, value in zip((1, 5, 10, 20), values, strict=True)}


PAPER_ROWS: dict[tuple[str, str], tuple[PaperRow, ...]] = {
    ("linear", "kinetics"): (
        PaperRow("r3d18", "Kinetics-400", {"top-1": 62.8}),
        PaperRow("r2plus1d18", "Kinetics-400", {"top-1": 65.7}),
        PaperRow("r3d18", "supervised", {"top-1": 68.9}),
        PaperRow("r2plus1d18", "supervised", {"top-1": 71.7}),
    ),
    ("linear", "ucf101"): (
        PaperRow("r3d18", "Kinetics-400", {"top-1": 82.9}),
        PaperRow("r2plus1d18", "Kinetics-400", {"top-1": 84.1}),
    ),
    ("linear", "hmdb51"): (
        PaperRow("r3d18", "Kinetics-400", {"top-1": 52.2}),
        PaperRow("r2plus1d18", "Kinetics-400", {"top-1": 53.5}),
    ),
    ("finetune", "ucf101"): (
        PaperRow("r3d18", "Kinetics-400", {"top-1": 85.6}),
        PaperRow("r2plus1d18", "Kinetics-400", {"top-1": 87.2}),
        PaperRow("r3d18", "UCF101", {"top-1": 83.7}),
        PaperRow("r2plus1d18", "UCF101", {"top-1": 86.1}),
        PaperRow("r3d50", "UCF101", {"top-1": 94.6}),
    ),
    ("finetune", "hmdb51"): (
        PaperRow("r3d18", "Kinetics-400", {"top-1": 58.4}),
        PaperRow("r2plus1d18", "Kinetics-400", {"top-1": 59.4}),
        PaperRow("r3d18", "UCF101", {"top-1": 57.1}),
        PaperRow("r2plus1d18", "UCF101", {"top-1": 58.0}),
        PaperRow("r3d50", "UCF101", {"top-1": 68.2}),
    ),
    ("retrieval", "ucf101"): (
        PaperRow("r3d18", "Kinetics-400", _recalls("match", 67.6, 81.4, 90.1, 94.7)),
        PaperRow("r3d18", "UCF101", _recalls("match", 63.8, 75.1, 84.8, 89.2)),
        PaperRow("r2plus1d18", "UCF101", _recalls("match", 64.7, 78.5, 87.9, 91.1)),
        PaperRow("r2plus1d18", "UCF101", _recalls("cosine", 63.1, 77.0, 86.3, 89.8)),
    ),
    ("retrieval", "hmdb51"): (
        PaperRow("r3d18", "Kinetics-400", _recalls("match", 40.1, 60.6, 75.2, 85.2)),
        PaperRow("r3d18", "UCF101", _recalls("match", 35.9, 55.2, 74.3, 81.8)),
    ),
}
"""Protocol and data set to the paper's figures."""


def paper_rows(protocol: str, test: Catalog) -> tuple[PaperRow, ...]:
    """The paper's figures for this protocol on these videos; none for a part of a data set."""
    if len({video.label for video in test}) != NUM_CLASSES.get(test.layout):
        return ()
    return PAPER_ROWS.get((protocol, test.layout), ())
