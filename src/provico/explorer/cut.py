"""Route: a part of a video as a file."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from provico.errors import ConfigError
from provico.explorer.child_work import CutRequest
from provico.explorer.collection import IndexView
from provico.explorer.files import OpenFile, send
from provico.explorer.media import open_source
from provico.explorer.problems import Problem
from provico.explorer.schemas import VIDEO_ID
from provico.explorer.state import NOT_FOUND, PROBLEMS, Explorer, State, VideoId
from provico.explorer.uploads import safe_name

router = APIRouter(prefix="/media", tags=["media"], responses=PROBLEMS | NOT_FOUND)

MOST_SECONDS = 600.0
"""Longer parts are cut on the command line."""


@router.get(
    "/cut",
    summary="A part of a video as a file",
    response_class=Response,
    responses={200: {"content": {"video/mp4": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def cut(
    request: Request,
    explorer: State,
    id: Annotated[VideoId, Query(examples=[VIDEO_ID])],
    start: Annotated[float, Query(ge=0, le=1e7, allow_inf_nan=False)],
    seconds: Annotated[float, Query(gt=0, le=MOST_SECONDS, allow_inf_nan=False)],
) -> Response:
    """What `provico cut` writes: exact to the frame, copied between keyframes, without sound; to be saved."""
    view = await explorer.newest_view()
    file = await explorer.cuts.run(_cut, explorer, view, view.number(id), start, start + seconds)
    response = send(file, request, media_type="video/mp4")
    name = safe_name(f"{PurePosixPath(id).stem} {start:.2f}-{start + seconds:.2f}.mp4")
    response.headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(name)}"
    return response


def _cut(explorer: Explorer, view: IndexView, number: int, start: float, end: float) -> OpenFile:
    """The part as an open file, whose name is gone."""
    source = open_source(explorer, view, number)
    try:
        with explorer.uploads.scratch() as folder:
            out = folder / "part.mp4"
            try:
                explorer.workers.cut(CutRequest(source.path, out, start, end), source.descriptor)
            except ConfigError as error:
                message = f"The video has no frame between {start:.2f} and {end:.2f} s."
                raise Problem(404, "no_frame", message) from error
            return OpenFile(out, roots=[folder])
    finally:
        source.close()
