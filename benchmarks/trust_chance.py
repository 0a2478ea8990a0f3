"""Are false match rates what they claim, do real queries get answers, and do videos unlike the rest get none?

    python benchmarks/unlike_videos.py unlike
    python benchmarks/trust_errors.py ../shared/data/ucf101-5 frozen --splits 1 2 3        # once for each set
    python benchmarks/trust_chance.py ../shared/data/ucf101-5 ../shared/data/hmdb51-12 demo \\
        --unlike unlike --splits 1 2 3

The encoders are those that `trust_errors.py` trained and kept in `--work`, without labels, on the training
videos of each split. These are the collection, the test videos are queries. Unrelated are pairs of another
recording and another label. `observed / claimed` is the share of unrelated pairs whose false match rate is at
most r, divided by r; its interval is 95 % of 1,000 sets of redrawn recordings of queries. `features, cosine`
needs no encoder: the cosine of the centred mean features.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provico import Encoder, open_catalog, open_encoder
from provico.data.catalog import Catalog
from provico.embedding.features import clip_features
from provico.probability.gaussian import Gaussian
from provico.probability.seeded_samples import seeded_samples
from provico.search.chance import NUM_REFERENCES, Chance, Described
from provico.search.loaded import gallery_samples
from trust_errors import NUM_CLIPS, sets_of

RATES = (0.1, 0.03, 0.01, 0.003, 0.001)
MAX_CHANCE, K, NUM_SAMPLES = 1.0, 10, 10
KINDS = {"match": "match", "cosine": "cosine", "features, cosine": "cosine"}


@dataclass(frozen=True, eq=False)
class Videos:
    """Videos with their features and what is known of them."""

    ids: list[str]
    labels: list[str]
    groups: list[str]
    features: Tensor


@dataclass(frozen=True, eq=False)
class Seen:
    """Videos as one encoder sees them: as queries, and as videos of a collection."""

    videos: Videos
    as_query: Described
    as_video: Described

    def __getitem__(self, rows: list[int]) -> Seen:
        some = self.videos
        parts = [[of[row] for row in rows] for of in (some.ids, some.labels, some.groups)]
        return Seen(Videos(*parts, some.features[rows]), self.as_query[rows], self.as_video[rows])


def of_catalog(encoder: Encoder, catalog: Catalog) -> Videos:
    found = clip_features(encoder, catalog, num_clips=NUM_CLIPS, num_workers=0)
    return Videos(
        [video.id for video in found.catalog],
        [str(video.label) for video in found.catalog],
        [video.group or video.id for video in found.catalog],
        found.features,
    )


def seen(videos: Videos, encoder: Encoder, settings: Any) -> Seen:
    with torch.no_grad():
        mixture = encoder.from_features(videos.features, videos.groups)
    whole = mixture.moment_matched
    query = seeded_samples(videos.ids, mixture, num_samples=NUM_SAMPLES, seed=0, stream="query")
    video = gallery_samples(videos.ids, whole, settings)
    ids, groups = tuple(videos.ids), tuple(videos.groups)
    return Seen(videos, Described(ids, groups, whole, query), Described(ids, groups, whole, video))


def by_features(videos: Videos, centre: Tensor) -> Seen:
    mean = videos.features.mean(dim=1) - centre
    found = Described(
        tuple(videos.ids), tuple(videos.groups), Gaussian(mean, torch.zeros_like(mean)), mean.unsqueeze(1)
    )
    return Seen(videos, found, found)


class Collection:
    """Videos that are searched, and what unrelated ones score."""

    def __init__(self, videos: Seen, metric: str, settings: Any) -> None:
        self.videos, self.metric = videos, metric
        drawn = torch.randperm(len(videos.videos.ids), generator=torch.Generator().manual_seed(0))
        self._chance = Chance(videos.as_video[sorted(drawn[:NUM_REFERENCES].tolist())], 0, settings)
        model = self._chance.model(metric)
        assert model is not None
        self._model = model
        self._levels = self._chance.levels(metric, videos.as_video)

    def asked(self, queries: Seen) -> Asked:
        """All queries with all videos."""
        scores = self._chance.compare(self.metric, queries.as_query, self.videos.as_video)
        own = self._chance.levels(self.metric, queries.as_query)
        rates = self._model.false_match_rate(
            scores, own.unsqueeze(1).expand_as(scores), self._levels.expand_as(scores)
        )
        is_other = queries.as_query.is_other(self.videos.as_video)
        return Asked(queries.videos, self.videos.videos, scores.masked_fill(~is_other, -torch.inf), rates)


@dataclass(frozen=True, eq=False)
class Asked:
    """Scores and false match rates of all queries with all videos; -inf for a query's own recording."""

    queries: Videos
    videos: Videos
    scores: Tensor
    rates: Tensor

    @property
    def expected(self) -> Tensor:
        """Of the K best of each query, how many unrelated videos are expected to match as well."""
        num_allowed = self.scores.isfinite().sum(dim=1, keepdim=True)
        return self.rates.gather(1, self.best) * num_allowed

    @property
    def best(self) -> Tensor:
        """The rows of the K best of each query."""
        return self.scores.topk(K, dim=1).indices

    @property
    def is_right(self) -> Tensor:
        """Whether each of the K best has the query's label."""
        labels = np.array(self.videos.labels)[self.best.numpy()]
        return torch.from_numpy(labels == np.array(self.queries.labels)[:, None])


