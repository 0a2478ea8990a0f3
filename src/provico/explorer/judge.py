"""Routes: say which hits are right, and be told what to judge first."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from provico.explorer.schemas import (
    VIDEO_ID,
    ErrorBody,
    HitJudgement,
    Judged,
    JudgedHits,
    JudgeFirst,
    NewJudgement,
    ToJudge,
    Undo,
)
from provico.explorer.state import BODY_PROBLEMS, DISK_FULL, NOT_FOUND, PROBLEMS, State, VideoId
from provico.search.judgements import Judgement, Judgements, Pair

router = APIRouter(prefix="/api/judgements", tags=["judgements"], responses=PROBLEMS)

_CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {"model": ErrorBody, "description": "Judged elsewhere in the meantime; load it again."}
}


@router.get("", summary="Judged hits of a query")
def judgements(explorer: State, query: Annotated[VideoId, Query(examples=[VIDEO_ID])]) -> JudgedHits:
    """Of damaged lines in the file of judgements, what is wrong with each."""
    known = explorer.judging.log.read()
    return JudgedHits(
        revision=known.revision,
        num_judged=len(known.current),
        hits=[HitJudgement(hit=hit, verdict=one.verdict) for hit, one in known.of_query(query).items()],
        damaged=list(known.damaged),
    )


@router.post("", summary="Judge a hit", responses=NOT_FOUND | _CONFLICT | BODY_PROBLEMS | DISK_FULL)
def judge(explorer: State, body: NewJudgement) -> Judged:
    """Written to disk before the response. From 30 on, every tenth recalibrates the probabilities."""
    new = Judgement(query=body.query, hit=body.hit, verdict=body.verdict)
    with explorer.about(new.pair) as view:
        known = explorer.judging.judge(view, new, body.revision)
    return _state(known, new.pair)


@router.post("/undo", summary="Undo the last judgement", responses=_CONFLICT | BODY_PROBLEMS | DISK_FULL)
def undo(explorer: State, body: Undo) -> Judged:
    """Refused if there was any judgement after `revision`, since that judgement would be undone instead."""
    pair = explorer.judging.undo(body.revision)
    return _state(explorer.judging.log.read(), pair)


@router.get("/first", summary="What to judge first")
def first(explorer: State, limit: Annotated[int, Query(ge=1, le=100)] = 10) -> JudgeFirst:
    """Randomly drawn queries that are not judged yet; if there are none, the most informative queries."""
    view = explorer.collection.view
    found = explorer.judging.first(view, limit)
    names = dict.fromkeys(name for one in found for name in (one.query, one.hit) if name in view.index)
    cards = explorer.cards(view, [view.number(name) for name in names])
    return JudgeFirst(
        items=[ToJudge(query=one.query, hit=one.hit, is_drawn=one.is_drawn) for one in found],
        cards={card.id: card for card in cards},
    )


def _state(known: Judgements, pair: Pair | None) -> Judged:
    holds = None if pair is None else known.current.get(pair)
    return Judged(
        revision=known.revision,
        num_judged=len(known.current),
        query=None if pair is None else pair[0],
        hit=None if pair is None else pair[1],
        verdict=None if holds is None else holds.verdict,
    )
