"""Groups, parts and leaks of an index, found through the files that it names."""

from __future__ import annotations

import csv
import json
import shutil

import pyarrow.parquet
import pytest

from provico.cli import main
from provico.data.catalog import open_catalog
from provico.data.frames.encode import write_video
from provico.duplicates import find_duplicates
from provico.duplicates.kept import KeptDuplicates
from provico.duplicates.report import DuplicateReport, Member, Pair, check_report_name, group_duplicates
from provico.errors import ConfigError
from provico.search.index import Index
from provico.search.query import Span

CLIP_SECONDS = 7 / 20
"""Four frames, every second one, of twenty a second."""


@pytest.fixture(scope="module")
def index(encoder, films, library, tmp_path_factory) -> Index:
    made = Index.create(tmp_path_factory.mktemp("index"), encoder, num_clips=5)
    made.add(open_catalog(films), library=library)
    return made


@pytest.fixture(scope="module")
def report(index, library) -> DuplicateReport:
    return find_duplicates(index, library=library)


def test_copies_are_grouped_and_the_best_is_kept(report):
    (group,) = report.groups
    assert group.keep.id == "a.mp4"
    assert group.reason == "its picture is the largest"
    assert [member.id for member in group.drop] == ["a_small.mp4"]
    assert group.probability > 0.9
    assert report.num_droppable == 1


def test_parts_are_found_where_they_are(report):
    parts = {(pair.first.id, pair.second.id): pair for pair in report.parts}
    part = parts["a.mp4", "a_part.mp4"]
    assert part.kind == "contains"
    assert part.first_span.start_seconds == pytest.approx(25 / 20, abs=CLIP_SECONDS)
    assert part.first_span.end_seconds == pytest.approx(65 / 20, abs=CLIP_SECONDS)
    assert part.speed == pytest.approx(1, abs=0.03)
    assert str(part).startswith("a_part.mp4 is a.mp4 0:01.")
    for name, start, end in (("a.mp4", 3.0, 7.0), ("b.mp4", 0.0, 3.0)):
        joined = parts[name, "joined.mp4"]
        assert joined.kind == "contained"
        assert joined.second_span.start_seconds == pytest.approx(start, abs=CLIP_SECONDS)
        assert joined.second_span.end_seconds == pytest.approx(end, abs=CLIP_SECONDS)


def test_nothing_else_is_found(report):
    expected = {"a.mp4", "a_small.mp4", "a_part.mp4", "joined.mp4"}
    for pair in report.pairs:
        ids = {pair.first.id, pair.second.id}
        assert ids <= expected or ids == {"b.mp4", "joined.mp4"}
    # All five that there are among the four, and b.
    assert len(report.pairs) == 7


def test_progress_is_in_seconds_of_video(index, library):
    """Each second counts twice, when it is read and when it has been compared, so the time left is right."""
    told = []
    find_duplicates(index, library=library, progress=lambda done, total, note="": told.append((done, total)))
    (total,) = {total for _, total in told}
    assert total == pytest.approx(2 * float(index.loaded.duration_seconds.sum()), abs=1)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] == total


def test_blank_videos_are_named_and_in_no_group(report):
    assert report.blank == tuple(f"blank_{number}.mp4" for number in range(5))


def test_without_subsets_there_is_no_leak(report):
    assert report.leaks == ()
    assert report.summary()["num_leaks"] == 0


@pytest.mark.parametrize("num_videos", [0, 1])
def test_an_index_with_next_to_nothing(num_videos, encoder, films, library, tmp_path):
    index = Index.create(tmp_path / "index", encoder, num_clips=5)
    if num_videos:
        index.add(open_catalog(films / "a.mp4"), library=library)
    found = find_duplicates(index, library=library)
    assert (found.num_videos, found.pairs, found.groups, found.num_compared) == (num_videos, (), (), 0)


