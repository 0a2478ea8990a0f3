"""Layouts are held to small trees of empty files: a catalog never opens a video."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from provico.data.catalog import LAYOUTS, Catalog, Video, open_catalog, part_of
from provico.errors import CatalogError

from .file_trees import ids, make_files, write

# ----------------------------------------------------------------------------------------------------
# Lists and manifests


def test_a_list_line_that_names_a_file_is_no_comment(tmp_path: Path) -> None:
    make_files(tmp_path, "#1.mp4", "b.mp4")
    path = write(tmp_path / "list.txt", "#1.mp4 run", "# b.mp4", "#2.mp4", "b.mp4")
    assert ids(open_catalog(path)) == ["#1.mp4", "b.mp4"]


def test_list_with_spaces_comments_mark_and_windows_line_ends(tmp_path: Path) -> None:
    make_files(tmp_path, "a.mp4", "my clips/b c.AVI", "d.mp4 2.mkv", "e.webm", "f.mp4")
    other = make_files(tmp_path / "elsewhere", "g.mp4") / "g.mp4"
    folder = make_files(tmp_path / "lists", "h.mp4")
    path = write(
        folder / "train.txt",
        "# a comment",
        "",
        f"{tmp_path}/a.mp4 run",
        f"{tmp_path}/my clips/b c.AVI  stand still",
        f"{tmp_path}/d.mp4 2.mkv run",
        f"{tmp_path}/e.webm",
        f"{tmp_path}/f.mp4,walk",
        f"  {other}\trun",
        "./h.mp4 run",
        end="\r\n",
        encoding="utf-8-sig",
    )
    catalog = open_catalog(path)
    assert catalog.layout == "list"
    assert [(video.path, video.label) for video in catalog] == [
        (tmp_path / "a.mp4", "run"),
        (tmp_path / "my clips/b c.AVI", "stand still"),
        (tmp_path / "d.mp4 2.mkv", "run"),
        (tmp_path / "e.webm", None),
        (tmp_path / "f.mp4", "walk"),
        (other, "run"),
        (folder / "h.mp4", "run"),
    ]
    assert catalog[0].id == (tmp_path / "a.mp4").as_posix()
    assert catalog[6].id == "h.mp4"
    assert not catalog.is_labelled
    with pytest.raises(CatalogError, match=r"1 of 7 videos .* have no label"):
        _ = catalog.labels


def test_numbers_as_labels_are_ordered_by_value(tmp_path: Path) -> None:
    make_files(tmp_path, *(f"{number}.mp4" for number in (2, 10, 1)))
    catalog = open_catalog(write(tmp_path / "list.txt", *(f"{number}.mp4 {number}" for number in (2, 10, 1))))
    assert catalog.classes == ("1", "2", "10")
    assert catalog.labels == (1, 2, 0)


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (["a.mp4 run", "./a.mp4 run"], r'line 2: "./a.mp4" is already in line 1'),
        (["a.mp4", "b/../a.mp4"], "already in line 1"),
        (["../a.mp4"], "line 1: .* leads out of the folder .* absolute path"),
        (["sub.mp4"], "is a folder"),
        (["readme run"], 'found "readme run", needed "path" or "path label"'),
        (["# nothing"], "lists no readable video"),
    ],
)
def test_wrong_lines_of_a_list_are_named(tmp_path: Path, lines: list[str], complaint: str) -> None:
    make_files(tmp_path, "a.mp4", "sub.mp4/x.mp4")
    with pytest.raises(CatalogError, match=complaint):
        open_catalog(write(tmp_path / "list.txt", *lines))


def test_a_list_must_be_utf8(tmp_path: Path) -> None:
    path = write(tmp_path / "list.txt", "a.mp4", encoding="utf-16")
    with pytest.raises(CatalogError, match="not a text file in UTF-8"):
        open_catalog(path)


def write_csv(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_manifest_leaves_out_what_cannot_be_read(tmp_path: Path) -> None:
    odd = 'a, "b"\n.mp4'  # csv can hold any name
    make_files(tmp_path, odd, "c.avi", "d.mp4", "e.mp4")
    rows = [
        {"path": odd, "label": "run", "group": "g1", "split": "train", "status": "readable", "fps": "25"},
        {"path": "c.avi", "label": "walk", "group": "", "split": "Test", "status": "readable", "fps": "25"},
        {"path": "d.mp4", "label": "walk", "group": "", "split": "test", "status": "unreadable", "fps": ""},
        {"path": str(tmp_path / "e.mp4"), "label": "", "group": "", "split": "", "status": "", "fps": ""},
    ]
    catalog = open_catalog(write_csv(tmp_path / "manifest.csv", rows))
    assert catalog.layout == "manifest"
    assert catalog.videos == (
        Video(tmp_path / odd, odd, "run", "g1", "train"),
        Video(tmp_path / "c.avi", "c.avi", "walk", None, "test"),
        Video(tmp_path / "e.mp4", "e.mp4"),
    )
    test = open_catalog(tmp_path / "manifest.csv", subset="test")
    assert ids(test) == ["c.avi"]
    assert test.labels == (1,)  # the class numbers of all subsets agree


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("path,split\na.mp4,holdout\n", 'line 2: found the split "holdout"'),
        ("path,label\n,run\n", "line 2: .* is a folder"),
        ("path\na.mp4\na.mp4\n", "line 3: .* already in line 2"),
        ('path\n"a.mp4\n', "not a well-formed csv"),
        ("path\n", "lists no readable video"),
    ],
)
def test_wrong_rows_of_a_manifest_are_named(tmp_path: Path, text: str, complaint: str) -> None:
    make_files(tmp_path, "a.mp4")
    (tmp_path / "manifest.csv").write_text(text)
    with pytest.raises(CatalogError, match=complaint):
        open_catalog(tmp_path / "manifest.csv")


# ----------------------------------------------------------------------------------------------------
# Plain folders


def test_class_folders(tmp_path: Path) -> None:
    make_files(tmp_path, "run/a.mp4", "walk/deep/b.MOV", "walk/c.avi", "notes.txt")
    catalog = open_catalog(tmp_path)
    assert catalog.layout == "class-folders"
    assert [(video.id, video.label) for video in catalog] == [
        ("run/a.mp4", "run"),
        ("walk/c.avi", "walk"),
        ("walk/deep/b.MOV", "walk"),
    ]
    with pytest.raises(CatalogError, match="has no train videos: it does not say"):
        open_catalog(tmp_path, subset="train")


def test_class_folders_inside_train_and_test(tmp_path: Path) -> None:
    make_files(tmp_path, "train/run/a.mp4", "train/walk/b.mp4", "Validation/walk/c.mp4", "test/run/d.mp4")
    catalog = open_catalog(tmp_path, subset="val")
    assert catalog.layout == "class-folders"
    assert [(video.id, video.label) for video in catalog] == [("Validation/walk/c.mp4", "walk")]
    assert catalog.labels == (1,)
    assert len(open_catalog(tmp_path)) == 4


@pytest.mark.parametrize(
    "names",
    [("a.mp4", "run/b.mp4", "walk/c.mp4"), ("run/a.mp4", "run/b.mp4"), ("train/a.mp4", "test/b.mp4")],
)
def test_other_folders_have_no_labels(tmp_path: Path, names: tuple[str, ...]) -> None:
    catalog = open_catalog(make_files(tmp_path, *names))
    assert catalog.layout == "folder"
    assert sorted(ids(catalog)) == sorted(names)
    assert all(video.label is None for video in catalog)


def test_one_folder_can_be_a_class_if_asked_for(tmp_path: Path) -> None:
    make_files(tmp_path, "run/a.mp4")
    assert open_catalog(tmp_path, layout="class-folders").classes == ("run",)
    assert open_catalog(make_files(tmp_path, "b/c.mp4"), layout="folder").classes == ()


def test_a_single_video(tmp_path: Path) -> None:
    make_files(tmp_path, "a.mp4", "b.mp4")
    catalog = open_catalog(str(tmp_path / "a.mp4"))
    assert (catalog.layout, catalog.root, ids(catalog)) == ("folder", tmp_path, ["a.mp4"])


def test_hidden_files_are_left_out(tmp_path: Path) -> None:
    make_files(tmp_path, "a.mp4", ".b.mp4", ".cache/c.mp4", "._a.mp4")
    assert ids(open_catalog(tmp_path)) == ["a.mp4"]


def test_links_are_followed_once(tmp_path: Path) -> None:
    make_files(tmp_path / "elsewhere", "c.mp4")
    data = make_files(tmp_path / "data", "z/a.mp4", "z/b/d.mp4")
    (data / "z/b/up").symlink_to(data)  # a loop
    (data / "a").symlink_to(data / "z")  # a second name, first in the alphabet
    (data / "y").symlink_to(tmp_path / "elsewhere")
    (data / "e.mp4").symlink_to(tmp_path / "elsewhere/c.mp4")
    assert ids(open_catalog(data, layout="folder")) == ["e.mp4", "y/c.mp4", "z/a.mp4", "z/b/d.mp4"]


def test_links_to_nothing_are_missing(tmp_path: Path) -> None:
    make_files(tmp_path, "a.mp4")
    (tmp_path / "b.mp4").symlink_to(tmp_path / "gone.mp4")
    (tmp_path / "c.mp4").symlink_to(tmp_path / "c.mp4")
    with pytest.raises(CatalogError, match=r"2 of 3 videos .* are missing .*: b.mp4, c.mp4\."):
        open_catalog(tmp_path)
    assert open_catalog(tmp_path, allow_missing=True).missing == ("b.mp4", "c.mp4")


def test_names_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    make_files(tmp_path, "a.mp4")
    try:
        (tmp_path / os.fsdecode(b"caf\xe9.mp4")).touch()
    except OSError:
        pytest.skip("this file system holds UTF-8 names only")
    with pytest.raises(CatalogError, match=r"1 of 2 videos .* not UTF-8, such as b'caf\\xe9.mp4'"):
        open_catalog(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can list every folder")
def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    make_files(tmp_path, "a.mp4", "locked/b.mp4")
    (tmp_path / "locked").chmod(0)
    with pytest.raises(CatalogError, match="locked cannot be listed"):
        open_catalog(tmp_path)
    (tmp_path / "locked").chmod(0o700)


# ----------------------------------------------------------------------------------------------------
# Mistakes


def test_a_folder_without_videos_says_what_it_holds(tmp_path: Path) -> None:
    make_files(tmp_path, "a.jpg", "b/c.jpg", "d.txt", "e")
    with pytest.raises(CatalogError, match=r"no video in .* 2 x \.jpg, 1 x .*\. Videos are recognised by"):
        open_catalog(tmp_path)


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="does not exist"):
        open_catalog(tmp_path / "nowhere")


@pytest.mark.parametrize(("typed", "meant"), [("ucf-101", "ucf101"), ("class_folder", "class-folders")])
def test_a_mistyped_layout_is_answered_with_the_nearest(tmp_path: Path, typed: str, meant: str) -> None:
    with pytest.raises(CatalogError, match=f'no layout "{typed}". Did you mean {meant}?'):
        open_catalog(tmp_path, layout=typed)


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name not in ("class-folders", "folder")])
def test_the_wrong_layout_says_what_it_needs_and_what_it_looks_like(tmp_path: Path, layout: str) -> None:
    make_files(tmp_path, "run/a.mp4", "walk/b.mp4")
    with pytest.raises(
        CatalogError, match=f"not in the layout {layout}, which needs .* like the layout class-"
    ):
        open_catalog(tmp_path, layout=layout)


def test_videos_outside_class_folders_are_not_class_folders(tmp_path: Path) -> None:
    make_files(tmp_path, "a.mp4", "walk/b.mp4")
    with pytest.raises(CatalogError, match=r"not in the layout class-folders.* like the layout folder"):
        open_catalog(tmp_path, layout="class-folders")


def test_all_missing_is_an_error_even_if_allowed(tmp_path: Path) -> None:
    path = write(tmp_path / "list.txt", "a.mp4", "b.mp4")
    with pytest.raises(CatalogError, match=r"2 of 2 videos .* is it in the right place"):
        open_catalog(path, allow_missing=True)


# ----------------------------------------------------------------------------------------------------
# Catalog


def test_parts_of_a_catalog(tmp_path: Path) -> None:
    names = [f"{label}/{number}.mp4" for label in ("Archery", "Biking", "Zebra") for number in range(6)]
    catalog = open_catalog(make_files(tmp_path, *names))
    some = catalog.subset([3, 0])
    assert some.videos == (catalog[3], catalog[0])
    assert some.classes == catalog.classes


def test_joined_catalogs_hold_each_file_once(tmp_path: Path) -> None:
    """Labels of another source mean something else, so only those of the first one stay."""
    own = open_catalog(make_files(tmp_path / "own", "run/a.mp4", "walk/b.mp4"))
    other = open_catalog(make_files(tmp_path / "other", "run/a.mp4", "swim/c.mp4"))
    rows = ("path,start_seconds,end_seconds", "own/run/a.mp4,0,2", "own/run/a.mp4,2,3.5", "own/walk/b.mp4,,")
    parts = open_catalog(write(tmp_path / "parts.csv", *rows))
    joined = own.joined(other, parts, other)
    assert joined.videos[:2] == own.videos
    assert (joined.root, joined.classes) == (own.root, own.classes)
    assert [(video.path, video.span) for video in joined.videos[2:]] == [
        (tmp_path / "other/run/a.mp4", None),
        (tmp_path / "other/swim/c.mp4", None),
        (tmp_path / "own/run/a.mp4", (0.0, 2.0)),
        (tmp_path / "own/run/a.mp4", (2.0, 3.5)),
    ]
    assert {(video.label, video.group, video.subset) for video in joined.videos[2:]} == {(None, None, None)}
    assert len(set(ids(joined))) == 6
    assert own.joined() == own


def test_a_catalog_refuses_contradictions() -> None:
    video = Video(Path("/a.mp4"), "a.mp4", "run")
    with pytest.raises(ValueError, match="same id"):
        Catalog(Path("/"), "folder", (video, video), ("run",))
    with pytest.raises(ValueError, match=r"run.* not among the classes"):
        Catalog(Path("/"), "folder", (video,), ("walk",))


def test_catalogs_and_clips_do_not_wait_for_torch() -> None:
    code = "import sys, provico.data.catalog, provico.data.clips; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_parts_are_the_whole_and_keep_recordings_together(tmp_path: Path) -> None:
    names = [f"{number}.mp4" for number in range(300)]
    make_files(tmp_path, *names)
    rows = [f"{name},group {number // 3}" for number, name in enumerate(names)]
    path = write(tmp_path / "list.csv", "path,group", *rows)
    parts = {n: [open_catalog(path, part=(number, n)) for number in range(1, n + 1)] for n in (1, 4, 5)}
    assert parts[4][1].part == (2, 4)
    for some in parts.values():
        assert sorted(video.id for part in some for video in part) == sorted(names)
        groups = [{video.group for video in part} for part in some]
        assert sum(map(len, groups)) == len(set().union(*groups)) == 100
        assert all(len(part) >= 10 for part in groups)
    # With one part more, only what goes into the new one changes its place.
    for before, after in zip(parts[4], parts[5], strict=False):
        assert set(ids(after)) < set(ids(before))
    assert part_of("a/b.mp4", None, 1000) == part_of("anything", "a/b.mp4", 1000) == 528
    with pytest.raises(CatalogError, match=r"No video of .* is in part 1 of 2"):
        open_catalog(make_files(tmp_path / "one", "a.mp4"), part=(1, 2))
