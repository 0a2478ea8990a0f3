"""Many made-up videos, and answers that should be equal."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from provico.search.answer import Answer
from provico.search.hits import Hit
from provico.search.row_writer import sample_columns
from provico.search.store.folder import IndexSettings
from provico.search.store.video_store import Rows


def crowd_rows(settings: IndexSettings, number: int) -> Rows:
    """Made-up videos, in clusters of clouds of very different widths."""
    rng = np.random.default_rng(0)
    rows: Rows = {
        name: rng.normal(size=(number, *column.shape)).astype(column.dtype)
        for name, column in settings.columns.items()
        if not column.is_ragged
    }
    dim = settings.columns["mean"].size
    centres = 3 * rng.normal(size=(12, 1, dim))
    clips = centres[rng.integers(12, size=number)] + 0.5 * rng.normal(size=(number, 1, dim))
    rows["clip_mean"] = np.broadcast_to(clips, rows["clip_mean"].shape).astype(np.float32)
    widths = rng.choice([-8.0, -4.0, 0.0, 3.0], p=[0.4, 0.4, 0.18, 0.02], size=(number, 1, 1))
    rows["clip_log_var"] = np.broadcast_to(widths, rows["clip_mean"].shape).astype(np.float32)
    rows["clip_mean"][1] = rows["clip_mean"][0]  # copies, but for their samples
    rows["mean"], rows["log_var"] = rows["clip_mean"][:, 0], rows["clip_log_var"][:, 0]
    rows |= {name: ["word"] * number for name in ("path", "label", "group", "subset", "preview")}
    rows |= {"content_hash": [""] * number, "thumbnail": [b""] * number}
    rows["id"] = [f"{place:05}" for place in rng.permutation(number)]
    make_long(rows, range(0, number, 500), rng)
    return rows | sample_columns(rows, settings)


def make_long(rows: Rows, places: Iterable[int], rng: np.random.Generator) -> None:
    """Give some made-up videos timelines of different numbers of clips, each of which drifts on its own."""
    number, dim = len(rows["id"]), rows["mean"].shape[1]
    rows["duration_seconds"] = np.full(number, 5.0)
    timelines = {name: [np.empty((0, width), kind)] * number for name, width, kind in _timeline(dim)}
    for place in places:
        num_clips = int(rng.integers(2, 40))
        starts = np.arange(num_clips, dtype=np.float64)
        drift = rng.normal(scale=0.4, size=(num_clips, dim)).cumsum(axis=0)
        widths = rng.choice([-6.0, -3.0, 0.0], size=(num_clips, 1))
        for (name, _, kind), values in zip(
            _timeline(dim),
            (np.stack([starts, starts + 0.5], axis=1), rows["mean"][place] + drift, widths + 0 * drift),
            strict=True,
        ):
            timelines[name][place] = values.astype(kind)
        rows["duration_seconds"][place] = 21.0
    rows |= timelines


def _timeline(dim: int) -> list[tuple[str, int, type[np.generic]]]:
    return [
        ("timeline_seconds", 2, np.float64),
        ("timeline_mean", dim, np.float32),
        ("timeline_log_var", dim, np.float32),
    ]


def without_place(answer: Answer) -> Answer:
    """But for where previews are."""
    hits = tuple(dataclasses.replace(hit, preview=Path(hit.preview).name) for hit in answer.hits)
    return dataclasses.replace(answer, hits=hits)


def same_hits(found: tuple[Hit, ...], expected: tuple[Hit, ...]) -> bool:
    """In all fields; what is computed to the last digits that float64 has."""

    def same(ours: float | None, theirs: float | None) -> bool:
        return ours is theirs if ours is None or theirs is None else math.isclose(ours, theirs, rel_tol=1e-12)

    computed = ("score", "log_probability", "false_match_rate", "expected_by_chance")
    return all(
        dataclasses.replace(ours, **{name: getattr(theirs, name) for name in computed}) == theirs
        and all(same(getattr(ours, name), getattr(theirs, name)) for name in computed)
        for ours, theirs in zip(found, expected, strict=True)
    )