def judge_rates(asked: Asked) -> dict[str, Any]:
    """Observed over claimed, with intervals by recording, and how much single queries differ."""
    is_same = np.array(asked.queries.labels)[:, None] == np.array(asked.videos.labels)[None]
    unrelated = ~torch.from_numpy(is_same) & asked.scores.isfinite()
    _, group = np.unique(asked.queries.groups, return_inverse=True)
    random = np.random.default_rng(0)
    redrawn = random.integers(0, group.max() + 1, (1000, group.max() + 1))
    found: dict[str, Any] = {"pairs": int(unrelated.sum())}
    for rate in RATES:
        hits = ((asked.rates <= rate) & unrelated).sum(dim=1).numpy()
        both = [np.bincount(group, weights=some) for some in (hits, unrelated.sum(dim=1).numpy())]
        again = np.sort(both[0][redrawn].sum(1) / both[1][redrawn].sum(1) / rate)
        found[f"{rate:g}"] = [
            round(float(value), 3) for value in (both[0].sum() / both[1].sum() / rate, again[25], again[974])
        ]
    own = ((asked.rates <= 0.01) & unrelated).sum(dim=1) / unrelated.sum(dim=1)
    found["queries above .03 where .01 is claimed"] = _share(own > 0.03)
    return found


def _share(values: Tensor) -> float:
    return round(float(values.double().mean()), 3)


def judge_answers(asked: Asked) -> dict[str, Any]:
    passes, right = asked.expected <= MAX_CHANCE, asked.is_right
    best = right[:, 0]
    return {
        "queries": len(best),
        "R@1": _share(best),
        "right best hits that are shown": _share(passes[best, 0]),
        "wrong best hits that are shown": _share(passes[~best, 0]),
        "queries with a hit": _share(passes.any(dim=1)),
        "shown hits that are right": _share(right[passes]),
        "best ten that are right": _share(right),
    }


def judge_unlike(videos: Seen, queries: Seen, unlike: Seen, metric: str, settings: Any) -> dict[str, Any]:
    """Videos unlike the rest, as queries and as a part of the collection."""
    asked = Collection(videos, metric, settings).asked(unlike)
    is_quiet = ~(asked.expected <= MAX_CHANCE).any(dim=1)
    kinds = np.array(unlike.videos.labels, object)
    joined = Seen(
        Videos(
            *(
                [*of(videos.videos), *of(unlike.videos)]
                for of in (lambda v: v.ids, lambda v: v.labels, lambda v: v.groups)
            ),
            torch.cat([videos.videos.features, unlike.videos.features]),
        ),
        Described.joined([videos.as_query, unlike.as_query]),
        Described.joined([videos.as_video, unlike.as_video]),
    )
    among = Collection(joined, metric, settings).asked(queries)
    is_unlike = among.best >= len(videos.videos.ids)
    passes = among.expected <= MAX_CHANCE
    return {
        "no match beyond chance": _share(is_quiet),
        "by kind": {kind: _share(is_quiet[kinds == kind]) for kind in sorted(set(kinds))},
        "queries that find one, if they are in the collection": _share((passes & is_unlike).any(dim=1)),
        "right best hits that are shown, if they are in the collection": _share(
            passes[among.is_right[:, 0], 0]
        ),
    }


def judge(data: str, recipe: str, split: int, seed: int, unlike: Path, work: Path) -> dict[str, Any]:
    encoder = open_encoder(work / "runs" / f"{Path(data).name}_{recipe}_{split}_{seed}")
    catalogs = (*sets_of(data, split, work), open_catalog(unlike))
    parts = train, *_ = [of_catalog(encoder, catalog) for catalog in catalogs]
    found: dict[str, Any] = {"videos": len(train.ids), "recordings": len(set(train.groups))}
    curve = encoder.match_curve().fixed()
    settings = SimpleNamespace(curve=curve, num_samples=NUM_SAMPLES, seed=0)
    ours = [seen(some, encoder, settings) for some in parts]
    centre = train.features.mean(dim=(0, 1))
    plain = [by_features(some, centre) for some in parts]
    for kind, metric in KINDS.items():
        videos, queries, odd = plain if kind.startswith("features") else ours
        collection = Collection(videos, metric, settings)
        asked = collection.asked(queries)
        found[kind] = {
            "observed / claimed": judge_rates(asked),
            "observed / claimed, indexed videos as queries": judge_rates(collection.asked(videos)),
            "answers": judge_answers(asked),
            "unlike": judge_unlike(videos, queries, odd, metric, settings),
        }
    return found


def show(name: str, found: dict[str, Any]) -> None:
    for kind in KINDS:
        print(f"{name}, {kind}")
        for part in found[kind].values():
            print("  " + ", ".join(f"{text} {value}" for text, value in part.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+")
    parser.add_argument("--recipe", default="frozen")
    parser.add_argument("--unlike", type=Path, required=True)
    parser.add_argument("--splits", type=int, nargs="+", default=[1])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path("trust"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/trust_chance.json"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    results = json.loads(given.out.read_text()) if given.out.exists() else {}
    for data in given.data:
        for split in given.splits:
            label = f"{Path(data).name}, split {split}" + (f", seed {given.seed}" if given.seed else "")
            results[label] = judge(data, given.recipe, split, given.seed, given.unlike, given.work)
            show(label, results[label])
            given.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
