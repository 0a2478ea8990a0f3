"""The public benchmarks, as small trees of empty files: a catalog never opens a video."""

from __future__ import annotations

from pathlib import Path

import pytest

from provico.data.catalog import open_catalog
from provico.errors import CatalogError

from .file_trees import ids, make_files, write

# ----------------------------------------------------------------------------------------------------
# UCF101

UCF_VIDEOS = [
    f"{label}/v_{label}_g{group:02d}_c{clip:02d}.avi"
    for label in ("Archery", "Biking", "Zebra")
    for group in (1, 2, 3)
    for clip in (1, 2)
]
UCF_NUMBERS = {"Archery": 7, "Biking": 3, "Zebra": 101}  # official order is not that of the alphabet


def make_ucf101(home: Path, *, suffix: str = ".avi", end: str = "\n") -> Path:
    make_files(home / "UCF-101", *(name.replace(".avi", suffix) for name in UCF_VIDEOS))
    lists = home / "ucfTrainTestlist"
    write(lists / "classInd.txt", *(f"{number} {name}" for name, number in UCF_NUMBERS.items()), end=end)
    for split in (1, 2, 3):
        test = [name for name in UCF_VIDEOS if f"_g{split:02d}_" in name]
        train = [name for name in UCF_VIDEOS if name not in test]
        write(lists / f"testlist0{split}.txt", *test, end=end)
        numbered = [f"{name} {UCF_NUMBERS[name.split('/')[0]]}" for name in train]
        write(lists / f"trainlist0{split}.txt", *numbered, end=end)
    return home


@pytest.mark.parametrize("given", [".", "UCF-101", "ucfTrainTestlist"])
@pytest.mark.parametrize("layout", ["auto", "ucf101"])
def test_ucf101_is_the_same_wherever_one_points(tmp_path: Path, given: str, layout: str) -> None:
    make_ucf101(tmp_path)
    train = open_catalog(tmp_path / given, layout=layout, subset="train")
    test = open_catalog(tmp_path / given, layout=layout, subset="test")
    assert train.layout == "ucf101"
    assert train.root == tmp_path / "UCF-101"
    assert ids(train) == [name for name in UCF_VIDEOS if "_g01_" not in name]
    assert ids(test) == [name for name in UCF_VIDEOS if "_g01_" in name]
    assert sorted(ids(open_catalog(tmp_path / given, layout=layout))) == sorted(UCF_VIDEOS)
    assert all(video.path == train.root / video.id and video.path.is_file() for video in train)


def test_ucf101_numbers_classes_from_0_in_official_order(tmp_path: Path) -> None:
    catalog = open_catalog(make_ucf101(tmp_path), subset="test")
    assert catalog.classes == ("Biking", "Archery", "Zebra")
    assert list(catalog.labels) == [1, 1, 0, 0, 2, 2]
    assert {video.group for video in catalog} == {"Archery/g01", "Biking/g01", "Zebra/g01"}


def test_ucf101_splits_differ_and_a_tuple_is_their_union(tmp_path: Path) -> None:
    make_ucf101(tmp_path)
    tests = [set(ids(open_catalog(tmp_path, split=split, subset="test"))) for split in (1, 2, 3)]
    assert set.intersection(*tests) == set()
    assert set(ids(open_catalog(tmp_path, split=(2, 3), subset="test"))) == tests[1] | tests[2]
    assert sorted(ids(open_catalog(tmp_path, split=(1, 2, 3), subset="train"))) == sorted(UCF_VIDEOS)


@pytest.mark.parametrize("suffix", [".mp4", ".AVI", ".mkv"])
def test_ucf101_may_have_been_re_encoded(tmp_path: Path, suffix: str) -> None:
    catalog = open_catalog(make_ucf101(tmp_path, suffix=suffix, end="\r\n"), subset="test")
    assert len(catalog) == 6
    assert all(video.path.suffix == suffix and video.id.endswith(suffix) for video in catalog)


def test_ucf101_label_is_the_folder_whatever_the_letter_case_of_the_file(tmp_path: Path) -> None:
    make_files(tmp_path / "UCF-101", "HandstandPushups/v_HandStandPushups_g01_c01.avi")
    write(tmp_path / "ucfTrainTestlist/classInd.txt", "37 HandstandPushups")
    write(tmp_path / "ucfTrainTestlist/trainlist01.txt", "HandstandPushups/v_HandstandPushups_g01_c01.avi 37")
    write(tmp_path / "ucfTrainTestlist/testlist01.txt")
    [video] = open_catalog(tmp_path)
    assert video.label == "HandstandPushups"
    assert video.id == "HandstandPushups/v_HandStandPushups_g01_c01.avi"
    assert video.group == "HandstandPushups/g01"


