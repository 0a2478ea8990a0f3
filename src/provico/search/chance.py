"""How surprising are the hits of a search? Asked of some videos of the index, the references.

A query and its hits are compared with at most `NUM_REFERENCES` videos, drawn by the seed, and the references
with each other. `provico.probability.chance` says what follows from that. Nothing else of the index is read,
so it works alike for videos in memory and on a server. `provico index` keeps the references with the index;
where they are missing or of another version, they are drawn and compared when the first query is asked.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from provico.defaults import LEAST_UNRELATED
from provico.errors import VideoIndexError
from provico.files import ARCHIVE_ERRORS, replacing
from provico.probability.calibration import log_odds
from provico.probability.chance import ChanceModel, own_levels
from provico.probability.gaussian import Gaussian
from provico.probability.match_scores import log_match_scores
from provico.probability.seeded_samples import Draw
from provico.search.exact.found import WHOLE, TopK
from provico.search.loaded import similarities
from provico.search.query import Asked, Described, IndexedVideos, gallery_samples, recording_of
from provico.search.store.folder import IndexSettings

NUM_REFERENCES = 500
"""Videos that queries and hits are compared with, at most."""
_SMALLEST = 1e-300  # for the logarithm of a distance of zero


@dataclass(frozen=True, eq=False)
class Chance:
    """The references of one version of an index, and what they teach."""

    references: Described
    version: int
    settings: IndexSettings
    models: dict[str, ChanceModel | None] = field(default_factory=dict)
    """The model of each metric that has been asked for; None where nothing can be said."""
    _levels: dict[tuple[str, str], float] = field(default_factory=dict)

    @classmethod
    def measured(cls, videos: IndexedVideos, version: int) -> Chance:
        """Draw the references, and compare them by match probability."""
        rows = videos.drawn(NUM_REFERENCES)
        parts = videos.drawn_segments(NUM_REFERENCES - len(rows))
        segments = [*[WHOLE] * len(rows), *(segment for _, _, segment in parts)]
        rows += [row for _, row, _ in parts]
        found = cls(videos.describe(rows, segments), version, videos.settings)
        found.model("match")
        return found

    def model(self, metric: str) -> ChanceModel | None:
        """What unrelated videos score by this metric; None if there are too few videos to say."""
        if metric not in self.models:
            some = self.references
            is_enough = len(some.ids) > LEAST_UNRELATED
            self.models[metric] = (
                ChanceModel.fit(self.compare(metric, some, some), some.is_other(some)) if is_enough else None
            )
        return self.models[metric]

    def false_match_rates(
        self, metric: str, asked: Sequence[Asked], ranked: Sequence[TopK], videos: IndexedVideos
    ) -> list[Float[Tensor, "found"] | None]:
        """For each query, how often an unrelated video matches as well as what was found; None if unknown."""
        if self.model(metric) is None:
            return [None] * len(asked)
        pairs = [[*zip(one.rows.tolist(), one.segments.tolist(), strict=True)] for one in ranked]
        all_pairs = sorted({pair for some in pairs for pair in some})
        position_of = {pair: position for position, pair in enumerate(all_pairs)}
        seen = videos.describe([row for row, _ in all_pairs], [part for _, part in all_pairs])
        return [
            self._rates(metric, one, found, seen[[position_of[pair] for pair in some]], videos)
            for one, found, some in zip(asked, ranked, pairs, strict=True)
        ]

    def _rates(
        self, metric: str, asked: Asked, found: TopK, hits: Described, videos: IndexedVideos
    ) -> Float[Tensor, "hits"] | None:
        """By the samples of the query that were compared with each hit."""
        model = self.model(metric)
        if model is None:
            return None
        is_part = found.segments != WHOLE
        draws: list[tuple[Asked, Draw]] = [(asked, "moments")]
        if metric == "match" and bool(is_part.any()):
            draws += [(scene, "clips") for scene in asked.scenes(self.settings)]
        theirs, scores = self._levels_of(metric, hits), evidence(metric, found.scores)
        own = torch.stack([self.levels(metric, self._described(asked, *one, videos)) for one in draws])
        if bool(own.isnan().any()) or bool(theirs.isnan().any()):
            return None
        rates = torch.stack(
            [model.false_match_rate(scores, level.expand_as(scores), theirs) for level in own]
        )
        # A mean over scenes is no higher than the best of them.
        return (
            torch.where(is_part, rates[1:].sum(dim=0).clamp(max=1), rates[0]) if len(draws) > 1 else rates[0]
        )

    def _described(self, asked: Asked, scene: Asked, draw: Draw, videos: IndexedVideos) -> Described:
        group = None if asked.row is None else videos.read(("group",), [asked.row])["group"][0]
        recording = recording_of(group or None, asked.name)
        samples = scene.samples(self.settings, draw)
        return Described((asked.name,), (recording,), asked.mixture.moment_matched, samples)

    def levels(self, metric: str, videos: Described) -> Float[Tensor, "videos"]:
        """From where the scores of each video are measured; nan where too few can be compared with it."""
        return own_levels(self.compare(metric, videos, self.references), videos.is_other(self.references))

    def _levels_of(self, metric: str, videos: Described) -> Float[Tensor, "videos"]:
        """The levels of indexed videos, each computed once."""
        new = [row for row, name in enumerate(videos.ids) if (metric, name) not in self._levels]
        if new:
            some = videos[new]
            found = self.levels(metric, some)
            self._levels.update(zip(((metric, name) for name in some.ids), found.tolist(), strict=True))
        return torch.tensor([self._levels[metric, name] for name in videos.ids], dtype=torch.float64)

    def compare(self, metric: str, ours: Described, theirs: Described) -> Float[Tensor, "ours theirs"]:
        """How alike videos are, as `evidence`."""
        if metric == "match":
            scores = log_match_scores(ours.samples, theirs.samples, curve=self.settings.curve)
        else:
            scores = similarities(metric, ours.distributions, theirs.distributions)
        return evidence(metric, scores)

    def write(self, path: Path) -> None:
        """Keep it in a file, which appears whole."""
        some = self.references
        about = {
            "version": self.version,
            "models": {
                name: None if model is None else model.to_dict() for name, model in self.models.items()
            },
        }
        with replacing(path) as partial, partial.open("wb") as file:
            np.savez(
                file,
                about=np.array(json.dumps(about)),
                ids=np.array(json.dumps(some.ids)),
                recordings=np.array(json.dumps(some.recordings)),
                mean=some.distributions.mean.numpy(),
                log_var=some.distributions.log_var.numpy(),
            )

    @classmethod
    def read(cls, path: Path, settings: IndexSettings) -> Chance | None:
        """What `write` kept; None if there is no file."""
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
                about, ids, recordings = (
                    json.loads(str(file[name])) for name in ("about", "ids", "recordings")
                )
                videos = Gaussian.from_numpy(file["mean"], file["log_var"])
            models = {
                name: None if values is None else ChanceModel.from_dict(values)
                for name, values in about["models"].items()
            }
            samples = gallery_samples(ids, videos, settings)
            references = Described(tuple(ids), tuple(recordings), videos, samples)
            return cls(references, int(about["version"]), settings, models)
        except FileNotFoundError:
            return None
        except (*ARCHIVE_ERRORS, AttributeError) as error:
            raise VideoIndexError(
                f"{path} was damaged ({error}). Remove it; `provico index` makes a new one."
            ) from error


def evidence(metric: str, scores: Float[Tensor, "*pairs"]) -> Float[Tensor, "*pairs"]:
    """Scores without an upper end, in float64 and in the same order, whose tail a model can describe.

    Log odds of the match probability, log((1 + c) / (1 - c)) of a cosine, minus the logarithm of a distance.
    """
    scores = scores.double()
    if metric == "match":
        return log_odds(scores)
    if metric == "cosine":
        return 2 * scores.clamp(-1 + 1e-12, 1 - 1e-12).atanh()
    return -(-scores).clamp(min=_SMALLEST).log()
