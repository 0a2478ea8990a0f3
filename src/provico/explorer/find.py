"""Routes: search by an indexed video, by a part of one, or by a file that is sent."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Form, Query, UploadFile
from fastapi.responses import Response

from provico.embedding.embeddings import VideoEmbedding
from provico.explorer.child_work import EmbedRequest
from provico.explorer.collection import IndexView, short_name
from provico.explorer.media import open_source
from provico.explorer.problems import Problem
from provico.explorer.schemas import VIDEO_ID, SearchResult
from provico.explorer.state import BODY_PROBLEMS, NOT_FOUND, PROBLEMS, Explorer, State, VideoId
from provico.search.answer import Unreached
from provico.search.query import Asked, Exclusion, Filter, Span

router = APIRouter(prefix="/api", tags=["search"], responses=PROBLEMS)

METRIC_LENGTH = 100
"""Characters of a name of a metric, at most."""
Words = Annotated[list[str] | None, Query(max_length=100)]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is to be found."""

    k: int
    metric: str
    max_chance: float | None
    min_probability: float | None
    max_error: float | None = None
    labels: tuple[str, ...] = ()
    subsets: tuple[str, ...] = ()
    exclude_same: Exclusion = "video"


@router.get(
    "/search",
    summary="Find the videos that most probably match an indexed one",
    response_model=SearchResult,
    responses=NOT_FOUND,
)
async def search(
    explorer: State,
    id: Annotated[VideoId, Query(examples=[VIDEO_ID])],
    start: Annotated[float | None, Query(ge=0, allow_inf_nan=False)] = None,
    end: Annotated[float | None, Query(gt=0, allow_inf_nan=False)] = None,
    k: Annotated[int, Query(ge=1, le=200)] = 12,
    metric: Annotated[str, Query(max_length=METRIC_LENGTH)] = "match",
    max_chance: Annotated[float | None, Query(ge=0, allow_inf_nan=False)] = None,
    min_probability: Annotated[float | None, Query(ge=0, le=1)] = None,
    max_error: Annotated[float | None, Query(gt=0, lt=1)] = None,
    label: Words = None,
    subset: Words = None,
    exclude_same: Exclusion = "video",
) -> Response:
    """With `start` and `end` in seconds, only that part is asked about. Chance is limited only if told."""
    span = _span(start, end)
    options = Options(
        k=k,
        metric=metric,
        max_chance=max_chance,
        min_probability=min_probability,
        max_error=max_error,
        labels=tuple(label or ()),
        subsets=tuple(subset or ()),
        exclude_same=exclude_same,
    )
    view = await explorer.newest_view()
    view.number(id)
    state = (view.key, view.calibration_key, explorer.curation.state, *explorer.kept_state)
    key = (*state, None if max_error is None else explorer.judging.state, id, span, options)
    found = explorer.answers.get(key)
    if found is None:
        query: str | Asked = id
        if span is not None:
            query = await explorer.embeddings.run(_embed_span, explorer, view, id, span)
        found = await explorer.searches.run(_find, explorer, view, query, options)
        explorer.answers.put(key, found)
    return Response(found, media_type="application/json")


@router.post(
    "/search",
    summary="Find the videos that most probably match a file",
    response_model=SearchResult,
    responses=BODY_PROBLEMS,
)
async def search_by_file(
    explorer: State,
    file: UploadFile,
    k: Annotated[int, Form(ge=1, le=200)] = 12,
    metric: Annotated[str, Form(max_length=METRIC_LENGTH)] = "match",
    max_chance: Annotated[float | None, Form(ge=0, allow_inf_nan=False)] = None,
    min_probability: Annotated[float | None, Form(ge=0, le=1)] = None,
    max_error: Annotated[float | None, Form(gt=0, lt=1)] = None,
) -> Response:
    """The file is decoded and embedded in a process of its own, and removed at once."""
    options = Options(
        k=k, metric=metric, max_chance=max_chance, min_probability=min_probability, max_error=max_error
    )
    view = await explorer.newest_view()
    query = await explorer.embeddings.run(_embed_upload, explorer, view, file)
    found = await explorer.searches.run(_find, explorer, view, query, options)
    return Response(found, media_type="application/json")


def _span(start: float | None, end: float | None) -> tuple[float, float] | None:
    if start is None and end is None:
        return None
    if start is None or end is None or not start < end:
        raise Problem(422, "invalid", "A part of a video needs a start and an end after it, in seconds.")
    return start, end


def _find(explorer: Explorer, view: IndexView, query: str | Asked, options: Options) -> bytes:
    """The answer as JSON."""
    answer = view.index.search(
        query,
        k=options.k,
        metric=options.metric,
        max_chance=options.max_chance,
        min_probability=options.min_probability,
        max_error=options.max_error,
        filter=Filter(labels=options.labels or None, subsets=options.subsets or None),
        exclude_same=options.exclude_same,
    )
    row_of, present = view.index.loaded.row_of_id, explorer.present(view)
    hits = tuple(hit for hit in answer.hits if present[row_of[hit.id]])
    answer = dataclasses.replace(answer, hits=hits)
    names = [hit.id for hit in answer.hits]
    if answer.query in row_of:
        names.append(answer.query)
    cards = explorer.cards(view, [row_of[name] for name in names])
    found = set(names)
    groups = [[name for name in group if name in found] for group in explorer.duplicates.groups()]
    result = SearchResult(
        answer=answer.summary() | {"unreached": [_told(part) for part in answer.unreached]},
        cards={card.id: card for card in cards},
        duplicates=[group for group in groups if len(group) > 1],
        query_percentile=view.percentile(answer.uncertainty),
    )
    found_as_json: str = result.model_dump_json()
    return found_as_json.encode()


def _told(part: Unreached) -> dict[str, str]:
    return {"name": short_name(part), "reason": "The server's log says why."}


def _embed_span(explorer: Explorer, view: IndexView, name: str, span: tuple[float, float]) -> Asked:
    number = view.number(name)
    file = open_source(explorer, view, number)
    try:
        found = explorer.workers.embed(_request(explorer, view, file.path, span=span), file.descriptor)
    finally:
        file.close()
    return _asked(found, name, view.index.find(name), Span(*span))


def _embed_upload(explorer: Explorer, view: IndexView, upload: UploadFile) -> Asked:
    with explorer.uploads.keep(upload.filename or "", upload.file) as kept:
        if not kept.path.stat().st_size:
            raise Problem(422, "unreadable_video", "The file is empty.")
        found = explorer.workers.embed(_request(explorer, view, kept.path, library=kept.library))
    return _asked(found, kept.name, None, None)


def _request(
    explorer: Explorer,
    view: IndexView,
    path: Path,
    *,
    span: tuple[float, float] | None = None,
    library: Path | None = None,
) -> EmbedRequest:
    embedding = view.index.settings.embedding
    return EmbedRequest(
        path=path,
        encoder=view.index.encoder_folder.absolute(),
        num_clips=embedding.num_clips,
        short_side=embedding.short_side,
        allow_import=explorer.settings.allow_import,
        span=span,
        library=library,
    )


def _asked(found: VideoEmbedding, name: str, number: int | None, span: Span | None) -> Asked:
    return Asked(name, span, number, found.gaussians, found.clip_seconds)