def test_ucf101_two_files_for_one_line_are_refused(tmp_path: Path) -> None:
    make_ucf101(tmp_path, suffix=".mp4")
    make_files(tmp_path / "UCF-101", UCF_VIDEOS[0].replace(".avi", ".mkv"))
    with pytest.raises(CatalogError, match=r"could be any of .*\.mkv, .*\.mp4"):
        open_catalog(tmp_path)
    make_files(tmp_path / "UCF-101", UCF_VIDEOS[0])  # the listed name itself leaves no doubt
    assert UCF_VIDEOS[0] in ids(open_catalog(tmp_path))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("Zebra/v_Zebra_g09_c01.avi 3", "3 is not the number of Zebra"),
        ("Yeti/v_Yeti_g09_c01.avi 3", 'found "Yeti/'),
        ("v_Zebra_g09_c01.avi", "needed"),
        ("../Zebra/v_Zebra_g09_c01.avi", "needed"),
    ],
)
def test_ucf101_wrong_lines_are_named(tmp_path: Path, line: str, complaint: str) -> None:
    make_ucf101(tmp_path)
    path = tmp_path / "ucfTrainTestlist/trainlist01.txt"
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(CatalogError, match=rf"trainlist01.txt, line 13: .*{complaint}"):
        open_catalog(tmp_path)


def test_a_neighbour_of_ucf101_is_not_ucf101(tmp_path: Path) -> None:
    make_ucf101(tmp_path)
    make_files(tmp_path / "mine", "a.mp4")
    assert open_catalog(tmp_path / "mine").layout == "folder"
    assert open_catalog(tmp_path / "UCF-101" / "Zebra").layout == "folder"


def test_real_ucf101_has_the_official_sizes(real_data: Path) -> None:
    home = real_data / "ucf101-5"
    sizes = {subset: len(open_catalog(home, subset=subset)) for subset in ("train", "test", "all")}
    assert sizes == {"train": 443, "test": 178, "all": 621}
    train, test = (open_catalog(home, subset=subset) for subset in ("train", "test"))
    assert set(train.labels) == set(test.labels) == set(range(5))
    assert not {video.group for video in train} & {video.group for video in test}


@pytest.mark.parametrize("split", [0, 4, (1, 5), ()])
def test_splits_that_do_not_exist(tmp_path: Path, split: int | tuple[int, ...]) -> None:
    with pytest.raises(CatalogError, match="The layout ucf101 has the splits 1 to 3"):
        open_catalog(make_ucf101(tmp_path), split=split)
    with pytest.raises(CatalogError, match="The layout folder has no numbered splits"):
        open_catalog(make_files(tmp_path / "mine", "a.mp4"), split=split)


def test_subsets_that_do_not_exist(tmp_path: Path) -> None:
    make_ucf101(tmp_path)
    with pytest.raises(CatalogError, match="has no val videos: it has test, train"):
        open_catalog(tmp_path, subset="val")
    with pytest.raises(CatalogError, match=r'no subset "tests". Choose one of all, train, val, test'):
        open_catalog(tmp_path, subset="tests")


def test_missing_videos_are_counted_and_named(tmp_path: Path) -> None:
    make_ucf101(tmp_path)
    gone = UCF_VIDEOS[4:9]
    for name in gone:
        (tmp_path / "UCF-101" / name).unlink()
    with pytest.raises(
        CatalogError, match=f"5 of 18 videos .*: .*{gone[0]}, .*, \\.\\.\\.\\. .*--allow-missing"
    ):
        open_catalog(tmp_path)
    catalog = open_catalog(tmp_path, allow_missing=True)
    assert sorted(catalog.missing) == gone
    assert sorted([*ids(catalog), *gone]) == UCF_VIDEOS


# ----------------------------------------------------------------------------------------------------
# HMDB51


@pytest.mark.parametrize("lists", ["testTrainMulti_7030_splits", "splits"])
@pytest.mark.parametrize("given", [".", "hmdb51_org"])
def test_hmdb51(tmp_path: Path, lists: str, given: str) -> None:
    make_files(tmp_path / "hmdb51_org", "brush_hair/a(1)#x.avi", "brush_hair/b.avi", "brush_hair/c.avi")
    make_files(tmp_path / "hmdb51_org", "wave/a!.avi", "wave/b.avi")
    write(tmp_path / lists / "wave_test_split1.txt", "a!.avi 2 ", "b.avi 1 ", end="\r\n")
    write(tmp_path / lists / "brush_hair_test_split1.txt", "a(1)#x.avi 1", "b.avi 0", "c.avi 2")
    write(tmp_path / lists / "wave_test_split2.txt", "a!.avi 1", "b.avi 2")
    write(tmp_path / lists / "brush_hair_test_split2.txt", "a(1)#x.avi 0", "b.avi 1", "c.avi 2")
    catalog = open_catalog(tmp_path / given, subset="train")
    assert catalog.layout == "hmdb51"
    assert catalog.classes == ("brush_hair", "wave")
    assert ids(catalog) == ["brush_hair/a(1)#x.avi", "wave/b.avi"]
    assert catalog.labels == (0, 1)
    assert ids(open_catalog(tmp_path / given, subset="test")) == ["brush_hair/c.avi", "wave/a!.avi"]
    assert ids(open_catalog(tmp_path / given, split=2, subset="train")) == ["brush_hair/b.avi", "wave/a!.avi"]
    assert len(open_catalog(tmp_path / given)) == 4  # 0 is in neither
    with pytest.raises(CatalogError, match=r"brush_hair_test_split3\.txt cannot be read"):
        open_catalog(tmp_path / given, split=3)
    write(tmp_path / lists / "wave_test_split1.txt", "a!.avi 3")
    with pytest.raises(CatalogError, match=r'wave_test_split1.txt, line 1: found "a!.avi 3"'):
        open_catalog(tmp_path / given)


