"""Routes: the collection at a glance, and the work that is being done for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from fastapi import APIRouter, BackgroundTasks
from numpy.typing import NDArray

from provico.curation.junk import JUNK, counted_kind
from provico.explorer import first_view
from provico.explorer.act import actions
from provico.explorer.collection import IndexView
from provico.explorer.curation import NOT_LOOKED_AT
from provico.explorer.problems import Problem, without_paths
from provico.explorer.schemas import Card
from provico.explorer.schemas_overview import (
    Cluster,
    ClusterWord,
    DuplicateSummary,
    JunkKind,
    Overview,
    StageState,
    Unreadable,
    Unusual,
    WorkOrder,
    WorkState,
)
from provico.explorer.state import BODY_PROBLEMS, PROBLEMS, Explorer, State
from provico.files import home_folder
from provico.wording import hard_to_make_out
from provico.workspace.status import STAGES
from provico.workspace.store import NOT_READ_NAME, read_not_read

router = APIRouter(prefix="/api", tags=["overview"], responses=PROBLEMS)

CARDS_OF_CLUSTER, CARDS_OF_JUNK, GROUPS_SHOWN, NUM_UNUSUAL = 4, 6, 3, 8
MOST_UNREADABLE = 200
FAR = 2.5
"""A video is unusual if its distance to the nearest others is so many robust deviations above the middle."""
UNSURE = 0.95
"""... or if the encoder is surer of so large a share of the others."""


@router.get("/work", summary="Progress of the work on the collection")
def work(explorer: State) -> WorkState:
    """The progress and the remaining time."""
    worker, status = explorer.settings.worker, explorer.work_status()
    is_empty = explorer.collection.is_empty
    key = "" if is_empty else "-".join(map(str, explorer.collection.view.key))
    changed = (explorer.curation.state, explorer.kept_state)
    workspace = explorer.settings.workspace
    folders = () if workspace is None else (workspace.path, workspace.root, home_folder(), Path.home())

    def told(text: str) -> str:
        return without_paths(text, *folders)

    return WorkState(
        can_work=worker is not None,
        is_working=status.is_working,
        is_watching=status.is_watching,
        is_empty=is_empty,
        version=f"{key} {abs(hash(changed)):x}",
        stages=[
            StageState(title=STAGES.get(stage.name, stage.name), **vars(stage) | {"note": told(stage.note)})
            for stage in status.stages
        ],
        problem=None if status.problem is None else told(status.problem),
        news=told(status.news),
        can_learn=worker is not None and not status.is_working and not is_empty,
    )


@router.post("/work", summary="Resume the work, or learn from the videos", responses=BODY_PROBLEMS)
def do_work(explorer: State, body: WorkOrder) -> WorkState:
    """Only for a collection that was opened with `provico open`."""
    worker = explorer.settings.worker
    if worker is None:
        raise Problem(
            403, "not_opened", "An index is served as it is.", "Open the videos: provico open VIDEOS."
        )
    worker.tell("learn" if body.do == "learn" else "update")
    return work(explorer)


@router.get("/overview", summary="The collection at a glance")
def overview(explorer: State, afterwards: BackgroundTasks) -> Overview:
    """What is in it, duplicates, junk with reasons, and what is unusual."""
    view = explorer.collection.view
    if explorer.settings.workspace is None:
        return _overview(explorer, view)
    state = first_view.state_of(explorer.settings)
    found = _overview(explorer, view)
    afterwards.add_task(_keep, explorer, view, state, found)
    return found


def _keep(explorer: Explorer, view: IndexView, state: str, found: Overview) -> None:
    """Keep it for the next start, with what the page asks for besides."""
    said = found.model_dump_json()
    if explorer.kept_first_view == (state, said):
        return
    at_first = [stage.model_copy(update={"state": "waiting", "note": ""}) for stage in work(explorer).stages]
    changed = {"is_working": True, "can_learn": False, "problem": None, "news": "", "version": "kept"}
    begun = work(explorer).model_copy(update=changed | {"stages": at_first})
    cards = [card for cluster in found.clusters for card in cluster.cards]
    cards += [card for group in found.duplicates.cards for card in group]
    cards += [card for kind in found.junk for card in kind.cards]
    cards += [one.card for one in found.unusual]
    numbers = {card.thumbnail: view.number(card.id) for card in cards}
    read = view.index.loaded.store.read(("thumbnail",), [*numbers.values()])["thumbnail"]
    pictures = dict(zip(numbers, read, strict=True))
    answers = (begun.model_dump_json(), said, actions(explorer).model_dump_json())
    first_view.keep(explorer.settings, state, dict(zip(first_view.PATHS, answers, strict=True)), pictures)
    explorer.kept_first_view = state, said


def _overview(explorer: Explorer, view: IndexView) -> Overview:
    workspace = explorer.settings.workspace
    name = explorer.settings.index.resolve().name
    present = explorer.present(view)
    proposals = explorer.curation.proposals(view)
    decided = explorer.curation.decisions()
    junk: dict[str, list[int]] = {}
    for number, one in enumerate(proposals):
        if one.kind in JUNK and present[number] and one.id not in decided:
            junk.setdefault(one.kind, []).append(number)
    duplicates = _duplicates(explorer, view, present)
    aside = {number for numbers in junk.values() for number in numbers}
    aside |= {number for number, one in enumerate(proposals) if one.kind == "duplicate"}
    unreadable = _unreadable(explorer)
    return Overview(
        name=name if workspace is None else Path(workspace.settings.source).name,
        num_videos=int(present.sum()),
        hours=float(view.numbers["duration_seconds"][present].sum()) / 3600,
        num_bytes=sum(file.num_bytes for file, is_there in zip(view.files, present, strict=True) if is_there),
        encoder=_encoder(explorer, view),
        is_looked_at=any(one.reason != NOT_LOOKED_AT for one in proposals),
        clusters=_clusters(explorer, view, present),
        words_note=explorer.grouping.of(view).note,
        duplicates=duplicates,
        junk=[
            JunkKind(
                kind=kind,
                title=counted_kind(kind, len(junk[kind])),
                why=why.partition(": ")[2] or why,
                ids=[view.ids[number] for number in junk[kind]],
                cards=explorer.cards(view, junk[kind][:CARDS_OF_JUNK]),
            )
            for kind, why in JUNK.items()
            if kind in junk
        ],
        unreadable=unreadable[:MOST_UNREADABLE],
        num_unreadable=len(unreadable),
        unusual=_unusual(explorer, view, present, aside),
    )


def _unreadable(explorer: Explorer) -> list[Unreadable]:
    """Files that are in no group, and why; also what has no copy here of what lies on an object store."""
    workspace = explorer.settings.workspace
    far = [] if workspace is None else read_not_read(workspace.path / NOT_READ_NAME)
    near = explorer.curation.unreadable()
    return [
        *(Unreadable(id=one.id, reason=one.reason.removeprefix("cannot be read: ")) for one in near),
        *(Unreadable(id=one.name, reason=one.reason) for one in far),
    ]


def _encoder(explorer: Explorer, view: IndexView) -> str:
    """What looks at the videos, in words."""
    workspace = explorer.settings.workspace
    backbone = Path(view.index.settings.embedding.encoder_config.backbone).name
    if workspace is None or workspace.settings.checkpoint is not None:
        return f"a trained encoder ({backbone})"
    if workspace.settings.is_learnt:
        return f"an encoder trained on these videos ({backbone})"
    return f"{backbone}, without training"


def _clusters(explorer: Explorer, view: IndexView, present: NDArray[np.bool_]) -> list[Cluster]:
    """Groups, with what is in their middle."""
    means, groups = view.index.loaded.videos.mean.numpy(), explorer.grouping.of(view)
    found = []
    for number, name in enumerate(groups.names):
        members = view.shown[groups.members == number]
        members = members[present[members]]
        if not len(members):
            continue
        nearest = np.square(means[members] - means[members].mean(axis=0)).sum(axis=1)
        cards = members[np.argsort(nearest, kind="stable")][:CARDS_OF_CLUSTER]
        found.append(
            Cluster(
                number=number,
                title=name.title,
                named_by=name.named_by,
                words=[ClusterWord(**vars(word)) for word in name.words],
                size=len(members),
                cards=explorer.cards(view, cards.tolist()),
            )
        )
    return sorted(found, key=lambda cluster: -cluster.size)


def _duplicates(explorer: Explorer, view: IndexView, present: NDArray[np.bool_]) -> DuplicateSummary:
    report = explorer.duplicates.report()
    row_of = view.index.loaded.row_of_id
    groups = [
        [row_of[name] for name in group if name in row_of and present[row_of[name]]]
        for group in explorer.duplicates.groups()
    ]
    groups = [group for group in groups if len(group) > 1]
    return DuplicateSummary(
        is_known=report is not None,
        num_groups=len(groups),
        num_copies=sum(len(group) - 1 for group in groups),
        num_bytes=sum(view.files[number].num_bytes for group in groups for number in group[1:]),
        num_parts=0 if report is None else len(report.parts),
        cards=[explorer.cards(view, group[:4]) for group in groups[:GROUPS_SHOWN]],
    )


def _unusual(
    explorer: Explorer, view: IndexView, present: NDArray[np.bool_], aside: set[int]
) -> list[Unusual]:
    """Videos far from all others, the farthest first, then those that the encoder is least sure of."""
    numbers = [number for number in np.flatnonzero(present).tolist() if number not in aside]
    distances = view.distances[numbers]
    if len(numbers) < 8:
        return []
    low, middle, high = np.quantile(distances, [0.25, 0.5, 0.75])
    scale = max(float(high - low) / 1.349, 1e-9)
    found: list[tuple[int, str]] = []
    for place in np.argsort(-distances, kind="stable").tolist():
        if (distances[place] - middle) / scale < FAR or len(found) == NUM_UNUSUAL:
            break
        found.append((numbers[place], "unlike every other video"))
    known = {number for number, _ in found}
    for number in sorted(numbers, key=lambda number: -view.percentiles[number]):
        if len(found) == NUM_UNUSUAL or view.percentiles[number] < UNSURE:
            break
        if number not in known:
            found.append((number, hard_to_make_out(view.percentiles[number])))
    cards: list[Card] = explorer.cards(view, [number for number, _ in found])
    return [Unusual(card=card, why=why) for card, (_, why) in zip(cards, found, strict=True)]
