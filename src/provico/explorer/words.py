"""Route: search by words, where the encoder is on a network that knows some."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from provico.explorer.collection import IndexView
from provico.explorer.problems import Problem
from provico.explorer.schemas import Card
from provico.explorer.state import NOT_FOUND, PROBLEMS, Explorer, State, VideoId
from provico.search.index import Index
from provico.search.query import Span
from provico.search.words import WordHit

router = APIRouter(prefix="/api", tags=["search"], responses=PROBLEMS | NOT_FOUND)

MOST_LETTERS = 300


class FoundByWords(BaseModel):
    """A video that words found."""

    id: str
    moment: Span
    """The part of the video that matches best: all of a short one."""
    is_whole: bool
    score: float
    """The mean similarity of its clips with the words."""
    spread: float
    """How far its clips differ in that."""
    false_match_rate: float | None
    expected_by_chance: float | None
    """How many videos are expected to be as near to words that have nothing to do with them."""


class WordResult(BaseModel):
    """What words found, and the cards of it."""

    query: str
    num_videos: int
    """How many there are."""
    hits: list[FoundByWords]
    """The best first."""
    cards: dict[str, Card]


def knows_words(view: IndexView) -> bool:
    """Whether a collection can be searched by words."""
    return isinstance(view.index, Index) and view.index.settings.words_dim is not None


@router.get("/search/words", summary="Find videos by words")
async def search_words(
    explorer: State,
    text: Annotated[str, Query(max_length=MOST_LETTERS, pattern=r"\S", examples=["a person diving"])],
    like: VideoId = "",
    unlike: VideoId = "",
    k: Annotated[int, Query(ge=1, le=200)] = 12,
) -> WordResult:
    """`like` and `unlike` are ids of videos; `unlike` may be other words instead. Chance is not limited."""
    view = await explorer.newest_view()
    index = view.index
    if not isinstance(index, Index):
        raise Problem(
            409, "several", "Search by words needs a single index, but this page shows several as one."
        )
    if not knows_words(view):
        backbone = Path(index.settings.embedding.encoder_config.backbone).name
        raise Problem(
            409,
            "no_words",
            f"This collection cannot be searched by words: {backbone}, which looked at it, was not trained "
            "with words.",
            "Open the videos with a network that was: provico open VIDEOS --backbone "
            "hf:openai/clip-vit-base-patch32.",
        )
    likes, unlikes = ([name] if name else [] for name in (like, unlike))
    for name in likes:
        view.number(name)
    return await explorer.searches.run(_find, explorer, view, index, text.strip(), likes, unlikes, k)


def _find(
    explorer: Explorer,
    view: IndexView,
    index: Index,
    text: str,
    like: list[str],
    unlike: list[str],
    k: int,
) -> WordResult:
    answer = index.search_words(text, like=like, unlike=unlike, k=k, max_chance=None)
    row_of, present = view.index.loaded.row_of_id, explorer.present(view)
    hits = [hit for hit in answer.hits if present[row_of[hit.id]]]
    cards = explorer.cards(view, [row_of[name] for name in dict.fromkeys([*(hit.id for hit in hits), *like])])
    return WordResult(
        query=answer.query,
        num_videos=len(view),
        hits=[_told(hit, view) for hit in hits],
        cards={card.id: card for card in cards},
    )


def _told(hit: WordHit, view: IndexView) -> FoundByWords:
    whole = float(view.numbers["duration_seconds"][view.index.loaded.row_of_id[hit.id]])
    return FoundByWords(
        id=hit.id,
        moment=hit.moment,
        is_whole=hit.moment == Span(0.0, whole),
        score=hit.score,
        spread=hit.spread,
        false_match_rate=hit.false_match_rate,
        expected_by_chance=hit.expected_by_chance,
    )