def test_a_file_that_is_gone_is_named(encoder, films, library, tmp_path):
    for name in ("a.mp4", "a_small.mp4", "b.mp4"):
        shutil.copy(films / name, tmp_path)
    index = Index.create(tmp_path / "index", encoder, num_clips=5)
    index.add(open_catalog(tmp_path, layout="folder"), library=library)
    (tmp_path / "b.mp4").unlink()
    found = find_duplicates(index, library=library)
    assert [name for name, _ in found.failed] == ["b.mp4"]
    assert len(found.pairs) == 1


def test_the_same_frames_are_certain(encoder, films, library, tmp_path):
    shutil.copy(films / "a.mp4", tmp_path / "1.mp4")
    shutil.copy(films / "a.mp4", tmp_path / "2.mp4")
    index = Index.create(tmp_path / "index", encoder, num_clips=5)
    index.add(open_catalog(tmp_path, layout="folder"), library=library)
    (pair,) = find_duplicates(index, library=library, candidates="clips").pairs
    assert (pair.probability, pair.proof, pair.kind) == (1.0, "identical", "duplicate")
    assert pair.first_span == pair.second_span


def test_leaks_between_subsets_and_sides(encoder, films, make_film, tmp_path, capsys):
    """Through the command line, which must also tell by its exit status."""
    subsets = {"a.mp4": "train", "c.mp4": "train", "a_part.mp4": "test", "b.mp4": "test"}
    for name in subsets:
        shutil.copy(films / name, tmp_path)
    lines = ["path,split", *(f"{name},{subset}" for name, subset in subsets.items())]
    (tmp_path / "manifest.csv").write_text("\n".join(lines) + "\n")
    folder = tmp_path / "index"
    index = Index.create(folder, encoder, num_clips=5)
    index.add(open_catalog(tmp_path / "manifest.csv"))
    with pytest.raises(SystemExit) as ended:
        main(["dedup", str(folder), "--json", "--fail-on-leaks", "--out", str(tmp_path / "pairs.csv")])
    assert ended.value.code == 1
    found = json.loads(capsys.readouterr().out)
    assert found["num_leaks"] == 1
    assert [(p["first"], p["second"]) for p in found["pairs"]] == [("a.mp4", "a_part.mp4")]
    with (tmp_path / "pairs.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["is_leak"], row["kind"]) == ("True", "contains")

    clean, leaking = tmp_path / "clean", tmp_path / "leaking"
    clean.mkdir()
    leaking.mkdir()
    write_video(clean / "d.mp4", make_film(9, 1), fps=20)
    shutil.copy(films / "a_small.mp4", leaking)
    table = tmp_path / "pairs.parquet"
    main(["dedup", str(folder), "--against", str(clean), "--fail-on-leaks", "--out", str(table)])
    assert pyarrow.parquet.read_table(table).num_rows == 0
    assert "0 leaks" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["dedup", str(folder), "--against", str(leaking), "--fail-on-leaks", "--out", str(table)])
    assert ended.value.code == 1
    assert pyarrow.parquet.read_table(table)["second"].to_pylist() == ["a_small.mp4"] * 2


def test_what_cannot_work_is_refused(index, encoder, tmp_path):
    with pytest.raises(ConfigError, match="between 0 and 1"):
        find_duplicates(index, min_probability=1.5)
    with pytest.raises(ConfigError, match="at least 1"):
        find_duplicates(index, num_candidates=0)
    with pytest.raises(ConfigError, match="is the index itself"):
        find_duplicates(index, other=Index.open(index.path))
    with pytest.raises(SystemExit) as ended:
        main(["dedup", str(index.path), "--out", str(tmp_path / "pairs.txt")])
    assert ended.value.code == 2