def test_hmdb51_names_that_begin_with_a_hash_are_videos(tmp_path: Path) -> None:
    names = ["#20_Rhythm_clap_u_nm_0.avi", "#20_Rhythm_clap_u_nm_1.avi", "Film_Clap_f_2.avi"]
    make_files(tmp_path / "videos", *(f"clap/{name}" for name in names), "wave/#20_Rhythm_wave_u_0.avi")
    write(tmp_path / "splits/clap_test_split1.txt", *(f"{name} 1" for name in names))
    write(tmp_path / "splits/wave_test_split1.txt", "#20_Rhythm_wave_u_0.avi 2", "#lost_wave_u_0.avi 1")
    catalog = open_catalog(tmp_path, allow_missing=True)
    assert sorted(ids(catalog)) == sorted(
        [*(f"clap/{name}" for name in names), "wave/#20_Rhythm_wave_u_0.avi"]
    )
    assert catalog.missing == ("wave/#lost_wave_u_0.avi",)
    groups = {video.id: video.group for video in catalog}
    assert groups["clap/Film_Clap_f_2.avi"] == "Film"
    # One source with clips of two classes is one group.
    assert {group for name, group in groups.items() if "#20" in name} == {"#20_Rhythm"}


@pytest.mark.parametrize("split", [1, 2, 3])
def test_the_official_splits_of_hmdb51_are_read_whole(real_data: Path, split: int) -> None:
    for subset, num_videos in (("train", 840), ("test", 360)):
        catalog = open_catalog(real_data / "hmdb51-12", split=split, subset=subset, allow_missing=True)
        assert len(catalog) + len(catalog.missing) == num_videos
        assert None not in {video.group for video in catalog}


# ----------------------------------------------------------------------------------------------------
# Kinetics

KINETICS_HEADER = "label,youtube_id,time_start,time_end,split,is_cc"


@pytest.mark.parametrize("folder", ["", "{subset}/{label}/", "{label}/", "{subset}/"])
def test_kinetics(tmp_path: Path, folder: str) -> None:
    clips = [
        ("train", "riding a bike", "-_aBc", 7, 17),
        ("train", "abseiling", "-_abc", 7, 17),  # another video: YouTube tells letter case apart
        ("validate", "abseiling", "xyz", 120, 130),
    ]
    for subset, label, name, start, end in clips:
        place = folder.format(subset=subset, label=label)
        make_files(tmp_path, f"{place}{name}_{start:06d}_{end:06d}.webm")
    for table in ("train", "validate"):
        rows = [f'"{c[1]}",{c[2]},{c[3]},{c[4]},{c[0]},0' for c in clips if c[0] == table]
        write(tmp_path / f"annotations/{table}.csv", KINETICS_HEADER, *rows)
    train = open_catalog(tmp_path, subset="train")
    assert train.layout == "kinetics"
    assert train.classes == ("abseiling", "riding a bike")
    assert [video.path.stem for video in train] == ["-_aBc_000007_000017", "-_abc_000007_000017"]
    assert train.labels == (1, 0)
    assert [video.path.stem for video in open_catalog(tmp_path, subset="val")] == ["xyz_000120_000130"]
    assert len(open_catalog(tmp_path)) == 3
    with pytest.raises(CatalogError, match="has no test videos: it has train, val"):
        open_catalog(tmp_path, subset="test")


def test_kinetics_from_the_csv_itself_without_labels(tmp_path: Path) -> None:
    make_files(tmp_path, "clips/a_000001_000011.mp4")
    table = write(tmp_path / "kinetics_test.csv", "youtube_id,time_start,time_end", "a,1,11.0", "b,2,12")
    catalog = open_catalog(table, allow_missing=True, subset="test")
    assert ids(catalog) == ["clips/a_000001_000011.mp4"]
    assert catalog.missing == ("b_000002_000012.mp4",)
    assert catalog.classes == ()
    write(table, "youtube_id,time_start,time_end", "a,one,11")
    with pytest.raises(CatalogError, match="line 2: time_start and time_end must be numbers"):
        open_catalog(table)


def test_kinetics_rows_may_repeat_but_not_contradict(tmp_path: Path) -> None:
    make_files(tmp_path, "a_000001_000011.mp4")
    write(tmp_path / "train.csv", KINETICS_HEADER, "run,a,1,11,train,0")
    write(tmp_path / "all.csv", KINETICS_HEADER, "run,a,1,11,train,0")
    assert len(open_catalog(tmp_path)) == 1
    write(tmp_path / "all.csv", KINETICS_HEADER, "walk,a,1,11,train,0")
    with pytest.raises(CatalogError, match="listed twice, as walk and as run"):
        open_catalog(tmp_path)
