"""Routes: what is in the collection, and all about one video."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlencode

import numpy as np
import torch
from fastapi import APIRouter, Query
from numpy.typing import NDArray

from provico.explorer.collection import IndexView
from provico.explorer.media import is_playable
from provico.explorer.schemas import (
    VIDEO_ID,
    ClipPoint,
    Count,
    DecisionState,
    Distribution,
    EncoderFacts,
    Histogram,
    MapPoints,
    Stats,
    VideoDetails,
    VideoPage,
)
from provico.explorer.state import NOT_FOUND, PROBLEMS, State, VideoId
from provico.explorer.words import knows_words
from provico.probability.gaussian import Gaussian
from provico.search.query import CLIP_COLUMNS, all_clips

router = APIRouter(prefix="/api", tags=["collection"], responses=PROBLEMS)

MAX_LIMIT = 200
MAX_CLIPS = 300
"""Clips of a long video that are shown."""
NUM_BINS = 24
_COLUMNS = {"duration": "duration_seconds"}
Sort = Literal[
    "id",
    "uncertainty",
    "disagreement",
    "duration",
    "-id",
    "-uncertainty",
    "-disagreement",
    "-duration",
]
Words = Annotated[list[str] | None, Query(max_length=100)]
Number = Annotated[float | None, Query(allow_inf_nan=False)]
Share = Annotated[float | None, Query(ge=0, le=1, description="A percentile of the collection.")]


@router.get("/stats", summary="The collection in a few numbers")
def stats(explorer: State) -> Stats:
    """Counts, distributions, and which encoder made the index."""
    view = explorer.collection.view
    embedding = view.index.settings.embedding
    config = embedding.encoder_config
    return Stats(
        num_videos=int(explorer.present(view).sum()),
        version=view.version,
        labels=[Count(label=word, count=count) for word, count in view.counts("label")],
        subsets=[Count(label=word, count=count) for word, count in view.counts("subset")],
        uncertainty=_distribution(view.numbers["uncertainty"]),
        duration_seconds=_distribution(view.numbers["duration_seconds"]),
        encoder=EncoderFacts(
            hash=embedding.encoder_hash,
            backbone=config.backbone,
            dim=config.dim,
            num_clips=embedding.num_clips,
            num_frames=config.input.num_frames,
            frame_step=config.input.frame_step,
        ),
        calibration=view.calibration,
        buckets=explorer.curation.counts(view),
        knows_words=knows_words(view),
        trouble=explorer.collection.trouble,
    )


@router.get("/videos", summary="A page of videos, sorted and filtered")
def videos(
    explorer: State,
    offset: Annotated[int, Query(ge=0, le=2**40)] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = 60,
    sort: Annotated[Sort, Query(description="A minus sign sorts downwards.")] = "id",
    label: Words = None,
    subset: Words = None,
    bucket: Words = None,
    tag: Words = None,
    kind: Words = None,
    cluster: Annotated[int | None, Query(ge=0)] = None,
    min_uncertainty: Number = None,
    max_uncertainty: Number = None,
    min_unsure: Share = None,
    max_unsure: Share = None,
    min_seconds: Number = None,
    max_seconds: Number = None,
    text: Annotated[str, Query(max_length=200, description="Part of an id or a label.")] = "",
) -> VideoPage:
    """Filters hold together; of `label`, `subset`, `bucket`, `kind` and `tag` several may be given, of which
    one must fit.

    A word that no video has finds nothing, which is no error.
    """
    view = explorer.collection.view
    passes = explorer.present(view).copy()
    for name, wanted in (("label", label), ("subset", subset)):
        if wanted:
            passes &= np.isin(view.words[name].astype(str), wanted)
    if bucket:
        passes &= np.isin(explorer.curation.buckets(view), bucket)
    if kind:
        passes &= np.isin([one.kind for one in explorer.curation.proposals(view)], kind)
    if tag:
        tagged = {name for name, tags in explorer.actions.read().tags.items() if set(tags) & set(tag)}
        passes &= np.fromiter((name in tagged for name in view.ids), bool, len(view))
    if cluster is not None:
        members = explorer.grouping.of(view).members
        passes &= np.isin(np.arange(len(view)), view.shown[members == cluster])
    for values, least, most in (
        (view.numbers["uncertainty"], min_uncertainty, max_uncertainty),
        (view.percentiles, min_unsure, max_unsure),
        (view.numbers["duration_seconds"], min_seconds, max_seconds),
    ):
        passes &= values >= (-np.inf if least is None else least)
        passes &= values <= (np.inf if most is None else most)
    if text:
        folded = text.casefold()
        passes &= np.fromiter((folded in one for one in view.folded), bool, len(view))
    column = sort.removeprefix("-")
    order = view.order(_COLUMNS.get(column, column), descending=sort.startswith("-"))
    found = order[passes[order]]
    items = explorer.cards(view, found[offset : offset + limit].tolist())
    return VideoPage(total=len(found), offset=offset, items=items)


@router.get("/video", summary="Details of a video", responses=NOT_FOUND)
def video(explorer: State, id: Annotated[VideoId, Query(examples=[VIDEO_ID])]) -> VideoDetails:
    """Its clips over time, where they lie on the map, and what was decided about it."""
    view = explorer.collection.view
    number = view.number(id)
    (card,) = explorer.cards(view, [number])
    decision = explorer.curation.decisions().get(id)
    row = view.read(number, "path")
    query = urlencode({"id": id, "v": f"{view.files[number].modified_ns:x}"})
    return VideoDetails(
        **card.model_dump(),
        path_name=Path(row["path"]).name,
        num_bytes=view.files[number].num_bytes,
        clips=_clips(view, number),
        source=f"/media/source?{query}" if is_playable(explorer, view, number) else None,
        decision=None if decision is None else DecisionState.of(decision),
    )


def _distribution(values: NDArray[np.float64]) -> Distribution:
    if not len(values):
        return Distribution(min=None, median=None, max=None, histogram=Histogram(edges=[], counts=[]))
    counts, edges = np.histogram(values, bins=NUM_BINS)
    return Distribution(
        min=float(values.min()),
        median=float(np.median(values)),
        max=float(values.max()),
        histogram=Histogram(edges=edges.tolist(), counts=counts.tolist()),
    )


def _clips(view: IndexView, number: int) -> list[ClipPoint]:
    """Its clips; of a long video so many of its timeline, each for the time until the next one."""
    row = view.read(number, *CLIP_COLUMNS)
    seconds, mean, log_var = all_clips({name: [row[name]] for name in CLIP_COLUMNS}, 0)
    if len(seconds) > len(row["clip_mean"]):
        shown = np.linspace(0, len(seconds) - 1, min(len(seconds), MAX_CLIPS)).astype(int)
        ends = np.append(seconds[shown[1:], 0], seconds[-1, 1])
        seconds, mean, log_var = np.stack([seconds[shown, 0], ends], axis=1), mean[shown], log_var[shown]
    clips = Gaussian(torch.tensor(mean, dtype=torch.float64), torch.tensor(log_var, dtype=torch.float64))
    coordinates = view.axes.project(clips.mean.numpy())
    spreads = view.axes.spread(clips.var.numpy())
    return [
        ClipPoint(
            start_seconds=float(seconds[clip, 0]),
            end_seconds=float(seconds[clip, 1]),
            uncertainty=uncertainty,
            x=float(coordinates[clip, 0]),
            y=float(coordinates[clip, 1]),
            radius=radius_of(spreads[clip, :2]),
        )
        for clip, uncertainty in enumerate(clips.uncertainty.tolist())
    ]


def radius_of(spread: NDArray[np.float64]) -> float:
    """One radius for the standard deviations along the axes that are shown."""
    return float(np.sqrt(np.square(spread).mean()))


@router.get("/map", summary="The collection on two or three axes")
def points(explorer: State, dim: Annotated[Literal["2", "3"], Query()] = "2") -> MapPoints:
    """Principal components of the means, and groups of similar videos: the same for the same index.

    Of more than 20,000 videos every second, third, ... is shown, and `is_sampled` says so.
    """
    view = explorer.collection.view
    is_present = explorer.present(view)[view.shown]
    videos, shown, num_axes = view.index.loaded.videos, view.shown[is_present], int(dim)
    coordinates = view.axes.project(videos.mean.numpy()[shown].astype(float))
    spreads = view.axes.spread(np.exp(videos.log_var.numpy()[shown].astype(float)))[:, :num_axes]
    x, y, z = coordinates.T.tolist()
    groups = explorer.grouping.of(view)
    return MapPoints(
        dim=3 if num_axes == 3 else 2,
        num_videos=len(view),
        is_sampled=len(view.shown) < len(view),
        ids=[view.ids[number] for number in shown],
        x=x,
        y=y,
        z=z if num_axes == 3 else None,
        radius=np.sqrt(np.square(spreads).mean(axis=1)).tolist(),
        uncertainty=view.percentiles[shown].tolist(),
        labels=view.words["label"][shown].tolist(),
        clusters=groups.members[is_present].tolist(),
        cluster_titles=[name.title for name in groups.names],
        explained=view.axes.explained[:num_axes].tolist(),
    )
