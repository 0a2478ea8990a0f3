"""Routes: duplicates, and which pairs are none after all."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from provico.duplicates.report import Group, Member
from provico.explorer.collection import IndexView
from provico.explorer.schemas_overview import (
    Copy,
    DuplicateGroup,
    DuplicatesPage,
    PartPair,
    Rejected,
    Rejection,
)
from provico.explorer.state import BODY_PROBLEMS, DISK_FULL, NOT_FOUND, PROBLEMS, Explorer, State

router = APIRouter(prefix="/api/duplicates", tags=["duplicates"], responses=PROBLEMS)

MOST_PARTS = 100


@router.get("", summary="Groups of videos that show the same")
def duplicates(
    explorer: State,
    offset: Annotated[int, Query(ge=0, le=2**40)] = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> DuplicatesPage:
    """What was found and not rejected, without videos that have left the index or are in the trash."""
    view, report = explorer.collection.view, explorer.duplicates.report()
    num_rejected = len(explorer.duplicates.kept.rejected())
    if report is None:
        return DuplicatesPage(is_known=False, total=0, groups=[], parts=[], num_rejected=num_rejected)
    present, row_of = explorer.present(view), view.index.loaded.row_of_id
    there = {name for name, row in row_of.items() if present[row]}
    groups = [one for group in report.groups if (one := _of_group(explorer, view, group, there))]
    parts = [pair for pair in report.parts if pair.first.id in there and pair.second.id in there]
    return DuplicatesPage(
        is_known=True,
        total=len(groups),
        groups=groups[offset : offset + limit],
        parts=[
            PartPair(
                first=explorer.cards(view, [row_of[pair.first.id]])[0],
                second=explorer.cards(view, [row_of[pair.second.id]])[0],
                kind=pair.kind,
                first_span=(pair.first_span.start_seconds, pair.first_span.end_seconds),
                second_span=(pair.second_span.start_seconds, pair.second_span.end_seconds),
                speed=pair.speed,
                is_mirrored=pair.is_mirrored,
                probability=pair.probability,
            )
            for pair in parts[:MOST_PARTS]
        ],
        num_rejected=num_rejected,
    )


@router.post(
    "/rejections", summary="Mark pairs as not the same", responses=NOT_FOUND | BODY_PROBLEMS | DISK_FULL
)
def reject(explorer: State, body: Rejection) -> Rejected:
    """They are left out from now on, also when duplicates are searched again. Can also undo this."""
    with explorer.about(name for pair in body.pairs for name in pair):
        explorer.duplicates.kept.reject(body.pairs, rejected=body.rejected)
    return Rejected(num_rejected=len(explorer.duplicates.kept.rejected()))


def _of_group(explorer: Explorer, view: IndexView, group: Group, there: set[str]) -> DuplicateGroup | None:
    """What is left of a group; None if that is nothing to choose from."""
    members = [member for member in (group.keep, *group.drop) if member.id in there]
    if len(members) < 2:
        return None
    keep, *copies = members
    is_whole = keep.id == group.keep.id
    return DuplicateGroup(
        keep=_copy(explorer, view, keep, "" if is_whole else group.edits[keep.id]),
        reason=group.reason if is_whole else "the better one is in the trash",
        copies=[_copy(explorer, view, member, group.edits.get(member.id, "")) for member in copies],
        probability=group.probability,
    )


def _copy(explorer: Explorer, view: IndexView, member: Member, edit: str) -> Copy:
    row = view.number(member.id)
    (card,) = explorer.cards(view, [row])
    bars = f", {member.bars:.0%} of it bars" if member.bars >= 0.04 else ""
    return Copy(
        card=card,
        edit=edit,
        num_bytes=view.files[row].num_bytes,
        picture=f"{member.num_pixels / 1e6:.2f} megapixels{bars}",
        modified=view.files[row].modified_ns / 1e9,
    )
