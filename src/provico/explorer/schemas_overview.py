"""The JSON of the first view, of duplicates, of the queue, and of what is done with videos."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from provico.curation.group_names import NamedBy
from provico.duplicates.judgement import Kind
from provico.explorer.schemas import VIDEO_ID, Card, DecisionState, SeenRevision, Segment, _example


class StageState(BaseModel):
    """One of the things that are done for the collection."""

    name: str
    title: str
    state: Literal["waiting", "running", "done", "failed"]
    done: int
    total: int
    seconds_left: float | None
    note: str


class WorkState(BaseModel):
    """What is being done for the collection."""

    can_work: bool
    """Whether the collection was opened with `provico open`; an index is served as it is."""
    is_working: bool
    is_watching: bool
    is_empty: bool
    """Whether there is nothing to show yet."""
    version: str
    """Another one when there is something new to show."""
    stages: list[StageState]
    problem: str | None
    news: str
    can_learn: bool


class WorkOrder(BaseModel):
    """Something to do for the collection."""

    do: Literal["go on", "learn"]


class ClusterWord(BaseModel):
    """A word that fits a group."""

    text: str
    chance: float
    """Which share of phrases that have nothing to do with the collection fits as well."""


class Cluster(BaseModel):
    """Videos that look alike to the encoder."""

    number: int
    title: str
    named_by: NamedBy
    """Where the title is from: their classes, the words that were given, names of their files, or nowhere."""
    words: list[ClusterWord]
    size: int
    cards: list[Card]
    """The ones in its middle first."""


class JunkKind(BaseModel):
    """Videos that show nothing of use, of one kind."""

    kind: str
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
    """What the copies take."""
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
    """Why words that were given name no group."""
    duplicates: DuplicateSummary
    junk: list[JunkKind]
    unreadable: list[Unreadable]
    unusual: list[Unusual]


class Copy(BaseModel):
    """A member of a group of duplicates."""

    card: Card
    edit: str
    """What was done to it, as seen from the one that is kept."""
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
    """Two videos of which one is a part of the other, or that share a part."""

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
    """Whether anybody has looked."""
    total: int
    groups: list[DuplicateGroup]
    parts: list[PartPair]
    num_rejected: int


class Rejection(BaseModel):
    """Pairs that are not the same, or are after all."""

    model_config = _example(pairs=[[VIDEO_ID, "Cooking/copy.mp4"]], rejected=True)

    pairs: list[tuple[str, str]] = Field(min_length=1, max_length=2000)
    rejected: bool = True


class Rejected(BaseModel):
    """How many pairs are rejected now."""

    num_rejected: int


class NewAction(BaseModel):
    """Something to do with videos."""

    model_config = _example(do="tag", ids=[VIDEO_ID], to="holiday", revision=0)

    do: Literal["tag", "untag", "trash", "move", "link"]
    ids: list[str] = Field(min_length=1, max_length=100_000)
    to: str = Field("", max_length=1000)
    """The tag, or the folder inside the one that was opened."""
    revision: SeenRevision = None
    """What the one who asks has seen; moving is refused if anything was done since."""


class ActionState(BaseModel):
    """What was done, and what can be."""

    revision: int
    last: str | None
    """What undo would take back, in words."""
    num_in_trash: int
    tags: list[str]
    why_not: str | None
    """Why files cannot be moved; None if they can."""


class ActionDone(ActionState):
    """What came of an action or an undo."""

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
