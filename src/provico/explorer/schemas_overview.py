"""The JSON of the first view, of duplicates, of the queue, and of what is done with videos."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from provico.curation.group_names import NamedBy
from provico.duplicates.judgement import Kind
from provico.explorer.schemas import VIDEO_ID, Card, DecisionState, SeenRevision, Segment, _example


class StageState(BaseModel):
    """One stage of the work on the collection."""

    name: str
    title: str
    state: Literal["waiting", "running", "done", "failed"]
    done: int
    total: int
    seconds_left: float | None
    note: str


class WorkState(BaseModel):
    """The work on the collection."""

    can_work: bool
    """Whether the collection was opened with `provico open`; an index is served as it is."""
    is_working: bool
    is_watching: bool
    is_empty: bool
    """Whether there is nothing to show yet."""
    version: str
    """Changes when there is something new to show."""
    stages: list[StageState]
    problem: str | None
    news: str
    can_learn: bool


class WorkOrder(BaseModel):
    """A request to work on the collection."""

    do: Literal["go on", "learn"]


class ClusterWord(BaseModel):
    """A word that fits a group."""

    text: str
    chance: float
    """The share of unrelated phrases that fit as well."""


class Cluster(BaseModel):
    """Videos that are similar to the encoder."""

    number: int
    title: str
    named_by: NamedBy
    """Where the title comes from: their classes, the given words, the names of their files, or nowhere."""
    words: list[ClusterWord]
    size: int
    cards: list[Card]
    """The most central ones first."""


class JunkKind(BaseModel):
    """Videos of one kind that show nothing useful."""

    kind: str
    title: str
    why: str
    ids: list[str]
    cards: list[Card]
    """The first few."""


class Unreadable(BaseModel):
    """A file that cannot be read."""

    id: str
    reason: str


class Unusual(BaseModel):
    """A video that is unlike the others."""

    card: Card
    why: str


class DuplicateSummary(BaseModel):
    """How many duplicates there are."""

    is_known: bool
    num_groups: int
    num_copies: int
    num_bytes: int
    """The size of the copies on disk."""
    num_parts: int
    cards: list[list[Card]]
    """The first groups, the one to keep first."""


class Overview(BaseModel):
    """What a reader wants to know first."""

    name: str
    num_videos: int
    hours: float
    num_bytes: int
    encoder: str
    is_looked_at: bool
    """Whether junk was looked for."""
    clusters: list[Cluster]
    words_note: str
    """Why the given words do not name any group."""
    duplicates: DuplicateSummary
    junk: list[JunkKind]
    unreadable: list[Unreadable]
    """The first of the files that could not be read."""
    num_unreadable: int
    unusual: list[Unusual]


class Copy(BaseModel):
    """A member of a group of duplicates."""

    card: Card
    edit: str
    """How it was edited, relative to the one that is kept."""
    num_bytes: int
    picture: str
    """How large its picture is, in words."""
    modified: float
    """When its file was written, in seconds since 1970."""


class DuplicateGroup(BaseModel):
    """Videos that show the same, the one to keep first."""

    keep: Copy
    reason: str
    copies: list[Copy]
    probability: float


class PartPair(BaseModel):
    """Two videos that share a part, or one of which is a part of the other."""

    first: Card
    second: Card
    kind: Kind
    first_span: tuple[float, float]
    second_span: tuple[float, float]
    speed: float
    is_mirrored: bool
    probability: float


class DuplicatesPage(BaseModel):
    """The duplicates, in groups."""

    is_known: bool
    """Whether the search for duplicates was run."""
    total: int
    groups: list[DuplicateGroup]
    parts: list[PartPair]
    num_rejected: int


class Rejection(BaseModel):
    """Pairs to mark as not the same, or to unmark."""

    model_config = _example(pairs=[[VIDEO_ID, "Cooking/copy.mp4"]], rejected=True)

    pairs: list[tuple[str, str]] = Field(min_length=1, max_length=2000)
    rejected: bool = True


class Rejected(BaseModel):
    """How many pairs are rejected now."""

    num_rejected: int


class NewAction(BaseModel):
    """An action on videos."""

    model_config = _example(do="tag", ids=[VIDEO_ID], to="holiday", revision=0)

    do: Literal["tag", "untag", "trash", "move", "link"]
    ids: list[str] = Field(min_length=1, max_length=100_000)
    to: str = Field("", max_length=1000)
    """The tag, or the folder inside the one that was opened."""
    revision: SeenRevision = None
    """The revision that the client has seen; moving is refused if there was an action since."""


class ActionState(BaseModel):
    """Past and possible actions."""

    revision: int
    last: str | None
    """What undo would revert, in words."""
    num_in_trash: int
    tags: list[str]
    why_not: str | None
    """Why files cannot be moved; None if they can."""


class ActionDone(ActionState):
    """The result of an action or an undo."""

    text: str
    ids: list[str]
    failed: dict[str, str]


class CurationItem(Card):
    """A video to decide on."""

    reason: str | None
    """In words."""
    detail: str
    """The numbers behind the reason."""
    proposal_segments: list[Segment]
    decision: DecisionState | None


class CurationPage(BaseModel):
    """A part of the queue."""

    revision: int
    """Grows with every decision and every undo; to be sent back with the next decision."""
    counts: dict[str, int]
    total: int
    offset: int
    items: list[CurationItem]
    damaged: list[str] = []
    """What is wrong with damaged lines of the decisions, which do not count."""
