"""The JSON of the API. Field names carry units; docs/search.md says what the numbers mean."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from provico.curation.decisions import Choice, Decision
from provico.search.answer import Answer
from provico.search.exact.found import Certificate
from provico.search.hits import Hit
from provico.search.judgements import Verdict

VIDEO_ID = "Cooking/v_Cooking_g01_c02.mp4"
_CARD = {
    "id": VIDEO_ID,
    "label": "Cooking",
    "group": "g01",
    "subset": "train",
    "duration_seconds": 4.0,
    "uncertainty": 0.058,
    "uncertainty_percentile": 0.31,
    "tags": [],
    "disagreement": 0.017,
    "bucket": None,
    "thumbnail": "/media/thumbnail?id=Cooking%2Fv_Cooking_g01_c02.mp4&v=18a5",
    "preview": "/media/preview?id=Cooking%2Fv_Cooking_g01_c02.mp4&v=18a5",
}


def _example(**values: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [values]}, extra="forbid")


class Error(BaseModel):
    """Why there is no answer."""

    code: str
    message: str
    hint: str | None = None


class ErrorBody(BaseModel):
    """The body of every answer that is not a success."""

    model_config = _example(
        error={"code": "no_video", "message": "There is no video a.mp4.", "hint": "Did you mean b.mp4?"}
    )

    error: Error


class Card(BaseModel):
    """A video in a list."""

    model_config = _example(**_CARD)

    id: str
    label: str | None
    group: str | None
    subset: str | None
    duration_seconds: float
    uncertainty: float
    """How unsure the encoder is."""
    uncertainty_percentile: float
    """The share of the collection with lower uncertainty."""
    disagreement: float
    bucket: str | None
    """The decision or the proposal for it: keep, trim, drop, review."""
    tags: list[str] = []
    thumbnail: str
    preview: str


class Histogram(BaseModel):
    """Counts between edges; there is one more edge than counts."""

    edges: list[float]
    counts: list[int]


class Distribution(BaseModel):
    """How a number is distributed over the collection; None where there are no videos."""

    min: float | None
    median: float | None
    max: float | None
    histogram: Histogram


class Count(BaseModel):
    """The number of videos with a word."""

    label: str
    count: int


class EncoderFacts(BaseModel):
    """The encoder that made the index."""

    hash: str
    backbone: str
    dim: int
    num_clips: int
    num_frames: int
    frame_step: int


class Stats(BaseModel):
    """The collection in a few numbers."""

    num_videos: int
    version: int
    """Grows with every change of the index."""
    labels: list[Count]
    subsets: list[Count]
    uncertainty: Distribution
    duration_seconds: Distribution
    encoder: EncoderFacts
    calibration: dict[str, Any] | None
    """Where calibrated probabilities come from; None if there are none."""
    buckets: dict[str, int]
    knows_words: bool = False
    """Whether it can be searched by words."""
    trouble: str | None = None
    """Why the page does not show the current index; None if it does."""


class VideoPage(BaseModel):
    """A part of the list of videos."""

    model_config = _example(total=192, offset=0, items=[_CARD])

    total: int
    offset: int
    items: list[Card]


class ClipPoint(BaseModel):
    """A clip of a video: its time, its uncertainty, and its place on the map."""

    start_seconds: float
    end_seconds: float
    uncertainty: float
    x: float
    y: float
    radius: float


Segment = Annotated[tuple[float, float], Field(description="Start and end in seconds.")]


class DecisionState(BaseModel):
    """What was decided about a video."""

    decision: Choice
    segments: list[Segment]
    revision: int

    @classmethod
    def of(cls, decision: Decision) -> DecisionState:
        """As JSON."""
        return cls(decision=decision.choice, segments=list(decision.segments), revision=decision.revision)


class VideoDetails(Card):
    """All data about a video."""

    path_name: str
    """The name of its file, without the folder."""
    num_bytes: int
    clips: list[ClipPoint]
    source: str | None
    """The file itself, if a browser can play it and it has not changed since it was indexed."""
    decision: DecisionState | None


def _fields(of: type, *, without: Collection[str] = (), properties: Sequence[str] = ()) -> dict[str, Any]:
    """The fields and some properties of a dataclass, as the fields of a model."""
    types = {name: type_ for name, type_ in get_type_hints(of).items() if name not in without}
    types |= {name: get_type_hints(getattr(of, name).fget)["return"] for name in properties}
    return {name: (type_, ...) for name, type_ in types.items()}


HitSummary: Any = create_model(
    "HitSummary",
    __doc__="Why a video was found, as `provico search --json` says it; what the video is, its card says.",
    **_fields(Hit, without={"path", *Card.model_fields} - {"id"}, properties=["probability"]),
)
CertificateSummary: Any = create_model(
    "CertificateSummary",
    __doc__=Certificate.__doc__,
    **(_fields(Certificate) | {"ceiling": (float | None, ...)}),
)
AnswerSummary: Any = create_model(
    "AnswerSummary",
    __doc__="What was found for a query, as `provico search --json` says it, without paths.",
    **_fields(
        Answer,
        without=("hits", "certificate", "calibration", "chance"),
        properties=("best_probability", "is_confident"),
    ),
    hits=(list[HitSummary], ...),
    certificate=(CertificateSummary, ...),
    calibration=(dict[str, Any] | None, ...),
    chance=(dict[str, Any] | None, ...),
)
SearchResult: Any = create_model(
    "SearchResult",
    __doc__="An answer, the cards of what it names, which hits are duplicates, how unsure the query is.",
    answer=(AnswerSummary, ...),
    cards=(dict[str, Card], ...),
    duplicates=(list[list[str]], ...),
    query_percentile=(float, ...),
)


class MapPoints(BaseModel):
    """The collection on two or three axes: a list for each property, one place for each video."""

    dim: Literal[2, 3]
    num_videos: int
    is_sampled: bool
    """Whether there are more videos than are shown."""
    ids: list[str]
    x: list[float]
    y: list[float]
    z: list[float] | None
    radius: list[float]
    """Standard deviation of a video's distribution along the axes."""
    uncertainty: list[float]
    """As percentiles of the collection, from 0 to 1."""
    labels: list[str | None]
    clusters: list[int]
    """The number of its group, or -1 for junk."""
    cluster_titles: list[str]
    explained: list[float]
    """The share of the variance of all means that each axis shows."""


