"""Routes: pictures and videos of the collection. A video is named by its id, never by a path."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from provico.data.frames.frame_index import FrameIndex
from provico.data.library import Library
from provico.errors import ProvicoError
from provico.explorer.child_work import FrameRequest, PreviewRequest
from provico.explorer.collection import IndexView
from provico.explorer.files import OpenFile, send
from provico.explorer.problems import Problem
from provico.explorer.schemas import ErrorBody
from provico.explorer.settings import PICTURE_CACHING
from provico.explorer.state import NOT_FOUND, PROBLEMS, Explorer, State, VideoId

router = APIRouter(prefix="/media", tags=["media"], responses=PROBLEMS | NOT_FOUND)

MAX_HEIGHT = 480
WEEK = 7 * 24 * 3600
PLAYABLE = {
    **dict.fromkeys((".mp4", ".m4v", ".mov"), ("video/mp4", rb"....(ftyp|moov|mdat|wide|free)")),
    ".webm": ("video/webm", rb"\x1a\x45\xdf\xa3"),
    ".ogv": ("video/ogg", rb"OggS"),
}
"""Files that browsers play: by suffix, the media type and how such a file begins."""
PLAYABLE_CODECS = frozenset({"h264", "vp8", "vp9", "av1", "theora"})
_PREVIEW_NAME = re.compile(r"[0-9a-f]{2}/[0-9a-f]{8,64}\.mp4")

Version = Annotated[str, Query(max_length=64, description="Changes when the file does; for caches only.")]
_PARTS: dict[int | str, dict[str, Any]] = {
    206: {"description": "The requested part.", "content": {"video/mp4": {}}},
    304: {"description": "The client has it already."},
    416: {"model": ErrorBody, "description": "The file is shorter than that."},
}


@router.get(
    "/thumbnail",
    summary="A picture of a video",
    response_class=Response,
    responses={
        200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}},
        304: {"description": "The client has it already."},
    },
)
def thumbnail(request: Request, explorer: State, id: VideoId, v: Version = "") -> Response:
    """JPEG of the middle frame."""
    view = explorer.collection.view
    number = view.number(id)
    etag = f'"t-{view.files[number].modified_ns:x}-{view.files[number].num_bytes:x}"'
    headers = {"ETag": etag, "Cache-Control": _caching(v)}
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(view.read(number, "thumbnail")["thumbnail"], media_type="image/jpeg", headers=headers)


@router.get(
    "/preview",
    summary="A short preview of a video, playable in every browser",
    response_class=Response,
    responses=_PARTS | {200: {"content": {"video/mp4": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def preview(request: Request, explorer: State, id: VideoId, v: Version = "") -> Response:
    """H.264, at most 4 seconds from the middle, made on the first request. Supports range requests."""
    view = await explorer.newest_view()
    number = view.number(id)
    folders = view.index.preview_folders
    row = await explorer.pictures.run(view.read, number, "preview")  # others go on meanwhile
    path = folders[0] / str(row["preview"])  # whole where there are several folders
    folder = next((folder for folder in folders if path.is_relative_to(folder)), None)
    if folder is None or not _PREVIEW_NAME.fullmatch(path.relative_to(folder).as_posix()):
        raise Problem(404, "no_file", "There is no preview of this video.")
    if not path.is_file():
        await explorer.previews.run(_make_preview, explorer, view, number, path)
    file = OpenFile(path, roots=[folder])
    return send(file, request, media_type="video/mp4", max_age=WEEK if v else 0)


@router.get(
    "/source",
    summary="The file of a video",
    response_class=Response,
    responses=_PARTS
    | {
        200: {
            "content": {
                kind: {"schema": {"type": "string", "format": "binary"}}
                for kind in ("video/mp4", "video/webm", "video/ogg")
            }
        }
    },
)
def source(request: Request, explorer: State, id: VideoId, v: Version = "") -> Response:
    """Only if a browser can play it, and it is still the file that was indexed. Supports range requests."""
    view = explorer.collection.view
    file = open_source(explorer, view, view.number(id))
    media_type, beginning = PLAYABLE.get(file.path.suffix.lower(), ("", rb"(?!)"))
    if not re.match(beginning, file.begin(16), re.DOTALL):
        file.close()
        raise Problem(404, "not_playable", "Browsers do not play this kind of file.", "Use /media/preview.")
    return send(file, request, media_type=media_type)


@router.get(
    "/frame",
    summary="One frame of a video",
    response_class=Response,
    responses={200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def frame(
    explorer: State,
    id: VideoId,
    seconds: Annotated[float, Query(ge=0, le=1e7, allow_inf_nan=False)] = 0.0,
    height: Annotated[int, Query(ge=16, le=MAX_HEIGHT)] = 180,
    v: Version = "",
) -> Response:
    """JPEG of the frame shown at that time, or of the last one."""
    view = await explorer.newest_view()
    number = view.number(id)
    # Finer than any frame rate, and far fewer pictures than numbers.
    key = (id, view.files[number], round(seconds, 2), height)
    picture = explorer.frames.get(key)
    if picture is None:
        picture = await explorer.pictures.run(_decode, explorer, view, number, round(seconds, 2), height)
        explorer.frames.put(key, picture)
    return Response(picture, media_type="image/jpeg", headers={"Cache-Control": _caching(v)})


def _decode(explorer: Explorer, view: IndexView, number: int, seconds: float, height: int) -> bytes:
    file = open_source(explorer, view, number)
    try:
        return explorer.workers.frame(FrameRequest(file.path, seconds, height), file.descriptor)
    finally:
        file.close()


def _make_preview(explorer: Explorer, view: IndexView, number: int, preview: Path) -> None:
    if preview.is_file():  # who asked before has waited for it, too
        return
    file = open_source(explorer, view, number)
    try:
        explorer.workers.preview(PreviewRequest(file.path, preview), file.descriptor)
    finally:
        file.close()


def open_source(explorer: Explorer, view: IndexView, number: int) -> OpenFile:
    """The file of a video, if it is still the one that was indexed and lies where it may be served from."""
    path = Path(view.read(number, "path")["path"])
    return OpenFile(path, roots=explorer.settings.roots or view.roots, expected=view.files[number])


def is_playable(explorer: Explorer, view: IndexView, number: int) -> bool:
    """Whether browsers play the file of a video, as far as is known without decoding it."""
    try:
        file = open_source(explorer, view, number)
    except Problem:
        return False
    _, beginning = PLAYABLE.get(file.path.suffix.lower(), ("", rb"(?!)"))
    is_known = re.match(beginning, file.begin(16), re.DOTALL) is not None
    file.close()
    try:
        known = Library().recall(file.path) if is_known else None
    except ProvicoError:
        known = None
    return is_known and (not isinstance(known, FrameIndex) or known.facts.codec in PLAYABLE_CODECS)


def _caching(version: str) -> str:
    return PICTURE_CACHING if version else "private, no-cache"
