"""Groups are those that anybody would see, whatever else is in the folder, and have names of their own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pytest

from provico.curation.group_names import Fit, fitting, name_groups
from provico.curation.groups import LEAST_VIDEOS, NO_GROUP, find_groups

SIZES = (9, 7, 5)
DIM = 32


def collection(seed: int, sizes: tuple[int, ...] = SIZES) -> np.ndarray:
    """Kinds of videos around centres, as far apart as unlike videos are."""
    rng = np.random.default_rng(seed)
    kinds = np.repeat(np.arange(len(sizes)), sizes)
    return 4 * rng.normal(size=(len(sizes), DIM))[kinds] + rng.normal(size=(len(kinds), DIM))


def groups_of(
    means: np.ndarray,
    *,
    junk: Sequence[int] = (),
    copies: Mapping[int, int] = MappingProxyType({}),
    labels: int = 0,
) -> np.ndarray:
    is_junk, copy_of = np.isin(np.arange(len(means)), junk), np.full(len(means), -1)
    copy_of[[*copies]] = [*copies.values()]
    return find_groups(means, junk=is_junk, copy_of=copy_of, num_labels=labels)


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two groupings are one but for the numbers of groups."""
    return (
        len({*zip(one.tolist(), other.tolist(), strict=True)})
        == len({*one.tolist()})
        == len({*other.tolist()})
    )


@pytest.mark.parametrize("seed", range(5))
def test_kinds_are_found_without_being_told_how_many(seed: int) -> None:
    expected = np.repeat(np.arange(len(SIZES)), SIZES)
    assert (groups_of(collection(seed)) == expected).all()  # the largest is the first


@pytest.mark.parametrize("seed", range(5))
def test_junk_and_copies_change_no_group(seed: int) -> None:
    rng = np.random.default_rng(seed + 100)
    means = collection(seed)
    junk = 6 * rng.normal(size=(4, DIM))
    # Wherever the encoder puts copies: it may know nothing of bars and mirrors.
    copies = 4 * rng.normal(size=(9, DIM))
    found = groups_of(
        np.concatenate([means, junk, copies]), junk=[*range(21, 25)], copies=dict.fromkeys(range(25, 34), 20)
    )
    assert same(found[:21], groups_of(means))
    assert (found[21:25] == NO_GROUP).all()
    assert (found[25:] == found[20]).all()
    assert np.bincount(found[found >= 0]).tolist() == sorted((9, 7, 5 + 9), reverse=True)


def test_neither_the_order_nor_a_missing_video_matters() -> None:
    means = collection(0)
    found, order = groups_of(means), np.random.default_rng(1).permutation(len(means))
    assert same(groups_of(means[order]), found[order])
    for left_out in range(len(means)):
        rest = np.delete(np.arange(len(means)), left_out)
        assert same(groups_of(means[rest]), found[rest])
    rotation = np.linalg.qr(np.random.default_rng(2).normal(size=(DIM, DIM)))[0]
    assert same(groups_of(3 * means @ rotation + 5), found)


def test_a_large_collection_is_grouped_by_some_of_its_videos() -> None:
    sizes = (2000, 1500, 700)
    assert (groups_of(collection(3, sizes)) == np.repeat(np.arange(3), sizes)).all()


def test_small_and_empty_collections() -> None:
    assert groups_of(np.empty((0, DIM))).size == 0
    assert (groups_of(collection(0)[: LEAST_VIDEOS - 1]) == 0).all()
    assert (groups_of(np.ones((12, DIM))) >= 0).all()
    of_junk = groups_of(collection(0)[:4], junk=[0], copies={1: 0, 2: 0, 3: 0})
    assert of_junk.tolist() == [NO_GROUP, 0, 0, 0]
    assert groups_of(collection(0), labels=5).max() == 4


# --- names -------------------------------------------------------------------------------------------------

GROUPS = np.repeat([0, 1, 2], 6)


def test_file_names_name_groups_if_they_are_of_one_group() -> None:
    ids = [f"{place}/IMG_{number:04} holiday.mp4" for number, place in enumerate(("beach", "Alps") * 3)]
    ids += [f"x/holiday garden {number}.mov" for number in range(6)]
    ids += [f"y/{letter * 8}.mp4" for letter in "abcdef"]
    titles = [(name.title, name.named_by) for name in name_groups(ids, [None] * 18, GROUPS)]
    assert titles == [("Group 1", "number"), ("garden", "files"), ("Group 3", "number")]


def test_labels_come_first_and_titles_differ() -> None:
    ids = [f"run {number}.mp4" for number in range(18)]
    labels = ["run"] * 11 + ["walk"] + [None] * 6
    found = name_groups(ids, labels, GROUPS)
    assert [name.title for name in found] == ["run", "mostly run", "Group 3"]
    assert [name.title for name in name_groups(ids, ["run"] * 18, GROUPS)] == ["run", "run · 2", "run · 3"]
    junk = np.where(np.arange(18) < 12, GROUPS, NO_GROUP)
    assert len(name_groups(ids, labels, junk)) == 2


def test_a_shared_name_is_no_chance_by_counting_all_draws() -> None:
    from provico.curation.group_names import _tail

    has = [True] * 4 + [False] * 5
    draws = [sum(has[row] for row in rows) for rows in itertools.combinations(range(9), 4)]
    for count in range(5):
        expected = sum(found >= count for found in draws) / math.comb(9, 4)
        assert _tail(count, 4, 4, 9) == pytest.approx(expected)


def test_words_name_the_group_that_they_fit_beyond_chance() -> None:
    rng = np.random.default_rng(0)
    phrases = rng.normal(size=(105, 18))
    scores = rng.normal(size=(3, 18)) * 0.1
    scores[1, GROUPS == 2] += 1.0
    fit = Fit(("a", "at night", "b"), 0.02 * scores + 0.3, 0.02 * phrases + 0.25)
    best = fitting(fit, GROUPS, 2)[0]
    assert best.text == "at night"
    assert best.chance == pytest.approx(1 / 106)
    assert "at night" not in [word.text for word in fitting(fit, GROUPS, 0)]
    named = name_groups([f"{n}.mp4" for n in range(18)], [None] * 18, GROUPS, fit)[2]
    assert (named.title, named.named_by) == ("at night", "words")
    # What fits all videos alike says nothing of one group, however well it fits.
    everywhere = Fit(("people",), np.full((1, 18), 0.9), phrases)
    assert fitting(everywhere, GROUPS, 0) == ()
