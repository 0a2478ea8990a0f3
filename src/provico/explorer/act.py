"""Routes: do something with videos, and take it back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import APIRouter

from provico.explorer.collection import IndexView
from provico.explorer.problems import Problem
from provico.explorer.schemas import Undo
from provico.explorer.schemas_overview import ActionDone, ActionState, NewAction
from provico.explorer.state import BODY_PROBLEMS, DISK_FULL, NOT_FOUND, PROBLEMS, Explorer, State
from provico.workspace.actions import Action, ActionTarget, Done

router = APIRouter(prefix="/api/actions", tags=["actions"], responses=PROBLEMS)

_WORDS = {
    "tag": "tagged “{to}”",
    "untag": "no longer tagged “{to}”",
    "trash": "moved to the trash",
    "move": "moved to {to}",
    "link": "linked to the clean copy",
}


@router.get("", summary="Past and possible actions on videos")
def actions(explorer: State) -> ActionState:
    """Files can be moved only in a folder that was opened with `provico open`."""
    return ActionState(**_state(explorer))


@router.post(
    "",
    summary="Tag, move, put into the trash or link videos",
    responses=NOT_FOUND | BODY_PROBLEMS | DISK_FULL,
)
def act(explorer: State, body: NewAction) -> ActionDone:
    """In the log on the disk before anything is moved. Nothing is deleted or overwritten."""
    if body.do not in ("tag", "untag") and (why := explorer.actions.why_not) is not None:
        raise Problem(403, "not_movable", why)
    if body.do in ("tag", "untag"):
        with explorer.about(body.ids) as view:
            return _act(explorer, view, body)
    return _act(explorer, explorer.collection.view, body)  # which says of each file whether it was moved


def _act(explorer: Explorer, view: IndexView, body: NewAction) -> ActionDone:
    numbers = [view.number(name) for name in dict.fromkeys(body.ids)]
    paths = view.index.loaded.store.read(("path",), numbers)["path"]
    wanted = [
        ActionTarget(id=view.ids[number], path=Path(path), file=view.files[number])
        for number, path in zip(numbers, paths, strict=True)
    ]
    done = explorer.actions.do(body.do, wanted, to=body.to, seen=body.revision)
    return _done(explorer, done, is_undone=False)


@router.post("/undo", summary="Undo the last action", responses=BODY_PROBLEMS | DISK_FULL)
def undo(explorer: State, body: Undo) -> ActionDone:
    """Refused if there was any action after `revision`, since that action would be undone instead."""
    return _done(explorer, explorer.actions.undo(seen=body.revision), is_undone=True)


def _done(explorer: Explorer, done: Done, *, is_undone: bool) -> ActionDone:
    worker = explorer.settings.worker
    if worker is not None and done.action is not None and done.action.verb in ("trash", "move"):
        worker.tell("update")
    if done.action is None:
        text = "Nothing to undo"
    else:
        text = _in_words(done.action, len(done.ids))
        text = f"Undone: {text}" if is_undone else text
    return ActionDone(**_state(explorer), text=text, ids=list(done.ids), failed=dict(done.failed))


def _in_words(action: Action, num: int) -> str:
    return f"{num:,} video{'' if num == 1 else 's'} {_WORDS[action.verb].format(to=action.to)}"


def _state(explorer: Explorer) -> dict[str, Any]:
    known = explorer.actions.read()
    last = known.held[-1] if known.held else None
    return {
        "revision": known.revision,
        "last": None if last is None else _in_words(last, len(last.ids)),
        "num_in_trash": len(explorer.actions.gone()),
        "tags": sorted({tag for tags in known.tags.values() for tag in tags}),
        "why_not": explorer.actions.why_not,
    }
