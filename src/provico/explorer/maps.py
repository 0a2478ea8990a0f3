"""Routes: the collection on two or three axes."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, Query

from provico.explorer.schemas import MapPoints
from provico.explorer.state import PROBLEMS, State

router = APIRouter(prefix="/api", tags=["collection"], responses=PROBLEMS)


@router.get("/map", summary="The collection on two or three axes")
def points(explorer: State, dim: Annotated[Literal["2", "3"], Query()] = "2") -> MapPoints:
    """Principal components of the means, and k-means clusters: the same for the same index.

    Of more than 20,000 videos every second, third, ... is shown, and `is_sampled` says so.
    """
    view = explorer.collection.view
    videos, shown, num_axes = view.index.loaded.videos, view.shown, int(dim)
    places = view.axes.project(videos.mean.numpy()[shown].astype(float))
    spreads = view.axes.spread(np.exp(videos.log_var.numpy()[shown].astype(float)))[:, :num_axes]
    x, y, z = places.T.tolist()
    return MapPoints(
        dim=3 if num_axes == 3 else 2,
        num_videos=len(view),
        is_sampled=len(shown) < len(view),
        ids=[view.ids[number] for number in shown],
        x=x,
        y=y,
        z=z if num_axes == 3 else None,
        radius=np.sqrt(np.square(spreads).mean(axis=1)).tolist(),
        uncertainty=view.numbers["uncertainty"][shown].tolist(),
        labels=view.words["label"][shown].tolist(),
        clusters=view.clusters.tolist(),
        explained=view.axes.explained[:num_axes].tolist(),
    )