def pair(first: str, second: str, probability: float, kind: str = "duplicate", **more: object) -> Pair:
    def member(name: str) -> Member:
        seconds, pixels = {"long": (20.0, 10), "large": (10.0, 99)}.get(name, (10.0, 10))
        return Member(
            id=name,
            path=name,
            label=None,
            subset=None,
            source="index",
            duration_seconds=seconds,
            num_pixels=pixels,
            uncertainty=0.2,
            bars=0.25 if name == "boxed" else 0.0,
            modified_ns=1 if name == "old" else 2,
        )

    return Pair(
        first=member(first),
        second=member(second),
        probability=probability,
        kind=kind,
        first_span=Span(0, 1),
        second_span=Span(0, 1),
        proof="motion",
        motion=0.9,
        appearance=0.9,
        repetition=0.0,
        **{"speed": 1.0, "is_mirrored": False} | more,
    )


def test_a_group_is_as_sure_as_what_holds_it_together():
    chain = [pair("a", "b", 0.9), pair("b", "c", 0.6), pair("a", "c", 0.8), pair("d", "e", 0.7)]
    first, second = group_duplicates(chain)
    assert {first.keep.id, *(member.id for member in first.drop)} == {"a", "b", "c"}
    assert first.probability == 0.8  # a-c and a-b hold it, b-c is not needed
    assert second.probability == 0.7


def test_a_part_joins_nothing():
    found = group_duplicates([pair("a", "joined", 1.0, "contained"), pair("b", "joined", 1.0, "contained")])
    assert found == ()


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (("a", "long"), "long"),
        (("large", "long"), "large"),
        (("a", "large"), "large"),
        (("a", "boxed"), "a"),
        (("a", "old"), "old"),
        (("b", "a"), "a"),
    ],
)
def test_which_one_to_keep(names, kept):
    (group,) = group_duplicates([pair(*names, 0.9)])
    assert group.keep.id == kept
    assert group.reason


def test_the_mirrored_one_is_the_one_that_most_others_are_unlike():
    """Nothing in a picture says which way round it was; the others and the age of the file do."""
    turned = [pair("a", "b", 0.9, is_mirrored=True), pair("b", "c", 0.8, is_mirrored=True)]
    (group,) = group_duplicates(turned)
    assert (group.keep.id, group.edits["b"], group.edits["c"]) == ("a", "mirrored", "re-encoded")
    assert group.reason == "it is not mirrored"
    (two,) = group_duplicates([pair("a", "old", 0.9, is_mirrored=True)])
    assert (two.keep.id, two.edits) == ("old", {"a": "mirrored"})


@pytest.mark.parametrize(
    ("first", "second", "speed", "edit"),
    [
        ("large", "a", 0.8, "sped up 1.2 times, smaller"),
        ("a", "large", 1.25, "sped up 1.2 times, smaller"),
        ("a", "large", 0.8, "slowed down to 80%, smaller"),
        ("a", "boxed", 1.0, "with bars, smaller"),
        ("long", "a", 1.0, "shorter"),
        ("a", "b", 1.0, "re-encoded"),
    ],
)
def test_what_was_done_to_a_copy(first, second, speed, edit):
    (group,) = group_duplicates([pair(first, second, 0.9, speed=speed)])
    assert list(group.edits.values()) == [edit]


def test_a_report_is_kept_as_every_command_and_the_page_read_it(tmp_path):
    pairs = (pair("a", "b", 0.9),)
    report = DuplicateReport(
        num_videos=2,
        num_compared=1,
        min_probability=0.5,
        pairs=pairs,
        groups=group_duplicates(pairs),
        blank=(),
        failed=(),
    )
    report.write(tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text()) == report.summary()
    kept = KeptDuplicates(tmp_path)
    assert kept.read() is None
    kept.write(report)
    assert kept.read() == report
    kept.reject([("b", "a")])
    assert KeptDuplicates(tmp_path).rejected() == {("a", "b")}
    found = kept.read()
    assert found is not None
    assert (found.pairs, found.groups) == ((), ())
    kept.reject([("a", "b")], rejected=False)
    assert kept.read() == report
    kept.path.write_text("nonsense")
    assert kept.read() is None
    with pytest.raises(ConfigError, match=r"pairs\.txt must end in \.json, \.csv or \.parquet"):
        check_report_name(tmp_path / "pairs.txt")
