"""Names of groups of videos: by their classes, by words that fit them, or by names of their files.

A word names a group if it fits that group better than the others, beyond chance:

    words   words of a given list, if the encoder has a text tower: a word fits better than 95 % of phrases
            that are unrelated to any collection, each in units of how its fit varies over the videos
    files   words in the names of files and folders that most of a group share, and few others; the chance of
            so many in the group is the tail of the hypergeometric distribution, times the number of such
            words
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

import numpy as np
from numpy.typing import NDArray

NamedBy = Literal["labels", "words", "files", "number"]
MOST_CHANCE = 0.05
LEAST_SHARE = 0.6
"""At least this share of a group has the word in its names ..."""
LEAST_LIFT = 2.0
"""... and this many times the share of the others."""
NUM_WORDS = 3
_TOKEN = re.compile(r"[^\W\d_]{3,}")
_SAYS_NOTHING = frozenset(
    ("img", "vid", "mov", "dsc", "clip", "video", "movie", "file", "copy", "new", "final", "the", "and")
)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class GroupWord:
    """A word that fits a group."""

    text: str
    chance: float
    """The share of unrelated phrases that fit as well."""


@dataclass(frozen=True)
class GroupName:
    """The name of a group."""

    title: str
    named_by: NamedBy
    words: tuple[GroupWord, ...] = ()
    """The words that fit, the best first."""


@dataclass(frozen=True, eq=False)
class Fit:
    """Scores of words for videos."""

    texts: Sequence[str]
    scores: Array
    """ "texts videos" """
    phrases: Array
    """Scores of unrelated phrases: "phrases videos"."""


def name_groups(
    ids: Sequence[str], labels: Sequence[str | None], groups: NDArray[np.int64], fit: Fit | None = None
) -> list[GroupName]:
    """The name of each group; repeated titles get a number."""
    number = int(groups.max(initial=-1)) + 1
    members = [np.flatnonzero(groups == group) for group in range(number)]
    of_files = _of_files(ids, members)
    names: list[GroupName] = []
    for group, inside in enumerate(members):
        words = () if fit is None else fitting(fit, groups, group)
        label = _of_labels([labels[row] for row in inside.tolist()])
        title, by = (
            (label, "labels")
            if label
            else (words[0].text, "words")
            if words
            else (of_files[group], "files")
            if of_files[group]
            else (f"Group {group + 1}", "number")
        )
        same = sum(name.title.partition(" · ")[0] == title for name in names)
        names.append(GroupName(f"{title} · {same + 1}" if same else title, by, words))  # type: ignore[arg-type]
    return names


def _of_labels(labels: Sequence[str | None]) -> str:
    """The class of most members; empty if there is none."""
    if not labels:
        return ""
    label, count = Counter(labels).most_common(1)[0]
    if label is None or 2 * count <= len(labels):
        return ""
    return label if count == len(labels) else f"mostly {label}"


def fitting(fit: Fit, groups: NDArray[np.int64], group: int) -> tuple[GroupWord, ...]:
    """The words that fit a group beyond chance, the best first."""
    inside, grouped = groups == group, groups >= 0

    def in_group(scores: Array) -> Array:
        known = scores[:, grouped]
        spread = np.maximum(known.std(axis=1), 1e-9)
        return np.asarray((scores[:, inside].mean(axis=1) - known.mean(axis=1)) / spread)

    found, usual = in_group(fit.scores), in_group(fit.phrases)
    chances = (1 + (usual[None] >= found[:, None]).sum(axis=1)) / (1 + len(usual))
    best = [place for place in np.argsort(-found, kind="stable").tolist() if chances[place] <= MOST_CHANCE]
    return tuple(GroupWord(fit.texts[place], float(chances[place])) for place in best[:NUM_WORDS])


def _of_files(ids: Sequence[str], members: Sequence[NDArray[np.int64]]) -> list[str]:
    """The most specific word in the names of each group's files; empty if there is none."""
    written: dict[str, str] = {}
    having: Counter[str] = Counter()
    grouped = sum(map(len, members))
    counts = []
    for inside in members:
        mine: Counter[str] = Counter()
        for row in inside.tolist():
            tokens = {token.casefold(): token for token in _TOKEN.findall(_without_suffix(ids[row]))}
            for folded in tokens.keys() - _SAYS_NOTHING:
                written.setdefault(folded, tokens[folded])
                mine[folded] += 1
        counts.append(mine)
        having += mine
    return [
        written.get(_most_own(mine, len(inside), having, grouped), "")
        for mine, inside in zip(counts, members, strict=True)
    ]


def _most_own(mine: Counter[str], size: int, having: Counter[str], total: int) -> str:
    best, best_lift = "", 0.0
    for token, count in sorted(mine.items()):
        others = (having[token] - count) / max(1, total - size)
        share = count / size
        if share < LEAST_SHARE or share < LEAST_LIFT * others or total == size:
            continue
        if len(having) * _tail(count, size, having[token], total) > MOST_CHANCE:
            continue
        lift = 2 * count / (size + having[token])  # the F1 of the word for the group
        if lift > best_lift:
            best, best_lift = token, lift
    return best


def _tail(count: int, size: int, having: int, total: int) -> float:
    """Probability that at least `count` of `size` drawn videos are among `having` of `total`."""

    def log_choose(n: int, k: int) -> float:
        return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)

    most = min(size, having)
    parts = (
        log_choose(having, one) + log_choose(total - having, size - one) - log_choose(total, size)
        for one in range(max(count, size + having - total), most + 1)
    )
    return sum(map(math.exp, parts))


def _without_suffix(name: str) -> str:
    return str(PurePosixPath(name).with_suffix(""))
