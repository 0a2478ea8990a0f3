"""The three nearest neighbours of some queries, found by models with and without hard positives (figure A3).

Queries are evenly spaced in the test list, so none is hand-picked. Wrong answers have a red frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from provico.data.catalog import Catalog
from provico.data.clips import ClipSpec
from provico.data.loader import ClipLoader, ClipSettings
from provico.evaluation.retrieval import retrieve
from provico.evaluation.statistics import over_groups
from provico.reproduce.bench import Bench, Trained
from provico.reproduce.experiment import Check, Experiment, ExperimentResult, Row, Size
from provico.reproduce.figures import RIGHT, WRONG, add_axes, new_figure
from provico.reproduce.measure import embed_run
from provico.reproduce.settings import changed, starting_point

NUM_QUERIES = 5
NUM_FOUND = 3
PIXELS = 96

Pictures = dict[str, NDArray[np.uint8]]


def run(bench: Bench) -> ExperimentResult:
    """Compare both models on the first split, by all queries; show a few."""
    config = starting_point(bench, seed=bench.size.seeds[0])
    split = bench.splits[0]
    sets = bench.sets(split)
    found, seconds, failures = {}, 0.0, []
    for name, mined in (("without", False), ("with", True)):
        settings = config if mined else changed(config, mining={"mine_from": None})
        bench.announce(f"{name} hard positives")
        trained = bench.trained(settings, split)
        seconds += trained.cpu_seconds
        if not trained.is_healthy:
            failures.append(trained.failure)
            continue

        def compute(trained: Trained = trained) -> dict[str, Any]:
            return _nearest(bench, trained, split)

        key = [settings.to_dict(), split, bench.size.num_clips]
        found[name] = bench.once("nearest", key, sets.test, compute)
        seconds += found[name]["cpu_seconds"]
    caption = (
        f"Test videos (left) and their {NUM_FOUND} nearest training videos by match probability, found by "
        "the model that was trained without hard positives (middle) and with them (right); the middle frame "
        "of each video. Red frame: another class. Axes in pixels of a frame."
    )
    if failures:
        figure = new_figure(caption)
        return ExperimentResult(
            rows=(),
            checks=(),
            figure=figure,
            caption=caption,
            obstacle=f"training was stopped: {failures[0]}",
        )
    queries = found["with"]["queries"]
    shown = np.unique(np.linspace(0, len(queries) - 1, NUM_QUERIES).round().astype(int)).tolist()
    groups = [sets_group or name for sets_group, name in zip(found["with"]["groups"], queries, strict=True)]
    right = {name: np.array(part["right"], np.float64).mean(axis=1) * 100 for name, part in found.items()}
    return ExperimentResult(
        rows=_rows(found, shown),
        checks=[
            Check(
                f"of the {NUM_FOUND} nearest, more have the query's class with hard positives than without",
                over_groups(right["with"] - right["without"], groups),
            )
        ],
        figure=_draw(bench, sets.test, sets.train, found, shown, caption),
        caption=caption,
        seeds=bench.size.seeds[:1],
        splits=(split,),
        cpu_seconds=seconds,
    )


def _nearest(bench: Bench, trained: Trained, split: int) -> dict[str, Any]:
    run = embed_run(bench, trained.encoder(), bench.sets(split))
    report = retrieve(run.queries, run.gallery, curve=run.encoder.match_curve(), ks=(NUM_FOUND,))
    return {
        "queries": run.queries.ids,
        "labels": run.queries.labels,
        "groups": run.queries.groups,
        "nearest": [[run.gallery.ids[number] for number in row] for row in report.nearest.tolist()],
        "found_labels": [[run.gallery.labels[number] for number in row] for row in report.nearest.tolist()],
        "right": report.right.int().tolist(),
    }


def _rows(found: dict[str, Any], shown: Sequence[int]) -> list[Row]:
    rows: list[Row] = []
    for query in shown:
        for name, part in found.items():
            row: dict[str, str | float | None] = {
                "query": part["queries"][query],
                "class": part["labels"][query],
                "hard positives": name,
            }
            for rank in range(NUM_FOUND):
                mark = "" if part["right"][query][rank] else " (wrong)"
                row[f"nearest {rank + 1}"] = f"{part['nearest'][query][rank]}{mark}"
            rows.append(row | {"paper": "more of them right with hard positives" if not rows else None})
    return rows


def middle_frames(bench: Bench, catalog: Catalog, ids: set[str]) -> Pictures:
    """One frame of each of these videos, cut to a square."""
    chosen = catalog.subset([number for number, video in enumerate(catalog) if video.id in ids])
    settings = ClipSettings(
        num_clips=1, spec=ClipSpec(1, 1), sampling="uniform", short_side=PIXELS, crop_size=PIXELS
    )
    loader = ClipLoader(
        chosen,
        settings,
        batch_size=8,
        shuffle=False,
        drop_last=False,
        max_broken_share=1.0,
        library=bench.library,
    )
    return {
        chosen[number].id: pixels[0, 0].numpy()
        for batch in loader
        for number, pixels in zip(batch.videos.tolist(), batch.pixels, strict=True)
    }


def _draw(
    bench: Bench, test: Catalog, train: Catalog, found: dict[str, Any], shown: Sequence[int], caption: str
) -> Figure:
    first = next(iter(found.values()))
    asked = middle_frames(bench, test, {first["queries"][query] for query in shown})
    wanted = {name for part in found.values() for query in shown for name in part["nearest"][query]}
    gallery = middle_frames(bench, train, wanted)
    columns = 1 + 2 * NUM_FOUND
    figure = new_figure(caption, width=1.25 * columns, height=1.45 * len(shown))
    axes = np.array(add_axes(figure, rows=len(shown), columns=columns)).reshape(len(shown), columns)
    for row, query in zip(axes, shown, strict=True):
        _show(row[0], asked[first["queries"][query]], first["labels"][query])
        for start, part in zip((1, 1 + NUM_FOUND), found.values(), strict=True):
            for rank in range(NUM_FOUND):
                colour = RIGHT if part["right"][query][rank] else WRONG
                picture = gallery[part["nearest"][query][rank]]
                _show(row[start + rank], picture, part["found_labels"][query][rank], colour=colour)
    for axis in axes[:, 0]:
        axis.set_ylabel("y (pixels)", fontsize=6)
    for number, axis in enumerate(axes[-1]):
        words = (
            "query"
            if number == 0
            else f"{'without' if number <= NUM_FOUND else 'with'}, rank {(number - 1) % NUM_FOUND + 1}"
        )
        axis.set_xlabel(f"x (pixels)\n{words}", fontsize=6)
    return figure


def _show(axis: Axes, picture: NDArray[np.uint8], label: str, *, colour: str | None = None) -> None:
    axis.imshow(picture)
    axis.grid(False)
    axis.set_title(label, fontsize=6, color=colour or "black")
    axis.set_xticks([0, PIXELS - 1])
    axis.set_yticks([0, PIXELS - 1])
    axis.tick_params(labelsize=5, length=1)
    for side in axis.spines.values():
        side.set_visible(colour is not None)
        side.set_color(colour or "black")
        side.set_linewidth(3 if colour == WRONG else 1)


QUALITATIVE = Experiment(
    name="qualitative",
    title="Nearest neighbours with and without hard positives",
    source="Figure A3",
    claim="The model that was trained with hard positives finds more videos of the query's class.",
    rule="Reproduced if the share of right answers among the three nearest is higher with hard positives, "
    "with the whole 95 % interval over groups.",
    sizes={
        "smoke": Size(recipe="scratch", epochs=2, num_clips=4, is_evidence=False),
        "cpu": Size(recipe="scratch", num_clips=4),
        "paper": Size(recipe="paper", backbone="r2plus1d18"),
    },
    run=run,
)