class RunState(BaseModel):
    """A pretraining run."""

    name: str
    method: str | None
    epochs_done: float
    epochs: int | None
    steps_done: int
    max_steps: int | None
    """A run ends after this number of steps, or after its epochs, whichever comes first."""
    share_done: float
    """Of the whole run, from 0 to 1."""
    is_finished: bool
    updated: float
    """When its log was last written to, in seconds since 1970."""


class RunMetrics(BaseModel):
    """Records of a run's log."""

    lines: list[dict[str, Any]]
    next: int
    """The value of `after` for the next request."""
    is_restarted: bool
    """Whether the log is shorter than `after`, so that these are its records from the start."""


class Report(BaseModel):
    """A page written by a command."""

    name: str
    kind: Literal["run", "evaluation", "reproduce", "other"]
    url: str


def _number(value: object) -> object:
    """JSON has one kind of numbers, of which 3.0 is an integer; what pydantic would take for one is not."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ValueError("a number is needed")
    return value


Seconds = Annotated[float, BeforeValidator(_number)]
SeenRevision = Annotated[Annotated[int, Field(ge=0)] | None, BeforeValidator(_number)]


class NewDecision(BaseModel):
    """A decision about one video."""

    model_config = _example(id=VIDEO_ID, decision="trim", segments=[[1.0, 3.5]], revision=0)

    id: str
    decision: Choice
    segments: list[tuple[Seconds, Seconds]] = []
    """With `trim`, the parts that are kept."""
    revision: SeenRevision = None
    """The revision that the client has seen; refused if there was a newer decision on the same video."""


class Undo(BaseModel):
    """Undo the last decision."""

    model_config = _example(revision=3)

    revision: SeenRevision = None


class Decided(BaseModel):
    """The state after a decision or an undo."""

    revision: int
    id: str | None
    """The video that it was about; None if there was nothing to undo."""
    decision: DecisionState | None
    counts: dict[str, int]


class HitJudgement(BaseModel):
    """The judgement of a hit."""

    hit: str
    verdict: Verdict


class JudgedHits(BaseModel):
    """The judged hits of a query."""

    model_config = _example(
        revision=3, num_judged=2, hits=[{"hit": VIDEO_ID, "verdict": "right"}], damaged=[]
    )

    revision: int
    """Grows with every judgement and every undo; to be sent back with the next judgement."""
    num_judged: int
    """Of all queries."""
    hits: list[HitJudgement]
    damaged: list[str]


class NewJudgement(BaseModel):
    """Whether a hit is right."""

    model_config = _example(query=VIDEO_ID, hit="Cooking/v_Cooking_g02_c01.mp4", verdict="right", revision=2)

    query: str
    hit: str
    verdict: Verdict
    revision: SeenRevision = None
    """The revision that the client has seen; refused if the same hit was judged since."""


class Judged(BaseModel):
    """The state after a judgement or an undo."""

    revision: int
    num_judged: int
    query: str | None
    hit: str | None
    """The pair that it was about; None if there was nothing to undo."""
    verdict: Verdict | None
    """Its current judgement."""


class ToJudge(BaseModel):
    """A query and its best hit of another recording."""

    query: str
    hit: str
    is_drawn: bool
    """Whether it was drawn at random, so that its judgement counts for `max_error`."""


class JudgeFirst(BaseModel):
    """What to judge first, and the cards of the videos concerned."""

    items: list[ToJudge]
    cards: dict[str, Card]
