"""What is said of the videos that were found: how probable they are, how unsure, and which clips agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from provico.errors import ConfigError
from provico.probability.calibration import Calibration
from provico.probability.distances import Moments, Sampled, squared_euclidean_expected
from provico.probability.gaussian import Gaussian
from provico.search.exact.scoring import exact_log_probabilities
from provico.search.hits import Answer, Hit, Span
from provico.search.query import Asked
from provico.search.ranking import Ranked
from provico.search.snapshot import KnownVideos

_COLUMNS = (
    *("id", "path", "label", "group", "subset", "preview"),
    *("duration_seconds", "uncertainty", "ambiguity", "disagreement"),
    *("mean", "start_seconds", "end_seconds", "clip_mean", "clip_log_var"),
)


def check_probability(least: float | None) -> None:
    """Before anything is computed: what is asked for must be a probability."""
    if least is not None and not 0 <= least <= 1:
        raise ConfigError(f"The least probability is {least:g}, but it must be between 0 and 1.")


def answer_all(
    asked: Sequence[Asked],
    ranked: Sequence[Ranked],
    snapshot: KnownVideos,
    *,
    metric: str,
    min_probability: float | None,
    calibration: Calibration | None,
    previews: Path,
) -> list[Answer]:
    """The answer to each query; what was found but is not probable enough counts only as the best.

    calibration: if there is one, `min_probability` is about calibrated probabilities.
    """
    log_probabilities = [
        found.scores if metric == "match" else _log_probabilities(one, found, snapshot)
        for one, found in zip(asked, ranked, strict=True)
    ]
    are_hits = [_is_probable(scores, min_probability, calibration) for scores in log_probabilities]
    hits = [found.numbers[is_hit] for found, is_hit in zip(ranked, are_hits, strict=True)]
    rows = _Rows(hits, snapshot, previews, calibration)
    answers = []
    for one, found, scores, is_hit, numbers in zip(
        asked, ranked, log_probabilities, are_hits, hits, strict=True
    ):
        mixture, best = one.mixture, float(scores.max()) if len(scores) else None
        answers.append(
            Answer(
                query=one.name,
                span=one.span,
                uncertainty=float(mixture.uncertainty),
                ambiguity=float(mixture.ambiguity),
                disagreement=float(mixture.disagreement),
                metric=metric,
                hits=rows.hits(one, numbers, found.scores[is_hit].tolist(), scores[is_hit].tolist()),
                min_probability=min_probability,
                best_log_probability=best,
                best_calibrated_probability=_calibrated(best, calibration),
                certificate=found.certificate,
                calibration=calibration,
            )
        )
    return answers


def _log_probabilities(asked: Asked, found: Ranked, snapshot: KnownVideos) -> Float[Tensor, "found"]:
    if not len(found.numbers):
        return found.scores
    samples = snapshot.samples(found.numbers)
    queries = asked.samples(snapshot.settings).expand(len(samples), -1, -1)
    return exact_log_probabilities(queries, samples, curve=snapshot.settings.curve)


def _is_probable(
    log_probabilities: Float[Tensor, "found"], least: float | None, calibration: Calibration | None
) -> Bool[Tensor, "found"]:
    if not least:
        return torch.ones(len(log_probabilities), dtype=torch.bool)
    if calibration is None:
        return log_probabilities >= math.log(least)
    return calibration.probability(log_probabilities) >= least


def _calibrated(log_probability: float | None, calibration: Calibration | None) -> float | None:
    if log_probability is None or calibration is None:
        return None
    return float(calibration.probability(torch.tensor(log_probability, dtype=torch.float64)))


class _Rows:
    """What the store has of all hits of all queries, read at once."""

    def __init__(
        self,
        hits: Sequence[Int[Tensor, "hits"]],
        snapshot: KnownVideos,
        previews: Path,
        calibration: Calibration | None,
    ) -> None:
        numbers = sorted({number for some in hits for number in some.tolist()})
        self._rows = snapshot.read(_COLUMNS, numbers)
        self._place = {number: place for place, number in enumerate(numbers)}
        self._previews, self._calibration = previews, calibration

    def hits(
        self,
        asked: Asked,
        numbers: Int[Tensor, "hits"],
        scores: list[float],
        log_probabilities: list[float],
    ) -> tuple[Hit, ...]:
        """The hits of one query."""
        if not scores:
            return ()
        places = [self._place[number] for number in numbers.tolist()]
        rows = self._rows
        clips = Gaussian(
            torch.from_numpy(rows["clip_mean"][places]), torch.from_numpy(rows["clip_log_var"][places])
        )
        squared, mine, theirs = nearest_clips(asked.clips, clips)
        gaps = torch.from_numpy(rows["mean"][places]) - asked.mixture.mean.double()
        found = zip(
            places,
            scores,
            log_probabilities,
            self._calibrated(log_probabilities),
            gaps.norm(dim=1).tolist(),
            squared.tolist(),
            asked.clip_seconds[mine].tolist(),
            theirs.tolist(),
            strict=True,
        )
        return tuple(
            Hit(
                id=rows["id"][row],
                path=rows["path"][row],
                label=rows["label"][row],
                group=rows["group"][row],
                subset=rows["subset"][row],
                duration_seconds=float(rows["duration_seconds"][row]),
                score=score,
                log_probability=log_probability,
                calibrated_probability=calibrated,
                uncertainty=float(rows["uncertainty"][row]),
                ambiguity=float(rows["ambiguity"][row]),
                disagreement=float(rows["disagreement"][row]),
                mean_distance=gap,
                clip=Span(float(rows["start_seconds"][row, clip]), float(rows["end_seconds"][row, clip])),
                query_clip=Span(*query_clip),
                clip_squared_distance=distance,
                preview=str(self._previews / rows["preview"][row]),
            )
            for row, score, log_probability, calibrated, gap, distance, query_clip, clip in found
        )

    def _calibrated(self, log_probabilities: list[float]) -> list[float] | list[None]:
        """All at once, since a tensor of one number takes as long as one of many."""
        if self._calibration is None:
            return [None] * len(log_probabilities)
        probabilities: list[float] = self._calibration.probability(
            torch.tensor(log_probabilities, dtype=torch.float64)
        ).tolist()
        return probabilities


def nearest_clips(
    ours: Gaussian, theirs: Gaussian
) -> tuple[Float[Tensor, "videos"], Int[Tensor, "videos"], Int[Tensor, "videos"]]:
    """Of our clips and those of each video, the pair with the least expected squared distance, and where.

    The variances are part of it, so a clip of which the encoder is unsure is near to nothing.

    ours: "clips dim"; theirs: "videos clips dim".
    """
    num_videos, num_clips, dim = theirs.mean.shape
    sides = [
        Gaussian(side.mean.double().view(-1, dim), side.log_var.double().view(-1, dim))
        for side in (ours, theirs)
    ]
    distances = squared_euclidean_expected(*(Sampled(side, Moments.of_gaussian(side)) for side in sides))
    pairs = distances.view(-1, num_videos, num_clips).transpose(0, 1).flatten(1)
    least, place = pairs.min(dim=1)
    return least, place // num_clips, place % num_clips
