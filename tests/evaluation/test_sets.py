"""Training and test videos: official splits, another data set, or a share held out by group."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provico.data.catalog import Catalog, Video
from provico.errors import CatalogError, ConfigError
from provico.evaluation.sets import divide, open_sets


def catalog_of(groups_of_class: dict[str, list[int]]) -> Catalog:
    """For each class, the sizes of its groups."""
    videos = [
        Video(
            Path(f"{label}/{group}/{number}.mp4"), f"{label}/{group}/{number}.mp4", label, f"{label}{group}"
        )
        for label, sizes in groups_of_class.items()
        for group, size in enumerate(sizes)
        for number in range(size)
    ]
    return Catalog(Path(), "manifest", tuple(videos), tuple(groups_of_class))


sizes = st.lists(st.integers(1, 6), min_size=1, max_size=8)


@given(st.dictionaries(st.sampled_from("abc"), sizes, min_size=1), st.floats(0.1, 0.9), st.integers(0, 9))
def test_a_division_cuts_no_group_and_loses_no_video(groups, share, seed):
    catalog = catalog_of(groups)
    try:
        kept, held = divide(catalog, share, seed=seed)
    except ConfigError:
        return
    assert sorted(v.id for v in (*kept, *held)) == sorted(v.id for v in catalog)
    assert not {v.group for v in kept} & {v.group for v in held}
    assert {v.label for v in kept} == {v.label for v in catalog}, "no class is lost for training"
    for label, of_class in groups.items():
        number = sum(v.label == label for v in held)
        assert abs(number - share * sum(of_class)) <= max(of_class) or len(of_class) == 1


def test_the_seed_decides_the_division():
    catalog = catalog_of({"a": [2] * 10, "b": [3] * 10})
    ids = [[v.id for v in divide(catalog, 0.3, seed=seed)[1]] for seed in (0, 0, 1)]
    assert ids[0] == ids[1]
    assert ids[0] != ids[2]


def test_what_cannot_be_divided_is_refused():
    with pytest.raises(ConfigError, match="between 0 and 1"):
        divide(catalog_of({"a": [2, 2]}), 1.0)
    with pytest.raises(ConfigError, match="single group"):
        divide(catalog_of({"a": [5], "b": [5]}), 0.5)


def test_an_official_split_is_kept(demo_set):
    sets = open_sets(demo_set, split=2)
    assert sets.name == "split 2"
    assert not {v.id for v in sets.train} & {v.id for v in sets.test}
    assert {v.subset for v in sets.test} == {"test"}


def test_a_plain_folder_needs_a_word_about_testing(demo_set, tmp_path):
    folder = tmp_path / "plain"
    train = open_sets(demo_set).train
    for video in (*train.videos[:2], *train.videos[-2:]):
        place = folder / str(video.label) / video.path.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(video.path.read_bytes())
    with pytest.raises(CatalogError, match=r"--hold-out 0\.25"):
        open_sets(folder)
    alone = open_sets(folder, leave_one_out=True)
    assert alone.is_one
    with pytest.raises(ConfigError, match="Give only one of them"):
        open_sets(folder, hold_out=0.5, test_data=demo_set)
    transfer = open_sets(folder, test_data=demo_set)
    assert {v.subset for v in transfer.test} == {"test"}
    assert transfer.test.classes == transfer.train.classes
    assert len(transfer.train) == 4


def test_a_class_that_was_never_seen_is_refused(demo_set, tmp_path):
    other = tmp_path / "other"
    video = open_sets(demo_set).train[0]
    (other / "Juggling").mkdir(parents=True)
    (other / "Juggling" / "a.mp4").write_bytes(video.path.read_bytes())
    with pytest.raises(CatalogError, match="Juggling"):
        open_sets(demo_set, test_data=other)


@pytest.mark.parametrize("with_test", [False, True])
def test_kinetics_is_tested_on_its_validation_videos(tmp_path, with_test):
    """Its test videos have no public labels."""
    rows = {"train": [("abseiling", "a"), ("riding a bike", "b")], "validate": [("abseiling", "c")]}
    for name, listed in rows.items():
        lines = [f'"{label}",{video},7,17,{name},0' for label, video in listed]
        table = tmp_path / "annotations" / f"{name}.csv"
        table.parent.mkdir(exist_ok=True)
        table.write_text("\n".join(["label,youtube_id,time_start,time_end,split,is_cc", *lines]) + "\n")
        for _, video in listed:
            (tmp_path / f"{video}_000007_000017.mp4").touch()
    if with_test:
        table = tmp_path / "annotations" / "test.csv"
        table.write_text("youtube_id,time_start,time_end,split\nd,7,17,test\n")
        (tmp_path / "d_000007_000017.mp4").touch()
    sets = open_sets(tmp_path)
    assert [video.label for video in sets.train] == ["abseiling", "riding a bike"]
    assert [video.label for video in sets.test] == ["abseiling"]
