"""Search by words: a text is a point, a video a distribution.

The network's own image tower gives each clip a direction v in the space of words, and its text tower gives
the text t one. A video is the mixture of its clips there, so what it scores is the expected similarity of a
clip that is drawn from it, and how far its clips differ in that is its spread:

    score  =  E_clip [ cos(t, v) ]          spread  =  std_clip [ cos(t, v) ]

Videos and the segments of long ones (segments.py) are all compared, in float64. A query may have several
parts, texts and videos, each with a weight; the score is the sum of what they score by themselves, in units
of how that varies over the collection.

Similarities with texts lie in a narrow band whose place says nothing, so a hit is what chance does not
explain: the model of `probability/chance.py`, between `PHRASES` and videos of the index. A video that is near
to many phrases must be nearer than usual to stand out. What a text scores with most of a collection cannot
stand out from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from provico.defaults import LEAST_UNRELATED, MAX_CHANCE
from provico.errors import ConfigError
from provico.models.backbones.text_tower import TextTower
from provico.probability.chance import LEVEL_QUANTILE, ChanceModel, usual_level
from provico.search.exact.found import WHOLE, Certificate, TopK
from provico.search.loaded import LoadedVideos
from provico.search.query import EncoderSource, Filter, Span
from provico.search.segments import NUM_CLIPS, merged

NUM_REFERENCES = 500
_WHO = (
    "a person",
    "a child",
    "a dog",
    "a cat",
    "a bird",
    "a horse",
    "a car",
    "a crowd",
    "a machine",
    "water",
)
_WHAT = (
    "moving",
    "standing still",
    "seen from above",
    "at night",
    "indoors",
    "in the snow",
    "close up",
    "far away",
)
_ELSE = (
    *(
        "a kitchen",
        "a street",
        "a forest",
        "a beach",
        "an office",
        "a mountain",
        "a city",
        "a field",
        "a room",
    ),
    *(
        "food on a plate",
        "a piece of text",
        "a map",
        "a drawing",
        "an animation",
        "a black picture",
        "a sunset",
    ),
    *("running", "cooking", "dancing", "swimming", "reading", "sleeping", "fighting", "driving", "singing"),
)
PHRASES = tuple(f"{who} {what}" for who in _WHO for what in _WHAT) + _ELSE
"""What texts are compared with: short, unlike each other, and not made for any collection."""


@dataclass(frozen=True, kw_only=True)
class WordHit:
    """A video that words found."""

    id: str
    path: str
    label: str | None
    moment: Span
    """The part of the video that matches best: all of a short one."""
    score: float
    """The expected similarity; of several parts the sum, in units of their spread over the collection."""
    spread: float
    """How far the clips of the moment differ in that."""
    false_match_rate: float | None
    """How often an unrelated video is as near; None if that cannot be said."""
    expected_by_chance: float | None


@dataclass(frozen=True, kw_only=True)
class WordAnswer:
    """What words found."""

    query: str
    hits: tuple[WordHit, ...]
    """The best first."""
    max_chance: float | None
    best_expected_by_chance: float | None
    """Of the best, even if it is no hit; None if that cannot be said."""
    certificate: Certificate

    @property
    def is_confident(self) -> bool:
        """False is an answer, too: nothing matches beyond chance."""
        return bool(self.hits)

    def summary(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        found = dataclasses.asdict(self) | {"is_confident": self.is_confident}
        return found | {"certificate": found["certificate"] | {"ceiling": None}}


@dataclass(frozen=True)
class WordQuery:
    """A text or an indexed video, and how much it counts: below zero, what is not to be found."""

    subject: str
    weight: float = 1.0
    is_video: bool = False


@dataclass(frozen=True, eq=False)
class _Asked:
    """The parts of a query in the space of words."""

    directions: Float[Tensor, "parts dim"]
    weights: Float[Tensor, "parts"]
    centre: Float[Tensor, "parts"]
    """What videos of the collection score with each part ..."""
    scale: Float[Tensor, "parts"]
    """... and how that varies."""
    texts: list[int]
    """Which parts are texts."""

    def scores(self, units: Float[Tensor, "units dim"]) -> Float[Tensor, "units"]:
        """What videos score with all parts together."""
        return self._parts(units).sum(dim=1)

    def with_others(
        self, units: Float[Tensor, "units dim"], phrases: Float[Tensor, "phrases dim"]
    ) -> Float[Tensor, "phrases units"]:
        """What they score with each phrase in place of the first text."""
        place = self.texts[0]
        others = (phrases @ units.double().T - self.centre[place]) / self.scale[place] * self.weights[place]
        return others + self.scores(units) - self._parts(units)[:, place]

    def _parts(self, units: Tensor) -> Tensor:
        return (units.double() @ self.directions.T - self.centre) / self.scale * self.weights


class WordIndex:
    """The videos of one version of an index, in the space of words."""

    def __init__(self, videos: LoadedVideos, path: Path, open_encoder: EncoderSource) -> None:
        backbone = videos.settings.embedding.encoder_config.backbone
        if videos.settings.words_dim is None:
            raise ConfigError(
                f"{path} cannot be searched by words: {backbone} has no text tower. Make an index with a "
                "network that has one, such as --backbone hf:openai/clip-vit-base-patch32."
            )
        self._videos, self._backbone, self._open_encoder = videos, backbone, open_encoder
        self._whole, self._segments = self._means(videos.settings.words_dim)

    def _means(self, dim: int) -> tuple[Tensor, Tensor]:
        """The mean direction of the clips of each video and segment: what expectations need."""
        whole, parts = [torch.empty(0, dim)], [torch.empty(0, dim)]
        for rows in self._videos.chunks(("clip_words", "timeline_seconds")):
            for clips, seconds in zip(rows["clip_words"], rows["timeline_seconds"], strict=True):
                words = torch.from_numpy(clips.astype(np.float32))
                whole.append(words.mean(dim=0, keepdim=True))
                if len(seconds):
                    parts.append(words.unfold(0, min(NUM_CLIPS, len(words)), 1).mean(dim=2))
        return torch.cat(whole), torch.cat(parts)

    @cached_property
    def _tower(self) -> TextTower:
        self._open_encoder()  # refuses a network that is not the one that saw the videos: words come from it
        return TextTower(self._backbone)

    def search(
        self,
        parts: Sequence[WordQuery],
        *,
        k: int = 10,
        max_chance: float | None = MAX_CHANCE,
        filter: Filter | None = None,
    ) -> WordAnswer:
        """The k best videos for some texts and videos together."""
        if k < 1:
            raise ConfigError(f"k is {k}, but it must be at least 1.")
        asked = self._asked(parts)
        allowed = self._videos.allowed(filter or Filter())
        allowed[[self._videos.find_id(part.subject) for part in parts if part.is_video]] = False
        found = self._ranked(asked.scores(self._whole), asked.scores(self._segments), allowed, k)
        return self._answer(parts, found, self._rates(asked, found), asked.directions[0], max_chance)

    def fits(
        self, texts: Sequence[str]
    ) -> tuple[Float[Tensor, "texts videos"], Float[Tensor, "phrases videos"]]:
        """What each video scores with some texts, and with `PHRASES`."""
        whole = self._whole.double().T
        return self._tower(list(texts)).double() @ whole, self._phrases @ whole

    def _asked(self, parts: Sequence[WordQuery]) -> _Asked:
        texts = [place for place, part in enumerate(parts) if not part.is_video]
        of_text = iter(self._tower([parts[place].subject for place in texts]) if texts else ())
        directions = torch.stack(
            [
                F.normalize(self._whole[self._videos.find_id(part.subject)], dim=0)
                if part.is_video
                else next(of_text)
                for part in parts
            ]
        ).double()
        if len(parts) == 1:
            return _Asked(directions, torch.ones(1).double(), torch.zeros(1), torch.ones(1), texts)
        usual = self._whole.double() @ directions.T
        scale = usual.std(dim=0, correction=0).clamp(min=1e-9)
        weights = torch.tensor([part.weight for part in parts], dtype=torch.float64)
        return _Asked(directions, weights, usual.mean(dim=0), scale, texts)

    def _ranked(self, whole: Tensor, segments: Tensor, allowed: Tensor, k: int) -> TopK:
        rows = allowed.nonzero().flatten()
        known = self._videos.segments
        inside = allowed[known.video].nonzero().flatten()
        found = [
            TopK(some[order], scores[some][order], Certificate.of_scan(len(some)))
            for scores, some in ((whole, rows), (segments, inside))
            for order in [scores[some].sort(descending=True, stable=True).indices]
        ]
        return merged(found[0].best(k), known.by_video(found[1]).best(k), self._videos, k)

    # --- chance ---------------------------------------------------------------------------------------------

    @cached_property
    def _references(self) -> Float[Tensor, "references dim"]:
        return self._whole[self._videos.drawn(NUM_REFERENCES)].double()

    @cached_property
    def _phrases(self) -> Float[Tensor, "phrases dim"]:
        return self._tower(PHRASES).double()

    def _rates(self, asked: _Asked, found: TopK) -> Float[Tensor, "found"] | None:
        """How often videos score as high with another text; None if there is none, or too few videos."""
        if len(self._references) < LEAST_UNRELATED or not len(found.rows) or not asked.texts:
            return None
        usual = asked.with_others(self._references, self._phrases)
        model = ChanceModel.between(usual)
        if model is None:
            return None
        pairs = zip(found.rows.tolist(), found.segments.tolist(), strict=True)
        hits = torch.stack([self._mean_of(*pair) for pair in pairs])
        theirs = asked.with_others(hits, self._phrases).quantile(LEVEL_QUANTILE, dim=0)
        own = usual_level(asked.scores(self._references), usual)
        return model.false_match_rate(found.scores, own.expand(len(theirs)), theirs)

    def _mean_of(self, row: int, segment: int) -> Tensor:
        return self._whole[row] if segment == WHOLE else self._segments[segment]

    # --- the answer -----------------------------------------------------------------------------------------

    def _answer(
        self,
        parts: Sequence[WordQuery],
        found: TopK,
        rates: Float[Tensor, "found"] | None,
        direction: Float[Tensor, "dim"],
        max_chance: float | None,
    ) -> WordAnswer:
        expected = None if rates is None else rates * found.certificate.num_allowed
        kept = [
            place
            for place in range(len(found.rows))
            if expected is None or max_chance is None or float(expected[place]) <= max_chance
        ]
        rows = found.rows[kept].tolist()
        known = self._videos.read(("id", "path", "label", "duration_seconds"), rows)
        hits = []
        for index, (place, row) in enumerate(zip(kept, rows, strict=True)):
            segment = int(found.segments[place])
            whole = Span(0.0, float(known["duration_seconds"][index]))
            moment = whole if segment == WHOLE else self._videos.seconds_of(segment)
            hits.append(
                WordHit(
                    id=known["id"][index],
                    path=known["path"][index],
                    label=known["label"][index],
                    moment=moment,
                    score=float(found.scores[place]),
                    spread=self._spread(row, None if segment == WHOLE else moment, direction),
                    false_match_rate=None if rates is None else float(rates[place]),
                    expected_by_chance=None if expected is None else float(expected[place]),
                )
            )
        return WordAnswer(
            query=" ".join(("" if part.weight > 0 else "not ") + part.subject for part in parts),
            hits=tuple(hits),
            max_chance=None if max_chance == inf else max_chance,
            best_expected_by_chance=None if expected is None or not len(expected) else float(expected.min()),
            certificate=found.certificate,
        )

    def _spread(self, row: int, moment: Span | None, direction: Float[Tensor, "dim"]) -> float:
        known = self._videos.read(("clip_words", "timeline_seconds"), [row])
        words = torch.from_numpy(known["clip_words"][0].astype(np.float64))
        if moment is not None:
            times = known["timeline_seconds"][0]
            inside = (times[:, 0] >= moment.start_seconds) & (times[:, 1] <= moment.end_seconds)
            words = words[torch.from_numpy(inside)]
        return float((words @ direction).std(correction=0))
