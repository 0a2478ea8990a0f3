"""Routes: decide what is to become of videos."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query

from provico.curation.proposals import Bucket
from provico.explorer.problems import Problem
from provico.explorer.schemas import Decided, DecisionState, ErrorBody, NewDecision, Undo
from provico.explorer.schemas_overview import CurationItem, CurationPage
from provico.explorer.state import BODY_PROBLEMS, DISK_FULL, NOT_FOUND, PROBLEMS, Explorer, State

router = APIRouter(prefix="/api/curation", tags=["curation"], responses=PROBLEMS)

_CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {"model": ErrorBody, "description": "Decided elsewhere in the meantime; load it again."}
}
_URGENCY = {"review": 0, "trim": 1, "drop": 2, "keep": 3}


@router.get("", summary="The queue of videos to decide on")
def queue(
    explorer: State,
    bucket: Annotated[list[Bucket] | None, Query(max_length=4)] = None,
    undecided: Annotated[bool, Query(description="Leave out decided videos.")] = False,
    offset: Annotated[int, Query(ge=0, le=2**40)] = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> CurationPage:
    """Videos to review first, then those to trim, to drop and to keep; the most uncertain first."""
    view = explorer.collection.view
    revision, decided = explorer.curation.revision, explorer.curation.decisions()
    buckets, proposed = explorer.curation.buckets(view), explorer.curation.proposals(view)
    # Sorted by what is proposed, so that a decision moves nothing under the reader's hand.
    order = np.lexsort(
        (-view.numbers["uncertainty"], np.array([_URGENCY[one.bucket] for one in proposed], int))
    )
    found = [
        number
        for number in order.tolist()
        if (not bucket or buckets[number] in bucket) and not (undecided and view.ids[number] in decided)
    ]
    items = []
    for number in found[offset : offset + limit]:
        decision = decided.get(view.ids[number])
        items.append(
            CurationItem(
                **view.card(number, buckets[number]).model_dump(),
                reason=proposed[number].reason,
                detail=proposed[number].detail,
                proposal_segments=list(proposed[number].segments),
                decision=None if decision is None else DecisionState.of(decision),
            )
        )
    return CurationPage(
        revision=revision,
        counts=explorer.curation.counts(view),
        total=len(found),
        offset=offset,
        items=items,
        damaged=list(explorer.curation.damaged()),
    )


@router.post(
    "/decisions",
    summary="Record a decision about a video",
    responses=NOT_FOUND | _CONFLICT | BODY_PROBLEMS | DISK_FULL,
)
def decide(explorer: State, body: NewDecision) -> Decided:
    """Written to disk and to the manifest before the response."""
    with explorer.about([body.id]) as view:
        number = view.number(body.id)
        end = float(view.numbers["duration_seconds"][number])
        if any(segment[1] > end + 0.5 for segment in body.segments):
            raise Problem(422, "invalid", f"A segment ends after the video, which lasts {end:.2f} s.")
        explorer.curation.decide(view, number, body.decision, body.segments, body.revision)
    return _state(explorer, body.id)


@router.post("/undo", summary="Undo the last decision", responses=_CONFLICT | BODY_PROBLEMS | DISK_FULL)
def undo(explorer: State, body: Undo) -> Decided:
    """Refused if there was any decision after `revision`, since that decision would be undone instead."""
    return _state(explorer, explorer.curation.undo(explorer.collection.view, body.revision))


def _state(explorer: Explorer, name: str | None) -> Decided:
    decision = explorer.curation.decisions().get(name or "")
    return Decided(
        revision=explorer.curation.revision,
        id=name,
        decision=None if decision is None else DecisionState.of(decision),
        counts=explorer.curation.counts(explorer.collection.view),
    )
